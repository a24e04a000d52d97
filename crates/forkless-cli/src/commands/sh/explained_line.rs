//! The decision on a line in a form that can be printed: strings instead of a buffer, and the
//! changes of the environment.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::unix::ffi::OsStringExt as _;

use forkless_shell::{
    Command, CommandKind, Connector, Directory, EnvSlot, EnvString, PreviousDirectory, RedirectionKind,
    Rejection, Script, ShellTraits, analyze,
};
use serde::Serialize;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct ExplainedLine {
    pub(super) schema: &'static str,
    pub(super) line: String,
    /// What is known of `/bin/sh`.
    pub(super) shell: String,
    pub(super) decision: Decision,
    /// Why a shell is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Why>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pipelines: Vec<ExplainedPipeline>,
    /// For people: the decision in a line, or the reason with its bytes of the line marked.
    #[serde(skip)]
    pub(super) shown: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Decision {
    Direct,
    Shell,
}

#[derive(Debug, Serialize)]
pub(super) struct Why {
    pub(super) code: &'static str,
    pub(super) text: &'static str,
    /// The bytes of the line that are the reason; start and end are equal where the line is not.
    pub(super) start: usize,
    pub(super) end: usize,
    /// The variable that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ExplainedPipeline {
    /// When it is run: `always`, `and`, `or`.
    pub(super) runs: &'static str,
    pub(super) negated: bool,
    pub(super) commands: Vec<ExplainedCommand>,
}

#[derive(Debug, Serialize)]
pub(super) struct ExplainedCommand {
    /// `program`, or a builtin that is carried out: `exec`, `status`, `exit`, `cd`.
    pub(super) kind: &'static str,
    pub(super) argv: Vec<String>,
    pub(super) assignments: Vec<String>,
    pub(super) redirections: Vec<Redirect>,
    /// Whether this shell would replace itself by the program: a death by signal is then the line's
    /// own.
    pub(super) replaces_shell: bool,
    /// What this shell does to the environment for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) environment: Option<Effect>,
}

#[derive(Debug, Serialize)]
pub(super) struct Redirect {
    pub(super) descriptor: u8,
    pub(super) operator: &'static str,
    /// A path, the number of a descriptor, or `-`.
    pub(super) target: String,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Effect {
    /// Variables with a value of the shell's or the line's making.
    pub(super) set: BTreeMap<String, String>,
    /// Variables that are not passed on.
    pub(super) dropped: Vec<String>,
}

impl ExplainedLine {
    pub(super) fn of(line: &[u8], traits: &ShellTraits) -> ExplainedLine {
        let environment: Vec<Vec<u8>> = std::env::vars_os()
            .map(|(name, value)| [name.into_vec(), b"=".to_vec(), value.into_vec()].concat())
            .collect();
        let entries: Vec<&[u8]> = environment.iter().map(Vec::as_slice).collect();
        let mut buf = vec![0; 4096 + 32 * line.len()];
        let decision = analyze(line, entries.as_slice(), traits, &mut buf);
        let shown = forkless_shell::Explanation { line, decision: &decision }.to_string();
        let mut explained = ExplainedLine {
            schema: "forkless.sh/1",
            line: text(line),
            shell: traits.kind().to_string(),
            decision: Decision::Direct,
            reason: None,
            pipelines: Vec::new(),
            shown,
        };
        match decision {
            Ok(script) => explained.pipelines = pipelines(&script, &entries, traits),
            Err(rejection) => {
                explained.decision = Decision::Shell;
                explained.reason = Some(why(&rejection, &entries));
            }
        }
        explained
    }
}

fn why(rejection: &Rejection, environment: &[&[u8]]) -> Why {
    let name = |index: usize| environment.get(index).map(|entry| text(name_of(entry)));
    Why {
        code: rejection.reason.code(),
        text: rejection.reason.describe(),
        start: rejection.span.start,
        end: rejection.span.end,
        variable: rejection.variable.and_then(name),
    }
}

fn pipelines(script: &Script<'_>, environment: &[&[u8]], traits: &ShellTraits) -> Vec<ExplainedPipeline> {
    let mut place = std::env::current_dir().ok().map(|dir| dir.into_os_string().into_vec());
    let mut previous = None;
    let mut all = Vec::new();
    for pipeline in script.pipelines() {
        let mut commands = Vec::new();
        for command in pipeline.stages() {
            let effect = place
                .as_deref()
                .filter(|_| command.is_program())
                .and_then(|place| effect(&command, environment, traits, place, previous.as_deref()));
            commands.push(stage(&command, effect));
            if let (Some(operand), Some(from)) = (command.operand(), &place) {
                // As if every `cd` were carried out.
                let mut buf = vec![0; from.len() + operand.count_bytes() + 2];
                let to = forkless_shell::resolve_directory(from, operand.to_bytes(), &mut buf);
                let to = to.ok().map(|to| to.to_bytes().to_vec());
                previous = std::mem::replace(&mut place, to);
            }
        }
        all.push(ExplainedPipeline {
            runs: match pipeline.connector() {
                Connector::Always => "always",
                Connector::And => "and",
                Connector::Or => "or",
            },
            negated: pipeline.is_negated(),
            commands,
        });
    }
    all
}

fn stage(command: &Command<'_>, environment: Option<Effect>) -> ExplainedCommand {
    ExplainedCommand {
        kind: match command.kind() {
            CommandKind::External => "program",
            CommandKind::Exec => "exec",
            CommandKind::Status(_) => "status",
            CommandKind::Exit(_) => "exit",
            CommandKind::ChangeDirectory => "cd",
        },
        argv: command.words().map(c_text).collect(),
        assignments: command.assignments().map(c_text).collect(),
        redirections: command
            .redirections()
            .map(|redirection| {
                let (operator, target) = match redirection.kind {
                    RedirectionKind::Read(path) => ("<", c_text(path)),
                    RedirectionKind::Write(path) => (">", c_text(path)),
                    RedirectionKind::Append(path) => (">>", c_text(path)),
                    RedirectionKind::ReadWrite(path) => ("<>", c_text(path)),
                    RedirectionKind::Duplicate(from) => (">&", from.to_string()),
                    RedirectionKind::Close => (">&", "-".to_owned()),
                };
                Redirect { descriptor: redirection.descriptor, operator, target }
            })
            .collect(),
        replaces_shell: command.replaces_shell(),
        environment,
    }
}

/// How a program's environment differs from ours.
fn effect(
    command: &Command<'_>,
    environment: &[&[u8]],
    traits: &ShellTraits,
    current: &[u8],
    previous: Option<&[u8]>,
) -> Option<Effect> {
    let program = command.words().next()?.to_bytes();
    let mut buf =
        vec![0; Command::environment_bytes(current.len(), previous.map_or(0, <[u8]>::len), program.len())];
    let mut slots = vec![EnvSlot::EMPTY; environment.len() + command.assignments().count() + 4];
    let directory = Directory {
        current,
        previous: previous.map_or(PreviousDirectory::Inherited, PreviousDirectory::Left),
    };
    let count = traits.environment(environment, command, &directory, program, &mut buf, &mut slots).ok()?;
    let mut effect = Effect::default();
    let mut names = Vec::new();
    for slot in slots.iter().take(count) {
        match slot.string() {
            EnvString::Inherited(index) => names.push(name_of(environment.get(index)?)),
            EnvString::Own(own) => {
                let own = own.to_bytes();
                let name = name_of(own);
                let value = own.get(name.len() + 1..).unwrap_or_default();
                // bash puts the path found along PATH here; it is not searched for to explain.
                effect.set.insert(text(name), text(value));
                names.push(
                    environment
                        .iter()
                        .map(|entry| name_of(entry))
                        .find(|other| *other == name)
                        .unwrap_or_default(),
                );
            }
        }
    }
    effect.dropped = environment
        .iter()
        .map(|entry| name_of(entry))
        .filter(|name| !names.contains(name))
        .map(text)
        .collect();
    Some(effect)
}

fn name_of(entry: &[u8]) -> &[u8] {
    entry.split(|&byte| byte == b'=').next().unwrap_or_default()
}

fn c_text(string: &CStr) -> String {
    text(string.to_bytes())
}

/// Bytes that are no UTF-8 become U+FFFD: JSON has no others.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
