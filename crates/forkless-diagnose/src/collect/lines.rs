//! The user's lines behind creations: what an interpreter's own stack says, read from outside.
//!
//! A thread of its own reads them, when the stack of a creation arrives. The first look at an
//! interpreter reads a file of up to 100 MB, and the caller runs on meanwhile. So there are two
//! ways:
//!
//! - At the first creation of a thread, the caller is read while it waits for its child. What is
//!   read counts for the child that the caller waits for, and for no other creation. The line may
//!   be that of the wait, and says so ([`Frame::waits`]).
//! - By then it is known where the thread has its frames. The kernel side copies them at each
//!   later creation, and what is read is the creation's own line, whatever the caller does next.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forkless_frames::{Language, Limits, Look, Reader, ThreadCall, own_number};

use super::origins::OriginKey;
use super::stood::Stood;
use crate::creation::{Creation, ProgramKey};
use crate::event::{CreatingThread, ThreadLook};
use crate::procfs;
use crate::refusal::{RefusalKey, RefusedCreation};
use crate::shell::Fate;
use crate::stack::Frame;

/// Stacks that wait to be read. One that waits for long is read too late.
const MAX_WAITING: usize = 32;
/// Each reading takes some 300 us of the watcher's time.
const READINGS_PER_SECOND: u32 = 100;
/// On a busy machine this thread waits for a processor meanwhile. What is too late is left out.
const LIMITS: Limits = Limits { frames: 32, bytes: 4 << 20, time: Duration::from_secs(1) };
/// Each reader holds a descriptor.
const MAX_READERS: usize = 128;
/// Threads that are looked at for the one that creates.
const MAX_THREADS: usize = 64;
/// How far the stack pointer moves from fork to the wait for the child, bytes.
const SAME_STACK: u64 = 256 << 10;
/// How often a caller that is still in its creation is looked at again, and after what time.
const LOOKS: usize = 60;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Children whose lines or whose end have not arrived yet.
const MAX_CHILDREN: usize = 1024;
/// Threads whose frames the kernel side knows where to find.
const MAX_LOOKS: usize = 1024;

/// A creation, by its thread and [`Creation::asked`].
type Asked = (u32, u64);

/// Lines that were read, with their children and callers.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    reading: Option<Reading>,
    /// Callers that may have been read.
    asked: HashSet<u32>,
    /// By child that has not ended yet, as far as is known: the lines at a wait for it, and the
    /// creation that they were read for.
    read: HashMap<u32, (Asked, Read)>,
    /// By child that has ended and whose lines may still come.
    ended: HashMap<u32, Ended>,
    /// Lines as they were at a creation whose child has not ended yet.
    read_at: HashMap<Asked, Read>,
    /// The children in `ended` whose lines may come by their creation.
    child_of: HashMap<Asked, u32>,
    looks: Vec<ThreadLook>,
    /// Requests that have not been answered yet.
    unanswered: usize,
    /// By caller: readings without lines, and why the last of them had none.
    unread: HashMap<u32, Unread>,
}

/// Readings of a caller that gave no line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) language: &'static str,
    pub(crate) count: u64,
    pub(crate) why: String,
}

/// The creation that a caller is read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadingOf {
    asked: Asked,
    stands_for: u64,
}

impl ReadingOf {
    fn of(caller: &CreatingThread) -> Self {
        Self { asked: (caller.thread, caller.asked), stands_for: caller.stands_for }
    }
}

/// The lines of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// Empty if the reading has failed.
    pub(super) frames: Vec<Frame>,
    /// The language's library waits for the child's end in an event loop of its own.
    pub(super) in_own_loop: bool,
    /// The caller stands in a function of the language's library that runs an event loop.
    pub(super) in_event_loop: bool,
    /// The creations of its place that it stands for: only some callers are read.
    pub(super) stands_for: u64,
}

impl Read {
    fn of(frames: Vec<forkless_frames::Frame>, stands_for: u64) -> Self {
        let in_own_loop = frames.iter().any(|frame| waits_in_own_loop(&frame.function, &frame.file));
        let in_event_loop = frames.iter().any(|frame| runs_event_loop(&frame.function, &frame.file));
        Self { frames: of_the_user(frames), in_own_loop, in_event_loop, stands_for }
    }

