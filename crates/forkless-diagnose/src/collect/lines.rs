//! The user's lines behind creations: what an interpreter's own stack says, read from outside.
//!
//! A thread of its own reads them, when the stack of a creation arrives. The caller stands still
//! only while it waits for its child, and the first look at an interpreter reads a file of up to
//! 100 MB. What is read counts for the child that the caller waits for, and for no other creation.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forkless_frames::{Language, Limits, Reader, ThreadCall, own_number};

use super::origins::OriginKey;
use super::stood::Stood;
use crate::creation::{Creation, ProgramKey};
use crate::event::CreatingThread;
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

/// Lines that were read, with their children and callers.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    reading: Option<Reading>,
    /// Callers that may have been read.
    asked: HashSet<u32>,
    /// By child that has not ended yet, as far as is known.
    read: HashMap<u32, Read>,
    /// By child that has ended and whose lines may still come.
    ended: HashMap<u32, Ended>,
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

/// The lines of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) frames: Vec<Frame>,
    /// The language's library waits for the child's end in an event loop of its own.
    pub(super) in_own_loop: bool,
    /// The creations of its place that it stands for: only some callers are read.
    pub(super) stands_for: u64,
}

impl Read {
    fn of(frames: Vec<forkless_frames::Frame>, stands_for: u64) -> Self {
        let in_own_loop = frames.iter().any(|frame| waits_in_own_loop(&frame.function, &frame.file));
        Self { frames: of_the_user(frames), in_own_loop, stands_for }
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
            reading.ask(Request::Creation(caller));
            if self.asked.len() >= MAX_CHILDREN {
                self.asked.clear();
            }
            self.asked.insert(caller.pid);
        }
    }

    /// Has the lines of a refused creation read, at once. Never waits.
    pub(super) fn look_at_refused(&mut self, refused: &RefusedCreation) {
        // No interpreter tries again otherwise.
        if refused.key.errno == libc::EAGAIN
            && !refused.key.is_thread
            && let Some(reading) = self.reading()
        {
            reading.ask(Request::Refusal { key: refused.key, thread: refused.thread });
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
        let ended = || Ended {
            origin: OriginKey::of(creation),
            shell,
            thread: creation.caller_thread,
            stood: Stood::of(creation),
        };
        let mut placed = self.take_answers();
        if let Some(read) = self.read.remove(&creation.child) {
            placed.push((Whose::Creation(ended()), read));
        } else if self.asked.contains(&creation.caller) {
            make_room(&mut self.ended);
            self.ended.insert(creation.child, ended());
        }
        placed
    }

    /// The lines that have found what they belong to meanwhile. Never waits.
    pub(super) fn take_answers(&mut self) -> Vec<Placed> {
        let mut placed = Vec::new();
        while let Some(answer) = self.reading.as_ref().and_then(|reading| reading.answers.try_recv().ok()) {
            match answer {
                Answer::Read { child, read } => match self.ended.remove(&child) {
                    Some(ended) => placed.push((Whose::Creation(ended), read)),
                    None => {
                        make_room(&mut self.read);
                        self.read.insert(child, read);
                    }
                },
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

    /// The readings of a caller that gave no line.
    pub(crate) fn unread(&self, caller: u32) -> Option<&Unread> {
        self.unread.get(&caller)
    }
}

fn make_room<T>(children: &mut HashMap<u32, T>) {
    if children.len() >= MAX_CHILDREN {
        children.clear();
    }
}

/// Whose lines are to be read.
#[derive(Debug, Clone, Copy)]
enum Request {
    Creation(CreatingThread),
    Refusal { key: RefusalKey, thread: u32 },
}

/// The thread that reads.
#[derive(Debug)]
struct Reading {
    to_read: Option<SyncSender<Request>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

enum Answer {
    Read { child: u32, read: Read },
    Refused { key: RefusalKey, read: Read },
    Unread { caller: u32, language: Language, why: String },
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

    fn ask(&self, request: Request) {
        if let Some(to_read) = &self.to_read {
            // A full queue: the next creation is read instead.
            let _ = to_read.try_send(request);
        }
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
        if let Some(answer) = readers.read(request)
            && answers.send(answer).is_err()
        {
            return;
        }
    }
}

/// A process and the program in it: an exec replaces the program.
type Program = (u32, u64, u64, u64);

/// A reader for each program that was seen; `None` for one without an interpreter.
#[derive(Default)]
struct Readers {
    known: HashMap<Program, Option<Reader>>,
    budget: Budget,
}

/// The readings of the present second.
#[derive(Default)]
struct Budget {
    second: Option<Instant>,
    readings: u32,
}

impl Readers {
    fn read(&mut self, request: Request) -> Option<Answer> {
        let caller = match request {
            Request::Creation(caller) => caller.pid,
            Request::Refusal { key, .. } => key.place.pid,
        };
        let reader = reader_of(&mut self.known, caller)?;
        // Programs without an interpreter are asked for as well, and have no part in it.
        if !self.budget.has_room() {
            return None;
        }
        let answer = match request {
            Request::Creation(CreatingThread { stack_pointer, stands_for, .. }) => {
                read(reader, caller, stack_pointer)
                    .map(|(child, frames)| Answer::Read { child, read: Read::of(frames, stands_for) })
            }
            Request::Refusal { key, thread } => read_while_it_waits(reader, caller, thread)
                .map(|frames| Answer::Refused { key, read: Read::of(frames, 1) }),
        };
        Some(answer.unwrap_or_else(|why| Answer::Unread { caller, language: reader.language(), why }))
    }
}

fn reader_of(known: &mut HashMap<Program, Option<Reader>>, caller: u32) -> Option<&Reader> {
    let program = program(caller)?;
    if known.len() >= MAX_READERS && !known.contains_key(&program) {
        known.clear();
    }
    known.entry(program).or_insert_with(|| Some(Reader::new(caller)?.with_limits(LIMITS))).as_ref()
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

/// The child that a caller waits for, and the caller's frames.
fn read(
    reader: &Reader,
    caller: u32,
    stack_pointer: u64,
) -> Result<(u32, Vec<forkless_frames::Frame>), String> {
    let (tid, wait) = Wait::soon(caller, stack_pointer).ok_or(GONE_ON)?;
    let frames = reader.frames(tid).map_err(|why| why.to_string())?;
    // Looked at last: what was read before is from this wait.
    let is_it = wait.is_for_its_child(&frames) && Wait::now(caller, tid).is_some_and(|now| now == wait);
    if is_it { Ok((wait.child, frames)) } else { Err(GONE_ON.to_owned()) }
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

/// The thread whose stack the creation was on.
fn thread_of(pid: u32, stack_pointer: u64) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.take(MAX_THREADS);
    let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let distances = tids.filter_map(|tid| {
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
    /// The thread whose stack the creation was on, when it waits. While it runs, in fork itself,
    /// the kernel says nothing about it, and its child is not known.
    fn soon(pid: u32, stack_pointer: u64) -> Option<(u32, Self)> {
        (0..LOOKS).take_while(|_| procfs::runs(pid)).find_map(|look| {
            if look > 0 {
                thread::sleep(BETWEEN_LOOKS);
            }
            let tid = thread_of(pid, stack_pointer)?;
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

/// Without the inner frames of the language's own library.
fn of_the_user(frames: Vec<forkless_frames::Frame>) -> Vec<Frame> {
    let user = frames.iter().position(|frame| !is_library(&frame.file)).unwrap_or(0);
    frames.into_iter().skip(user).map(Frame::from).collect()
}

fn is_library(file: &str) -> bool {
    let inside = ["/lib/python3", "/lib/ruby/", "/ruby/vendor_ruby/", "/perl5/", "/share/perl/", "/php/"];
    file.starts_with("node:") || file.starts_with('<') || inside.iter().any(|part| file.contains(part))
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
        let read = |child| Answer::Read { child, read: Read::of(vec![frame("start", "/srv/app.py")], 1) };
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
}
