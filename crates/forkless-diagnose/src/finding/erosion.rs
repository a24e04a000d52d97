//! Forked workers that make pages private: who writes to what they could share with their parent,
//! and the line that keeps it shared.

use std::collections::HashMap;

use super::{Context, Cost, Finding, FindingKind, evidence, mib};
use crate::collect::{Outcome, SampledPages};
use crate::creation::{Place, ProgramKey};
use crate::interpreter::Family;
use crate::program::ProcessName;
use crate::ring::NR_EROSION;
use crate::stack::{Collects, Frame};

/// A worker must make so much private, bytes.
const FROM: f64 = (8 << 20) as f64;
/// And such a part of the memory that it was forked with.
const PART: f64 = 0.05;

/// Frames without a name between Ruby's collector and the functions that libruby exports.
const DEEP: usize = 4;

/// Who writes to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Writer {
    Collector,
    Counts,
    /// One of both: the interpreter has no debug information that tells them apart.
    CountsOrProgram,
    /// One of the three: the interpreter does not tell which code is its collector's.
    CollectorCountsOrProgram,
    Allocator,
    /// Code of Ruby that has no name, most of it the collector's.
    Ruby,
    Program,
    Unknown,
}

impl Writer {
    fn name(self) -> &'static str {
        match self {
            Self::Collector => "the garbage collector",
            Self::Counts => "reference counts",
            Self::CountsOrProgram => "reference counts or its own writes",
            Self::CollectorCountsOrProgram => "its collector, reference counts or its own writes",
            Self::Allocator => "the allocator",
            Self::Ruby => "Ruby itself",
            Self::Program => "the program",
            Self::Unknown => "code that is not known",
        }
    }

    /// By the functions of a stack, innermost first.
    fn of(stack: &[Frame]) -> Self {
        /// Of CPython, CRuby, PHP, V8.
        const COLLECTOR: [&str; 14] = [
            "gc_collect",
            "collect_generations",
            "collect_with_callback",
            "deduce_unreachable",
            "PyGC_",
            "update_refs",
            "visit_decref",
            "garbage_collect",
            "gc_mark",
            "gc_sweep",
            "gc_start",
            "rb_gc",
            "zend_gc",
            "v8::internal::Heap::",
        ];
        const ALLOCATOR: [&str; 10] = [
            "_int_malloc",
            "_int_free",
            "malloc",
            "calloc",
            "realloc",
            "free",
            "unlink_chunk",
            "pymalloc",
            "_PyObject_Malloc",
            "_PyObject_Free",
        ];
        let named: Vec<&str> = stack.iter().filter_map(|frame| frame.function.as_deref()).collect();
        let has_name = named.iter().any(|name| COLLECTOR.iter().any(|part| name.contains(part)));
        if has_name || stack.iter().any(|frame| frame.collects == Collects::Yes) {
            return Self::Collector;
        }
        let Some(innermost) = stack.first() else { return Self::Unknown };
        let is = |names: &[&str]| {
            innermost.function.as_deref().is_some_and(|name| names.iter().any(|part| name.starts_with(part)))
        };
        if is(&ALLOCATOR) {
            return Self::Allocator;
        }
        if let Some(family) = Family::of_file(&innermost.module).filter(|family| keeps_counts(*family)) {
            return if is_count(innermost) {
                Self::Counts
            } else if stores(innermost) || tells_counts(family, innermost) {
                Self::Program
            } else if may_collect(stack) {
                Self::CollectorCountsOrProgram
            } else {
                Self::CountsOrProgram
            };
        }
        // All of its collector is static functions, whose names distributions take out. What the
        // program does itself passes a function with a name sooner.
        let without_name = stack.iter().take_while(|frame| frame.function.is_none());
        let is_ruby = |frame: &&Frame| Family::of_file(&frame.module) == Some(Family::Ruby);
        if without_name.filter(is_ruby).count() >= DEEP {
            return Self::Ruby;
        }
        Self::Program
    }
}

/// Whether objects have a count, so that reading one writes to it.
fn keeps_counts(family: Family) -> bool {
    matches!(family, Family::Python(_) | Family::Perl | Family::Php | Family::PhpFpm)
}

/// Whether Python's collector may be at work: it runs within a call of the bytecode's.
fn may_collect(stack: &[Frame]) -> bool {
    let is_bytecode =
        |frame: &Frame| frame.function.as_deref().is_some_and(|name| name.starts_with("_PyEval_EvalFrame"));
    let mut called = stack.iter().take_while(|frame| !is_bytecode(frame));
    called.any(|frame| frame.collects == Collects::Unknown)
}