    /// What is known of a reading that has failed.
    fn failed(stands_for: u64) -> Self {
        Self { stands_for, ..Self::default() }
    }

    /// The same, of which only the wait is known.
    fn of_wait(mut self) -> Self {
        if let Some(first) = self.frames.first_mut() {
            first.waits = true;
        }
        self
    }
}

/// A creation that has ended: what its lines are wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) origin: OriginKey,
    /// The group of the shell that it executed.
    pub(super) shell: Option<(ProgramKey, Fate)>,
    /// The thread that created.
    pub(super) thread: u32,
    pub(super) asked: Asked,
    pub(super) stood: Stood,
}

/// The lines of a caller with what they belong to.
type Placed = (Whose, Read);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    Creation(Ended),
    /// A creation that was refused.
    Refusal(RefusalKey),
}

impl Lines {
    /// Has the lines of a creation read, at once. Never waits.
    pub(super) fn look(&mut self, caller: CreatingThread) {
        if let Some(reading) = self.reading() {
            let (pid, reading_of) = (caller.pid, ReadingOf::of(&caller));
            let has_room = reading.ask(Request::Creation(caller));
            self.unanswered += usize::from(has_room);
            if !has_room {
                self.failed(&reading_of);
            }
            if self.asked.len() >= MAX_CHILDREN {
                self.asked.clear();
            }
            self.asked.insert(pid);
        }
    }

    /// Has it found where a process's threads have their frames, before their first creation. Never
    /// waits.
    pub(super) fn prepare(&mut self, pid: u32) {
        if let Some(reading) = self.reading() {
            let has_room = reading.ask(Request::Looks { pid });
            self.unanswered += usize::from(has_room);
        }
    }

    /// How soon answers are to be taken in again, at the latest: the sooner the kernel side knows
    /// where a thread has its frames, the fewer of its creations are read by their wait.
    pub(super) fn look_again(&self) -> Option<Duration> {
        const SOON: Duration = Duration::from_millis(5);
        (self.unanswered > 0).then_some(SOON)
    }

    /// What was found since the last call: places where threads have their frames.
    pub(super) fn take_looks(&mut self) -> Vec<ThreadLook> {
        std::mem::take(&mut self.looks)
    }

    /// Has the lines of a refused creation read, at once. Never waits.
    pub(super) fn look_at_refused(&mut self, refused: &RefusedCreation) {
        // No interpreter tries again otherwise.
        if refused.key.errno == libc::EAGAIN
            && !refused.key.is_thread
            && let Some(reading) = self.reading()
        {
            let has_room = reading.ask(Request::Refusal { key: refused.key, thread: refused.thread });
            self.unanswered += usize::from(has_room);
        }
    }

    fn reading(&mut self) -> Option<&Reading> {
        if self.reading.is_none() {
            self.reading = Reading::start();
        }
        self.reading.as_ref()
    }

    /// Takes in a creation that has ended, with the group of its shell. Returns the lines that have
    /// found their creation.
    pub(super) fn ended(&mut self, creation: &Creation, shell: Option<(ProgramKey, Fate)>) -> Vec<Placed> {
        let asked = (creation.caller_thread, creation.asked);
        let ended = || Ended {
            origin: OriginKey::of(creation),
            shell,
            thread: creation.caller_thread,
            asked,
            stood: Stood::of(creation),
        };
        let mut placed = self.take_answers();
        // What was read for another creation has its weight.
        let by_wait = self.read.remove(&creation.child).filter(|(of, _)| of.1 == 0 || *of == asked);
        let read_at = self.read_at.remove(&asked);
        if let Some(read) = by_wait.map(|(_, read)| read).or(read_at) {
            placed.push((Whose::Creation(ended()), read));
        } else if self.asked.contains(&creation.caller) {
            make_room(&mut self.ended);
            self.ended.insert(creation.child, ended());
            if creation.asked != 0 {
                make_room(&mut self.child_of);
                self.child_of.insert(asked, creation.child);
            }
        }
        placed
    }

