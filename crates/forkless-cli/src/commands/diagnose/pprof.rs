//! `--pprof`: a profile that `pprof`, speedscope and profile stores read: gzipped `profile.proto`
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! prost encodes it from these structures, without a compiler of .proto files. They have the fields
//! that are used here, with their numbers.

use std::collections::HashMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use forkless_diagnose::{DiagnosisReport, Frame};
use prost::Message;

use super::origins::{self, leaf, microseconds, program};
use super::text;
use crate::terminal;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    /// Otherwise pprof would look for symbols by addresses, which are not in here.
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    // Without a system name (3) pprof takes the name as it is: `<module>` would be demangled to
    // nothing.
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The ids of what a profile has. An id is the number in its table plus one.
#[derive(Default)]
struct Tables {
    strings: HashMap<String, i64>,
    mappings: HashMap<(String, String), u64>,
    functions: HashMap<(String, String), u64>,
    locations: HashMap<(u64, u64, i64), u64>,
    profile: Profile,
}

impl Tables {
    /// The first string is the empty one, as the format asks. pprof heads its tables with the first
    /// mapping.
    fn new() -> Self {
        let mut tables = Self::default();
        tables.string("");
        tables.mapping("forkless diagnose", "");
        tables
    }

    fn string(&mut self, text: &str) -> i64 {
        // The viewer may be a terminal.
        let text = terminal::plain(&terminal::in_line(text));
        if let Some(known) = self.strings.get(&text) {
            return *known;
        }
        let id = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.clone());
        self.strings.insert(text, id);
        id
    }

    fn mapping(&mut self, file: &str, build_id: &str) -> u64 {
        let key = (file.to_owned(), build_id.to_owned());
        if let Some(known) = self.mappings.get(&key) {
            return *known;
        }
        let id = self.profile.mapping.len() as u64 + 1;
        let (filename, build_id) = (self.string(file), self.string(build_id));
        self.profile.mapping.push(Mapping { id, filename, build_id, has_functions: true });
        self.mappings.insert(key, id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name, filename) = (self.string(name), self.string(file));
        self.profile.function.push(Function { id, name, filename });
        self.functions.insert(key, id);
        id
    }

    /// A location with one line. 0 is no mapping.
    fn location(&mut self, mapping_id: u64, function_id: u64, line: i64) -> u64 {
        let next = self.profile.location.len() as u64 + 1;
        let id = *self.locations.entry((mapping_id, function_id, line)).or_insert(next);
        if id == next {
            let line = vec![Line { function_id, line }];
            self.profile.location.push(Location { id, mapping_id, line });
        }
        id
    }

    fn frame(&mut self, frame: &Frame) -> u64 {
        let line = frame.line.map_or(0, i64::from);
        let is_script = frame.line.is_some() && frame.file.is_none();
        let mapping = if is_script || frame.module.is_empty() {
            0
        } else {
            self.mapping(&frame.module, frame.build_id.as_deref().unwrap_or_default())
        };
        let file = frame.file.as_ref().unwrap_or(&frame.module);
        let name = frame.function.clone().unwrap_or_else(|| origins::name(frame));
        let function = self.function(&name, file);
        self.location(mapping, function, line)
    }

    /// What is no frame of code: a program's name, what was started.
    fn name(&mut self, name: &str) -> u64 {
        let function = self.function(name, "");
        self.location(0, function, 0)
    }
}

fn profile(report: &DiagnosisReport) -> Profile {
    let mut tables = Tables::new();
    for (name, unit) in [("creations", "count"), ("cost", "microseconds")] {
        let value = ValueType { r#type: tables.string(name), unit: tables.string(unit) };
        tables.profile.sample_type.push(value);
    }
    tables.profile.default_sample_type = tables.string("cost");
    let comment = tables.string(&text::counts(report));
    tables.profile.comment.push(comment);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    tables.profile.time_nanos =
        i64::try_from(since_epoch.saturating_sub(u128::from(report.window_ns))).unwrap_or(0);
    tables.profile.duration_nanos = i64::try_from(report.window_ns).unwrap_or(i64::MAX);
    for origin in &report.origins {
        let mut location_id = vec![tables.name(&leaf(origin))];
        location_id.extend(origin.frames.iter().map(|frame| tables.frame(frame)));
        location_id.push(tables.name(program(origin)));
        let value = [origin.count, microseconds(origin)];
        let value = value.iter().map(|&value| i64::try_from(value).unwrap_or(i64::MAX)).collect();
        tables.profile.sample.push(Sample { location_id, value });
    }
    tables.profile
}

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport) -> anyhow::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&profile(report).encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}