/// Whether a function of such an interpreter carries out a write of the program's.
fn stores(frame: &Frame) -> bool {
    /// Of CPython, Perl, PHP.
    const STORES: [&str; 22] = [
        "ass_subscript",
        "ass_item",
        "ass_sub",
        "ass_slice",
        "setslice",
        "setitem",
        "set_item",
        "SET_ITEM",
        "SetItem",
        "setattr",
        "SetAttr",
        "insertdict",
        "pack_single",
        "list_append",
        "list_resize",
        "sv_set",
        "av_store",
        "hv_store",
        "pp_preinc",
        "pp_postinc",
        "ASSIGN",
        "zend_assign",
    ];
    frame.function.as_deref().is_some_and(|name| STORES.iter().any(|part| name.contains(part)))
}

/// Whether the function is one of CPython's or PHP's that change a count. They are inlined.
fn is_count(frame: &Frame) -> bool {
    const COUNTS: [&str; 6] = ["INCREF", "DECREF", "NewRef", "REFCNT", "addref", "delref"];
    frame.function.as_deref().is_some_and(|name| COUNTS.iter().any(|part| name.contains(part)))
}

/// Whether a change of a count would be a frame of its own: debug information tells inlined
/// functions. Perl's are macros.
fn tells_counts(family: Family, frame: &Frame) -> bool {
    frame.line.is_some() && family != Family::Perl
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    let mut by_creator: HashMap<ProgramKey, Vec<(Place, u64)>> = HashMap::new();
    for one in &context.collected.erosion {
        let ProgramKey { pid, image } = one.creator;
        let place = Place { pid, nr: NR_EROSION, ip: one.ip, word: 0, image };
        by_creator.entry(one.creator).or_default().push((place, one.pages));
    }
    by_creator.into_iter().filter_map(|(creator, places)| finding(context, creator, places)).collect()
}

/// Takes the pages out that workers made private when they ended, and returns their number. The
/// places without a stack are divided as those that have one.
fn take_out_ends(context: &Context<'_>, places: &mut [(Place, u64)]) -> u64 {
    let sampled = |place: &Place| context.collected.made_private.get(place).copied().unwrap_or_default();
    let (mut known, mut ends) = (0, 0.0);
    for (place, pages) in &*places {
        let SampledPages { all, at_end } = sampled(place);
        if all > 0 {
            known += pages;
            ends += *pages as f64 * at_end as f64 / all as f64;
        }
    }
    let of_unknown = if known > 0 { ends / known as f64 } else { 0.0 };
    let mut taken = 0;
    for (place, pages) in places {
        let SampledPages { all, at_end } = sampled(place);
        let part = if all > 0 { at_end as f64 / all as f64 } else { of_unknown };
        let at_end = (*pages as f64 * part).round() as u64;
        *pages -= at_end;
        taken += at_end;
    }
    taken
}

/// The workers of a process, from all its places.
struct Workers {
    comm: String,
    count: u64,
    anon: f64,
}

fn workers(context: &Context<'_>, creator: ProgramKey) -> Option<Workers> {
    let of_creator = context
        .groups
        .iter()
        .filter(|((place, outcome), _)| place.program() == creator && *outcome == Outcome::ForkAlone);
    let groups: Vec<_> = of_creator.collect();
    let (_, most) = groups.iter().max_by_key(|((place, _), group)| (group.count, *place))?;
    let count = groups.iter().map(|(_, group)| group.count).sum::<u64>();
    let anon = groups.iter().map(|(_, group)| group.anon.mean).fold(0.0, f64::max);
    Some(Workers { comm: most.comm.clone(), count, anon })
}

/// Pages by writer, with the stack that has made most of them.
fn writers(context: &Context<'_>, places: &[(Place, u64)]) -> Vec<(Writer, u64, Vec<Frame>)> {
    let mut writers: HashMap<Writer, (u64, u64, Vec<Frame>)> = HashMap::new();
    for &(place, pages) in places.iter().filter(|(_, pages)| *pages > 0) {
        let stack = context.stack(&place);
        let (all, most, frames) = writers.entry(Writer::of(&stack)).or_default();
        *all += pages;
        if pages > *most {
            (*most, *frames) = (pages, stack);
        }
    }
    let mut list: Vec<_> =
        writers.into_iter().map(|(writer, (all, _, frames))| (writer, all, frames)).collect();
    list.sort_by_key(|(writer, all, _)| (std::cmp::Reverse(*all), writer.name()));
    list
}