    /// The lines that have found what they belong to meanwhile. Never waits.
    pub(super) fn take_answers(&mut self) -> Vec<Placed> {
        let mut placed = Vec::new();
        while let Some(answer) = self.reading.as_ref().and_then(|reading| reading.answers.try_recv().ok()) {
            match answer {
                Answer::Read { child, of, read } => placed.extend(self.read_by_wait(child, &of, read)),
                Answer::ReadAt { asked, read } => placed.extend(self.read_at(asked, read)),
                Answer::Failed(of) => placed.extend(self.failed(&of)),
                Answer::Look(look) => self.looks.push(look),
                Answer::Done => self.unanswered = self.unanswered.saturating_sub(1),
                Answer::Refused { key, read } => placed.push((Whose::Refusal(key), read)),
                Answer::Unread { caller, language, why } => {
                    make_room(&mut self.unread);
                    let count = self.unread.get(&caller).map_or(0, |unread| unread.count) + 1;
                    self.unread.insert(caller, Unread { language: language.name(), count, why });
                }
            }
        }
        placed
    }

    /// A reading of the wait for a child. The caller may have gone on to the wait for a later child
    /// than that of the creation which it was read for: that reading has failed.
    fn read_by_wait(&mut self, child: u32, of: &ReadingOf, read: Read) -> Option<Placed> {
        if self.child_of.get(&of.asked).is_some_and(|made| *made != child) {
            return self.failed(of);
        }
        self.child_of.remove(&of.asked);
        if let Some(ended) = self.ended.get(&child)
            && (of.asked.1 == 0 || ended.asked == of.asked)
        {
            return self.ended.remove(&child).map(|ended| (Whose::Creation(ended), read));
        }
        make_room(&mut self.read);
        self.read.insert(child, (of.asked, read));
        self.failed(of)
    }

    /// A reading at a creation, if this has ended.
    fn read_at(&mut self, asked: Asked, read: Read) -> Option<Placed> {
        let ended = self.child_of.remove(&asked).and_then(|child| self.ended.remove(&child));
        if ended.is_none() {
            make_room(&mut self.read_at);
            self.read_at.insert(asked, read.clone());
        }
        ended.map(|ended| (Whose::Creation(ended), read))
    }

    /// A reading that has failed. Its creations are those of no line: left out, they would count as
    /// those of the lines that were read.
    fn failed(&mut self, of: &ReadingOf) -> Option<Placed> {
        // perf events do not tell the creation.
        if of.asked.1 == 0 {
            return None;
        }
        self.read_at(of.asked, Read::failed(of.stands_for))
    }

    /// The readings of a caller that gave no line.
    pub(crate) fn unread(&self, caller: u32) -> Option<&Unread> {
        self.unread.get(&caller)
    }
}

fn make_room<K, T>(children: &mut HashMap<K, T>) {
    if children.len() >= MAX_CHILDREN {
        children.clear();
    }
}

/// Whose lines are to be read.
#[derive(Debug, Clone)]
enum Request {
    Creation(CreatingThread),
    Refusal {
        key: RefusalKey,
        thread: u32,
    },
    /// Of no creation: where the threads of a process have their frames.
    Looks {
        pid: u32,
    },
}

/// The thread that reads.
#[derive(Debug)]
struct Reading {
    to_read: Option<SyncSender<Request>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

enum Answer {
    Read {
        child: u32,
        of: ReadingOf,
        read: Read,
    },
    ReadAt {
        asked: Asked,
        read: Read,
    },
    /// The caller of a creation could not be read.
    Failed(ReadingOf),
    Look(ThreadLook),
    /// All answers to a request were sent.
    Done,
    Refused {
        key: RefusalKey,
        read: Read,
    },
    Unread {
        caller: u32,
        language: Language,
        why: String,
    },
}

impl Reading {
    fn start() -> Option<Self> {
        let (to_read, requests) = mpsc::sync_channel::<Request>(MAX_WAITING);
        let (answer, answers) = mpsc::channel();
        let thread = thread::Builder::new().name("lines".to_owned()).spawn(move || {
            read_all(&requests, &answer);
        });
        Some(Self { to_read: Some(to_read), answers, thread: Some(thread.ok()?) })
    }

