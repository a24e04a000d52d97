//! What holds for the analysis of any bytes. The fuzz target `shell_line` uses it, too.

use forkless_shell::{Directory, EnvSlot, Explanation, PreviousDirectory, ShellTraits, analyze};

const SHELLS: [ShellTraits; 4] =
    [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX, ShellTraits::UNKNOWN];

/// Analyses, walks the whole result, computes every environment, and shows it.
pub(crate) fn exercise(line: &[u8], environment: &[&[u8]], room: usize) {
    let mut buf = vec![0; room];
    for shell in &SHELLS {
        let decision = analyze(line, environment, shell, &mut buf);
        let shown = Explanation { line, decision: &decision }.to_string();
        assert!(shown.starts_with("direct: ") || shown.starts_with("shell: "), "{shown}");
        match decision {
            Ok(script) => {
                assert!(script.size() <= room);
                let mut end = 0;
                for pipeline in script.pipelines() {
                    let span = pipeline.span();
                    assert!(end <= span.start && span.start < span.end && span.end <= line.len());
                    end = span.end;
                    assert_eq!(pipeline.stages().count(), pipeline.stage_count());
                    for command in pipeline.stages() {
                        let inner = command.span();
                        assert!(span.start <= inner.start && inner.end <= span.end);
                        assert_eq!(command.words().count(), command.word_count());
                        assert!(command.word_count() > 0);
                        let directory = Directory { current: b"/x", previous: PreviousDirectory::Stale };
                        let (mut text, mut slots) = ([0; 128], [EnvSlot::EMPTY; 32]);
                        let _ = shell.environment(
                            environment,
                            &command,
                            &directory,
                            b"/p",
                            &mut text,
                            &mut slots,
                        );
                    }
                }
            }
            Err(rejection) => {
                assert!(
                    rejection.span.start <= rejection.span.end && rejection.span.end <= line.len(),
                    "{line:?}"
                );
            }
        }
    }
}