fn finding(context: &Context<'_>, creator: ProgramKey, mut places: Vec<(Place, u64)>) -> Option<Finding> {
    let Workers { comm, count, anon } = workers(context, creator)?;
    let page = rustix::param::page_size() as f64;
    let at_end = take_out_ends(context, &mut places);
    let pages: u64 = places.iter().map(|(_, pages)| pages).sum();
    let each = pages as f64 * page / count as f64;
    if each < FROM || each < PART * anon {
        return None;
    }
    let process = context.name(creator, &comm);
    let list = writers(context, &places);
    // What has no name is seldom hit; a remedy needs one.
    let (writer, by_writer, stack) =
        list.iter().find(|(writer, ..)| *writer != Writer::Unknown).or(list.first())?;
    let part = *by_writer as f64 / pages as f64;
    let price = context.model.fault_copied;
    let cost_ns = price.mid * pages as f64;
    let saving_each = price.times(*by_writer as f64 / count as f64);
    let mut facts = vec![
        evidence("memory of the parent at the fork", mib(anon)),
        evidence("made private by each worker", mib(each)),
    ];
    facts.extend(list.iter().map(|(writer, pages, stack)| {
        let function = stack.first().map(|frame| format!(", most of it in {frame}")).unwrap_or_default();
        let bytes = mib(*pages as f64 * page / count as f64);
        evidence(&format!("of it by {}", writer.name()), format!("{bytes}{function}"))
    }));
    match writer {
        Writer::CountsOrProgram => {
            let why =
                "not known: the interpreter has no debug information, which tells its inlined functions";
            facts.push(evidence("which of both writes", why));
        }
        Writer::CollectorCountsOrProgram => {
            let why = "not known: the interpreter's functions have no names (install its package of symbols)";
            facts.push(evidence("which of the three writes", why));
        }
        Writer::Collector if stack.iter().any(|frame| frame.collects == Collects::Yes) => {
            let how =
                "has no name, and is known by its calls: from PyGC_Collect, and of tp_traverse of the types";
            facts.push(evidence("the collector's code", how));
        }
        _ => {}
    }
    if at_end > 0 {
        let bytes = mib(at_end as f64 * page / count as f64);
        facts.push(evidence("more by each worker at its end, not counted", bytes));
    }
    Some(Finding {
        title: format!(
            "{}'s {} private, {:.0} % of it by {}",
            process.name,
            workers_make(count, each),
            part * 100.0,
            writer.name()
        ),
        stack: stack.clone(),
        cost: Cost { child_ns: Some(cost_ns), cpu_share: context.share(cost_ns), ..Cost::default() },
        evidence: facts,
        reason: "A forked worker shares the memory of its parent until one of them writes to it: each first write copies a page.".to_owned(),
        explanation: advice(&process, *writer).to_owned(),
        // Its cost is memory more than time.
        counts_at_any_cost: true,
        ..context.finding(FindingKind::CowErosion, &process, &[creator], count, saving_each)
    })
}

fn workers_make(count: u64, each: f64) -> String {
    match count {
        1 => format!("worker makes {}", mib(each)),
        _ => format!("{count} workers make {} each", mib(each)),
    }
}