    /// Returns whether the queue had room. Otherwise the next creation is read instead.
    fn ask(&self, request: Request) -> bool {
        self.to_read.as_ref().is_some_and(|to_read| to_read.try_send(request).is_ok())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.to_read = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn read_all(requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let mut readers = Readers::default();
    for request in requests {
        // Who does not listen any more drops the requests, too.
        readers.read(request, answers);
        let _ = answers.send(Answer::Done);
    }
}

/// A process and the program in it: an exec replaces the program.
type Program = (u32, u64, u64, u64);

/// A program that was looked at.
struct Known {
    /// `None` for one without an interpreter.
    reader: Option<Reader>,
    looked: Instant,
}

/// A reader for each program that was seen.
#[derive(Default)]
struct Readers {
    known: HashMap<Program, Known>,
    /// By program and thread.
    looks: HashMap<(Program, u32), Option<Look>>,
    budget: Budget,
}

/// The readings of the present second.
#[derive(Default)]
struct Budget {
    second: Option<Instant>,
    readings: u32,
}

impl Readers {
    fn read(&mut self, request: Request, answers: &Sender<Answer>) {
        let pid = match &request {
            Request::Creation(caller) => caller.pid,
            Request::Refusal { key, .. } => key.place.pid,
            Request::Looks { pid } => *pid,
        };
        let failed = match &request {
            Request::Creation(caller) => Some(Answer::Failed(ReadingOf::of(caller))),
            Request::Refusal { .. } | Request::Looks { .. } => None,
        };
        let answer = |answer| drop(answers.send(answer));
        let Some(program) = program(pid) else {
            return failed.into_iter().for_each(answer);
        };
        let Some(reader) = reader_of(&mut self.known, program) else { return };
        // Programs without an interpreter are asked for as well, and have no part in it.
        if !self.budget.has_room() {
            return;
        }
        let read = match request {
            Request::Creation(caller) => {
                let key = (program, caller.thread);
                if let Some(read) = read_copied(reader, self.looks.get(&key).copied().flatten(), &caller) {
                    return answer(Answer::ReadAt { asked: (caller.thread, caller.asked), read });
                }
                // First of all: the thread's next creation may be near, and a caller that does not
                // wait is looked at for long.
                let look = find_look(&mut self.looks, reader, key, Some(caller.stack_pointer));
                look.map(Answer::Look).into_iter().for_each(answer);
                read(reader, &caller).map(|(child, read)| Answer::Read {
                    child,
                    of: ReadingOf::of(&caller),
                    read,
                })
            }
            Request::Refusal { key, thread } => read_while_it_waits(reader, pid, thread)
                .map(|frames| Answer::Refused { key, read: Read::of(frames, 1) }),
            Request::Looks { .. } => {
                let find = |tid| find_look(&mut self.looks, reader, (program, tid), None);
                return threads(pid).filter_map(find).map(Answer::Look).for_each(answer);
            }
        };
        answer(read.unwrap_or_else(|why| {
            failed.into_iter().for_each(answer);
            Answer::Unread { caller: pid, language: reader.language(), why }
        }));
    }
}

/// Where a thread has its frames, if that was not known before.
fn find_look(
    looks: &mut HashMap<(Program, u32), Option<Look>>,
    reader: &Reader,
    (program, thread): (Program, u32),
    stack_pointer: Option<u64>,
) -> Option<ThreadLook> {
    if thread == 0 || looks.contains_key(&(program, thread)) {
        return None;
    }
    // After an error the next creation has another try.
    let look = reader.look(thread, stack_pointer).ok()?;
    let image = procfs::arguments_at(program.0)?;
    if looks.len() >= MAX_LOOKS {
        looks.clear();
    }
    looks.insert((program, thread), look);
    Some(ThreadLook { thread, image, look: look? })
}

/// The lines at a creation, if its frames were copied.
fn read_copied(reader: &Reader, look: Option<Look>, caller: &CreatingThread) -> Option<Read> {
    let frames = reader.frames_at(caller.thread, &look?, caller.moment.as_ref()?).ok()?;
    Some(Read::of(frames, caller.stands_for))
}

fn reader_of(known: &mut HashMap<Program, Known>, program: Program) -> Option<&Reader> {
    /// A program that has just begun has not loaded its interpreter's library yet.
    const AGAIN: Duration = Duration::from_millis(500);
    if known.len() >= MAX_READERS && !known.contains_key(&program) {
        known.clear();
    }
    let look = || Known {
        reader: Reader::new(program.0).map(|reader| reader.with_limits(LIMITS)),
        looked: Instant::now(),
    };
    let known = known.entry(program).or_insert_with(look);
    if known.reader.is_none() && known.looked.elapsed() >= AGAIN {
        *known = look();
    }
    known.reader.as_ref()
}

impl Budget {
    fn has_room(&mut self) -> bool {
        if self.second.is_none_or(|second| second.elapsed() >= Duration::from_secs(1)) {
            self.second = Some(Instant::now());
            self.readings = 0;
        }
        self.readings += 1;
        self.readings <= READINGS_PER_SECOND
    }
}

const GONE_ON: &str = "the program had gone on";

/// The child that a caller waits for, and the caller's lines.
fn read(reader: &Reader, caller: &CreatingThread) -> Result<(u32, Read), String> {
    let pid = caller.pid;
    let (tid, wait) = Wait::soon(caller).ok_or(GONE_ON)?;
    let frames = reader.frames(tid).map_err(|why| why.to_string())?;
    let within = reader.within(tid);
    // Looked at last: what was read before is from this wait.
    if !wait.is_for_its_child(&frames) || Wait::now(pid, tid).is_none_or(|now| now != wait) {
        return Err(GONE_ON.to_owned());
    }
    let creates = is_of_creation(reader.language(), &frames, within.as_deref());
    let read = Read::of(frames, caller.stands_for);
    Ok((wait.child, if creates { read } else { read.of_wait() }))
}

/// Whether a thread that waits is still in the call that has created what it waits for.
fn is_of_creation(language: Language, frames: &[forkless_frames::Frame], within: Option<&str>) -> bool {
    /// Of Python's subprocess; its other functions wait for a program that was started before.
    const OF_SUBPROCESS: &[&str] = &[
        "__init__",
        "_execute_child",
        "run",
        "call",
        "check_call",
        "check_output",
        "getoutput",
        "getstatusoutput",
    ];
    /// PHP's functions, and Perl's operations.
    const OWN: &[&str] =
        &["exec", "shell_exec", "system", "passthru", "proc_open", "popen", "mail", "backtick", "open"];
    match language {
        // A command's line is that of its wait, too.
        Language::Bash | Language::Dash => true,
        // Its other functions do not wait.
        Language::JavaScript => true,
        Language::Python => frames
            .iter()
            .take_while(|frame| is_library(&frame.file))
            .any(|frame| starts_children(&frame.file) && OF_SUBPROCESS.contains(&name_of(frame))),
        _ => within.is_some_and(|within| OWN.contains(&within)),
    }
}

fn name_of(frame: &forkless_frames::Frame) -> &str {
    frame.function.rsplit('.').next().unwrap_or_default()
}

/// The frames of a thread whose creation was refused, while its interpreter waits to try again.
/// Other interpreters return to their program at once.
fn read_while_it_waits(
    reader: &Reader,
    pid: u32,
    thread: u32,
) -> Result<Vec<forkless_frames::Frame>, String> {
    let sleeps = |call: &ThreadCall| match reader.language() {
        // make_child() of bash; pp_system() and my_popen() of Perl.
        Language::Bash | Language::Perl => call.number == libc::SYS_clock_nanosleep,
        // handle_fork_error() of Ruby.
        Language::Ruby => [libc::SYS_ppoll, libc::SYS_futex].contains(&call.number),
        _ => false,
    };
    let sleep = || call_of(pid, thread).filter(sleeps);
    let before = (0..LOOKS).take_while(|_| procfs::runs(pid)).find_map(|look| {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        sleep()
    });
    let before = before.ok_or(GONE_ON)?;
    let frames = reader.frames(thread).map_err(|why| why.to_string())?;
    // Looked at last: what was read before is from this sleep.
    if sleep() == Some(before) { Ok(frames) } else { Err(GONE_ON.to_owned()) }
}

fn program(pid: u32) -> Option<Program> {
    let executable = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((pid, procfs::start_ticks(pid)?, executable.dev(), executable.ino()))
}

/// The first threads of a process.
fn threads(pid: u32) -> impl Iterator<Item = u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().take(MAX_THREADS);
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
}

/// The thread whose stack the creation was on.
fn thread_of(pid: u32, stack_pointer: u64) -> Option<u32> {
    let distances = threads(pid).filter_map(|tid| {
        let pointer = call_of(pid, tid)?.stack_pointer;
        Some((pointer.abs_diff(stack_pointer), tid))
    });
    let (distance, tid) = distances.min()?;
    (distance < SAME_STACK).then_some(tid)
}

/// The system call that a thread is in.
fn call_of(pid: u32, tid: u32) -> Option<ThreadCall> {
    ThreadCall::of(pid, tid).ok()?.filter(|call| call.number >= 0)
}

/// A thread that is in a system call, and its youngest child.
#[derive(Debug, PartialEq, Eq)]
struct Wait {
    call: ThreadCall,
    child: u32,
}

impl Wait {
    /// The thread that has created, when it waits. While it runs, in fork itself, the kernel says
    /// nothing about it, and its child is not known.
    fn soon(caller: &CreatingThread) -> Option<(u32, Self)> {
        let pid = caller.pid;
        (0..LOOKS).take_while(|_| procfs::runs(pid)).find_map(|look| {
            if look > 0 {
                thread::sleep(BETWEEN_LOOKS);
            }
            // Under the preloaded library a fork is on another stack than the wait.
            let told = Some(caller.thread).filter(|thread| *thread != 0);
            let tid = told.or_else(|| thread_of(pid, caller.stack_pointer))?;
            Some((tid, Self::now(pid, tid)?))
        })
    }

    fn now(pid: u32, tid: u32) -> Option<Self> {
        let call = call_of(pid, tid).filter(|call| !creates(call.number))?;
        // In the order of their creation.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok()?;
        Some(Self { call, child: children.split_whitespace().next_back()?.parse().ok()? })
    }

    /// Whether the thread waits for the child. Elsewhere its lines are those of what came after.
    fn is_for_its_child(&self, frames: &[forkless_frames::Frame]) -> bool {
        let [first, second] = self.call.arguments;
        // As the caller counts, in its container.
        let is_child = |number: u64| own_number(self.child).is_some_and(|own| u64::from(own) == number);
        match self.call.number {
            libc::SYS_wait4 => first as i32 <= 0 || is_child(first),
            libc::SYS_waitid => first != u64::from(libc::P_PID) || is_child(second),
            // It reads what its child prints, or polls for that. A server polls for anything, so
            // the frames must say that a child is waited for.
            number => frames.first().is_some_and(|frame| match frame.language {
                Language::Python | Language::JavaScript => {
                    frames.iter().any(|frame| starts_children(&frame.file))
                }
                // Up to 3.2 a thread of its own waits for children, and the caller for that.
                Language::Ruby => [libc::SYS_read, libc::SYS_ppoll, libc::SYS_futex].contains(&number),
                _ => number == libc::SYS_read,
            }),
        }
    }
}

/// Whether a system call, by its number, creates a process.
fn creates(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    const CREATE: &[i64] = &[libc::SYS_clone, libc::SYS_clone3, libc::SYS_fork, libc::SYS_vfork];
    #[cfg(not(target_arch = "x86_64"))]
    const CREATE: &[i64] = &[libc::SYS_clone, libc::SYS_clone3];
    CREATE.contains(&number)
}

/// Whether a file is the part of a standard library that starts programs and waits for them.
fn starts_children(file: &str) -> bool {
    file.ends_with("/subprocess.py") || file.starts_with("node:") && file.ends_with("child_process")
}

/// Whether a function is one of Node.js's that wait for a child's end: execFileSync and its kin.
/// Their event loop is their own. The kernel side sees such a wait as one for any event.
fn waits_in_own_loop(function: &str, file: &str) -> bool {
    file.starts_with("node:") && starts_children(file) && function.ends_with("Sync")
}

/// Whether a function is asyncio's that waits for events and runs what they call. A loop that
/// always has something to run is never seen to wait.
fn runs_event_loop(function: &str, file: &str) -> bool {
    file.ends_with("/asyncio/base_events.py") && function.ends_with("_run_once")
}

/// Without the inner frames of the language's own library.
fn of_the_user(frames: Vec<forkless_frames::Frame>) -> Vec<Frame> {
    let user = frames.iter().position(|frame| !is_library(&frame.file)).unwrap_or(0);
    frames.into_iter().skip(user).map(Frame::from).collect()
}

fn is_library(file: &str) -> bool {
    let inside = ["/lib/python3", "/lib/ruby/", "/ruby/vendor_ruby/", "/perl5/", "/share/perl/", "/php/"];
    // Modules in Python's binary (`<frozen runpy>`), Ruby's methods in Ruby (`<internal:kernel>`).
    // Other names in such brackets are the user's code: `<string>` of python3 -c, `<stdin>`.
    let built_in = ["node:", "<frozen ", "<internal:"];
    built_in.iter().any(|begin| file.starts_with(begin)) || inside.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str) -> forkless_frames::Frame {
        let (function, file) = (function.to_owned(), file.to_owned());
        forkless_frames::Frame { function, file, line: Some(7), language: Language::Python }
    }