fn advice(process: &ProcessName, writer: Writer) -> &'static str {
    let family = process.exe.as_deref().and_then(Family::of_file);
    match writer {
        Writer::Collector if matches!(family, Some(Family::Python(_))) => {
            "Call gc.disable() early in the parent, gc.freeze() right before the fork, and gc.enable() in the workers"
        }
        Writer::Collector | Writer::Ruby if family == Some(Family::Ruby) => {
            "Call Process.warmup in the parent right before the fork (before Ruby 3.3: GC.start and GC.compact)"
        }
        Writer::Collector | Writer::Ruby => {
            "Collect garbage in the parent right before the fork, and keep old objects out of later collections"
        }
        Writer::Counts => {
            "Keep large data out of objects that have reference counts: bytes, array, numpy, or a file in a memory map"
        }
        Writer::CountsOrProgram => {
            "If the workers only read their data, keep it out of objects that have reference counts: bytes, array, numpy, or a file in a memory map. If they write to it, keep it apart from data that they only read, or fill it after the fork"
        }
        Writer::CollectorCountsOrProgram => {
            "Call gc.freeze() right before the fork, which helps if the collector writes: that is not known here. If it does not help and the workers only read their data, keep the data out of objects that have reference counts: bytes, array, numpy, or a file in a memory map. If they write to it, keep it apart from data that they only read, or fill it after the fork"
        }
        Writer::Allocator => {
            "Give free memory back in the parent right before the fork (malloc_trim(0)), so that workers do not fill the gaps of shared pages"
        }
        Writer::Program | Writer::Unknown => {
            "Keep data that workers write to apart from data that they only read, or fill it after the fork"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |&(function, module): &(&str, &str)| Frame {
            function: Some(function.to_owned()),
            module: module.to_owned(),
            ..Frame::default()
        };
        frames.iter().map(frame).collect()
    }

    #[test]
    fn who_writes_is_told_by_the_stack() {
        let python = "/usr/lib/libpython3.11.so.1.0";
        let collects = stack(&[("subtype_traverse", python), ("gc_collect_main", python)]);
        assert_eq!(Writer::of(&collects), Writer::Collector);
        let reads = stack(&[("Py_INCREF", python), ("_PyEval_EvalFrameDefault", python)]);
        assert_eq!(Writer::of(&reads), Writer::Counts);
        assert_eq!(Writer::of(&stack(&[("_int_free", "/lib/libc.so.6"), ("main", "/a")])), Writer::Allocator);
        assert_eq!(Writer::of(&stack(&[("memcpy", "/lib/libc.so.6"), ("main", "/a")])), Writer::Program);
        assert_eq!(Writer::of(&[]), Writer::Unknown);
        let unnamed = |count| {
            let mut frames = stack(&[("", "/usr/lib/libruby-3.1.so.3.1"); 5][..count]);
            frames.iter_mut().for_each(|frame| frame.function = None);
            frames.extend(stack(&[("rb_vm_exec", "/usr/lib/libruby-3.1.so.3.1")]));
            Writer::of(&frames)
        };
        assert_eq!([unnamed(5), unnamed(1)], [Writer::Ruby, Writer::Program]);
    }

    /// Regression: workers that write to one bytearray were told to use bytes in place of objects.
    #[test]
    fn writes_of_the_program_are_no_counts() {
        let of = |function, line| {
            let mut frames = stack(&[(function, "/usr/lib/libpython3.11.so.1.0")]);
            frames[0].line = line;
            frames
        };
        for function in ["bytearray_ass_subscript", "pack_single", "PyList_SET_ITEM", "list_ass_item"] {
            assert_eq!(Writer::of(&of(function, None)), Writer::Program, "{function}");
        }
        let read = of("Py_INCREF", Some(502));
        assert_eq!(Writer::of(&read), Writer::Counts);
        assert_eq!(Writer::of(&of("_PyEval_EvalFrameDefault", Some(2))), Writer::Program, "inlined: known");
        assert_eq!(Writer::of(&of("_PyEval_EvalFrameDefault", None)), Writer::CountsOrProgram);
    }

    /// Regression: Debian's Python has no names of its collector. Workers that did nothing but
    /// collect were told to keep their data out of objects.
    #[test]
    fn a_collector_without_names_is_known_by_its_code_or_named_as_possible() {
        let python = "/usr/bin/python3.11";
        let of = |collects| {
            let calls = [("", python), ("PyObject_Vectorcall", python), ("_PyEval_EvalFrameDefault", python)];
            let mut frames = stack(&[&calls[..], &[("", python)]].concat());
            (frames[0].function, frames[0].collects) = (None, collects);
            // Code that runs the bytecode.
            (frames[3].function, frames[3].collects) = (None, Collects::Unknown);
            Writer::of(&frames)
        };
        assert_eq!(of(Collects::Yes), Writer::Collector);
        assert_eq!(of(Collects::No), Writer::CountsOrProgram);
        assert_eq!(of(Collects::Unknown), Writer::CollectorCountsOrProgram);
        let said = advice(&ProcessName::default(), Writer::CollectorCountsOrProgram);
        assert!(
            said.contains("gc.freeze()") && said.contains("not known") && said.contains("numpy"),
            "{said}"
        );
        let named = stack(&[("_PyEval_EvalFrameDefault", python)]);
        assert_eq!(Writer::of(&named), Writer::CountsOrProgram, "the bytecode itself");
    }

    #[test]
    fn one_worker_is_not_told_as_several() {
        let each = f64::from(9 << 20);
        assert_eq!(workers_make(1, each), "worker makes 9.0 MiB");
        assert_eq!(workers_make(3, each), "3 workers make 9.0 MiB each");
    }

    #[test]
    fn the_line_that_helps_is_the_languages() {
        let of = |exe: &str| ProcessName { exe: Some(exe.to_owned()), ..ProcessName::default() };
        assert!(advice(&of("/usr/bin/python3.11"), Writer::Collector).contains("gc.freeze()"));
        assert!(advice(&of("/usr/bin/ruby3.1"), Writer::Collector).contains("Process.warmup"));
        assert!(advice(&of("/usr/bin/ruby3.1"), Writer::Ruby).contains("Process.warmup"));
        assert!(!advice(&of("/srv/app"), Writer::Collector).contains("gc."));
    }
}