    #[test]
    fn the_languages_own_library_is_not_the_users_line() {
        let frames = vec![
            frame("_execute_child", "/usr/lib/python3.11/subprocess.py"),
            frame("run", "/usr/lib/python3.11/subprocess.py"),
            frame("start", "/srv/app.py"),
            frame("run", "/usr/lib/python3.11/threading.py"),
        ];
        let as_they_are = |frames: &[forkless_frames::Frame]| -> Vec<Frame> {
            frames.iter().cloned().map(Frame::from).collect()
        };
        assert_eq!(of_the_user(frames.clone()), as_they_are(&frames[2..]));
        assert_eq!(of_the_user(frames[..2].to_vec()), as_they_are(&frames[..2]));
    }

    /// Regression: `python3 -c` that used subprocess was told `Popen._execute_child`.
    #[test]
    fn code_of_a_command_line_or_of_standard_input_is_the_users() {
        for user in ["<string>", "<stdin>", "<ipython-input-1-2a>", "-e", "[eval]"] {
            let frames = vec![
                frame("_execute_child", "/usr/lib/python3.11/subprocess.py"),
                frame("job", user),
                frame("_run_code", "<frozen runpy>"),
            ];
            assert_eq!(of_the_user(frames)[0].module, user);
        }
        assert!(is_library("<frozen runpy>") && is_library("<internal:kernel>"));
    }

    #[test]
    fn a_wait_in_a_loop_of_the_librarys_own_is_told_by_its_frames() {
        let node = |function| vec![frame(function, "node:child_process"), frame("start", "/srv/app.js")];
        let of = |frames| Read::of(frames, 1);
        let read = of(node("execFileSync"));
        assert!(read.in_own_loop);
        assert_eq!(read.frames, [Frame::from(frame("start", "/srv/app.js"))]);
        assert!(!of(node("execFile")).in_own_loop);
        assert!(!of(vec![frame("startSync", "/srv/child_process.js")]).in_own_loop, "the user's");
    }

    /// A server of asyncio whose clients leave no pause waits in epoll for no time at all, and its
    /// blocked loop was not found.
    #[test]
    fn an_event_loop_is_told_by_its_frames() {
        let read = |function, file| {
            let frames = vec![frame("handle", "/srv/app.py"), frame(function, file)];
            Read::of(frames, 1).in_event_loop
        };
        assert!(read("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py"));
        assert!(read("_run_once", "/usr/lib/python3.11/asyncio/base_events.py"));
        assert!(!read("_run_once", "/srv/base_events.py"), "the user's");
        assert!(!read("run", "/usr/lib/python3.11/asyncio/runners.py"));
    }

    #[test]
    fn a_wait_for_an_older_child_is_another_creations() {
        let call = |number, first| ThreadCall { number, arguments: [first, 0], stack_pointer: 0 };
        let own = std::process::id();
        let waits = |call| Wait { call, child: own }.is_for_its_child(&[frame("start", "/srv/app.py")]);
        assert!(waits(call(libc::SYS_wait4, u64::from(u32::MAX))));
        assert!(waits(call(libc::SYS_wait4, u64::from(own_number(own).expect("we are there")))));
        assert!(!waits(call(libc::SYS_wait4, 1)));
        assert!(!waits(call(libc::SYS_read, 1)), "Python reads anything");
        let in_subprocess = [frame("wait", "/usr/lib/python3.11/subprocess.py")];
        let wait = Wait { call: call(libc::SYS_read, 1), child: own };
        assert!(wait.is_for_its_child(&in_subprocess));
    }

    /// The child may end before its caller's lines are read, or after.
    #[test]
    fn lines_find_their_creation_whichever_comes_first() {
        let (to_answer, answers) = mpsc::channel();
        let reading = Some(Reading { to_read: None, answers, thread: None });
        let asked = HashSet::from([Creation::unseen().caller]);
        let mut lines = Lines { reading, asked, ..Lines::default() };
        let creation = |child| Creation { child, ..Creation::unseen() };
        let read = |child| {
            let of = ReadingOf { asked: (0, 0), stands_for: 1 };
            Answer::Read { child, of, read: Read::of(vec![frame("start", "/srv/app.py")], 1) }
        };
        assert!(lines.ended(&creation(1), None).is_empty());
        to_answer.send(read(1)).expect("it listens");
        to_answer.send(read(2)).expect("it listens");
        let unread = || Answer::Unread { caller: 9, language: Language::Ruby, why: "why".to_owned() };
        to_answer.send(unread()).expect("it listens");
        to_answer.send(unread()).expect("it listens");
        assert_eq!(lines.ended(&creation(3), None).len(), 1, "of child 1");
        assert_eq!(lines.ended(&creation(2), None).len(), 1);
        assert!(lines.ended(&creation(2), None).is_empty());
        assert_eq!(lines.unread(9), Some(&Unread { language: "Ruby", count: 2, why: "why".to_owned() }));
    }

    /// Half of the forks came from threads that ended at once, and all were said to be the others'.
    #[test]
    fn a_reading_that_failed_finds_its_creation_too() {
        let (to_answer, answers) = mpsc::channel();
        let reading = Some(Reading { to_read: None, answers, thread: None });
        let asked = HashSet::from([Creation::unseen().caller]);
        let mut lines = Lines { reading, asked, ..Lines::default() };
        let creation = |child| Creation { child, asked: u64::from(child), ..Creation::unseen() };
        let of =
            |child: u32| ReadingOf { asked: (creation(child).caller_thread, child.into()), stands_for: 4 };
        let failed = |placed: Vec<Placed>| match placed.as_slice() {
            [(Whose::Creation(_), read)] => read.frames.is_empty() && read.stands_for == 4,
            _ => panic!("{placed:?}"),
        };
        assert!(lines.ended(&creation(1), None).is_empty());
        to_answer.send(Answer::Failed(of(1))).expect("it listens");
        assert!(failed(lines.take_answers()), "after the end");
        to_answer.send(Answer::Failed(of(2))).expect("it listens");
        assert!(failed(lines.ended(&creation(2), None)), "before the end");
        // The thread that reads is not asked for what has no room.
        let caller = CreatingThread {
            pid: creation(3).caller,
            thread: creation(3).caller_thread,
            stack_pointer: 0,
            asked: 3,
            moment: None,
            stands_for: 4,
        };
        lines.look(caller);
        assert!(failed(lines.ended(&creation(3), None)), "no room");
        // The caller had gone on: each reading counts for its own creation alone, or for none.
        let read = |of, child| {
            let read = Read::of(vec![frame("start", "/srv/app.py")], 4);
            Answer::Read { child, of, read }
        };
        assert!(lines.ended(&creation(5), None).is_empty());
        to_answer.send(read(of(5), 7)).expect("it listens");
        assert!(failed(lines.take_answers()), "its creation has ended");
        to_answer.send(read(of(6), 7)).expect("it listens");
        assert!(lines.take_answers().is_empty());
        assert!(failed(lines.ended(&creation(6), None)), "its creation has not ended");
        to_answer.send(read(of(7), 7)).expect("it listens");
        assert!(!lines.ended(&creation(7), None)[0].1.frames.is_empty());
    }
}
