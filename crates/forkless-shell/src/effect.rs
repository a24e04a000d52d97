//! The environment each program gets through this shell: which strings, with which values, in which
//! order.
//!
//! A shell does not pass its environment on. It imports the strings that it can hold as variables,
//! and builds a new environment from its hash table for each program. The order of the strings is
//! part of what a program sees (`env`, `printenv`), so it is reproduced, too: both families of
//! shells walk the buckets of a table whose hash function is known.
//!
//! Sources: dash src/var.c (`INIT`, `hashvar`, `listvars`), src/cd.c (`setpwd`); busybox
//! shell/ash.c (the same, and `SHLVL`); bash variables.c (`initialize_shell_variables`,
//! `adjust_shlvl`, `maybe_make_export_env`), hashlib.c (`hash_string`).

use core::ffi::CStr;

use crate::directory::is_canonical;
use crate::environment::{Environment, name_of};
use crate::names;
use crate::reason::{Reason, Rejection};
use crate::script::{Command, CommandKind};
use crate::traits::{ShellKind, ShellTraits, parse_level};

/// Where the shell is, by its own account: its `PWD` and `OLDPWD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory<'a> {
    /// The value of `PWD`.
    ///
    /// At the start of a line the environment's `PWD` if it is absolute and names the same
    /// directory (device and inode) as `.`, else the result of getcwd(3); if that fails, the line
    /// is for the shell. After a `cd`, the result of
    /// [`resolve_directory`](crate::resolve_directory).
    pub current: &'a [u8],
    /// The value of `OLDPWD`.
    pub previous: PreviousDirectory<'a>,
}

/// The shell's `OLDPWD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousDirectory<'a> {
    /// No `cd` yet, and the environment's `OLDPWD` names a directory, or there is none.
    Inherited,
    /// No `cd` yet, and the environment's `OLDPWD` names no directory: bash drops it, the other
    /// shells do not look.
    Stale,
    /// The directory before the last `cd`.
    Left(&'a [u8]),
}

/// One string of a program's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvString<'o> {
    /// The string at this index of the given environment, unchanged.
    Inherited(usize),
    /// A string that the shell or the line makes.
    Own(&'o CStr),
}

/// Room for one string while the environment is put in order.
#[derive(Debug, Clone, Copy)]
pub struct EnvSlot<'o> {
    string: EnvString<'o>,
    key: u64,
}

impl<'o> EnvSlot<'o> {
    /// An unused slot.
    pub const EMPTY: Self = Self { string: EnvString::Inherited(usize::MAX), key: 0 };

    /// The string in this slot.
    #[must_use]
    pub const fn string(&self) -> EnvString<'o> {
        self.string
    }

    fn name<'a, E: Environment + ?Sized>(&'a self, environment: &'a E) -> Option<&'a [u8]> {
        match self.string {
            EnvString::Inherited(index) => environment.entry(index).and_then(name_of),
            EnvString::Own(text) => name_of(text.to_bytes()),
        }
    }
}

/// The most variables that the shell itself sets: PWD, OLDPWD, SHLVL, `_`.
const OWN: usize = 4;
/// The bytes [`ShellTraits::environment`] needs besides the three paths: names, `=`, NULs, a level.
const OVERHEAD: usize = 64;

/// A variable the shell or the line sets, and whether it found its place among the inherited ones.
#[derive(Clone, Copy)]
struct Override<'o> {
    text: &'o CStr,
    name_len: usize,
    placed: bool,
}

impl<'o> Override<'o> {
    fn name(&self) -> &'o [u8] {
        self.text.to_bytes().get(..self.name_len).unwrap_or_default()
    }
}

impl ShellTraits {
    /// The environment `command` gets when this shell runs it: fills `slots` in order and returns
    /// how many.
    ///
    /// `environment` is the environment of the shell, against which the line was analysed.
    /// `directory` is the shell's when the command starts. `program` is the path given to
    /// execve(2): the path found for a name without `/`, else the name itself. `slots` needs room
    /// for every inherited string, the command's assignments and four more; `buf` for the three
    /// paths and 64 bytes.
    ///
    /// # Errors
    /// [`Reason::BufferTooSmall`]; [`Reason::DuplicateVariable`] and
    /// [`Reason::EnvironmentVariable`] for environments whose import this crate does not model. The
    /// line is then for the shell. The inherited strings lead to the same answer for every command
    /// of a line.
    pub fn environment<'o, E: Environment + ?Sized>(
        &self,
        environment: &E,
        command: &Command<'o>,
        directory: &Directory<'_>,
        program: &[u8],
        buf: &'o mut [u8],
        slots: &mut [EnvSlot<'o>],
    ) -> Result<usize, Rejection> {
        environment_in(self, &environment, command, directory, program, buf, slots)
    }
}

/// One function for all kinds of environment, like the analysis.
fn environment_in<'o>(
    traits: &ShellTraits,
    environment: &dyn Environment,
    command: &Command<'o>,
    directory: &Directory<'_>,
    program: &[u8],
    buf: &'o mut [u8],
    slots: &mut [EnvSlot<'o>],
) -> Result<usize, Rejection> {
    let mut overrides = Overrides::new();
    let mut rest = buf;
    let mut set = |name: &[u8], value: &[u8], overrides: &mut Overrides<'o>| {
        let taken = core::mem::take(&mut rest);
        let (text, left) = format(taken, name, value)?;
        rest = left;
        overrides.own(text, name.len())
    };
    let keeps_underscore = traits.kind != ShellKind::Bash || command.keeps_underscore();
    match traits.kind {
        ShellKind::Unknown => return Err(Rejection::whole(Reason::UnknownShell)),
        ShellKind::Dash => {}
        ShellKind::Busybox => {
            let level = environment.variable(b"SHLVL").map_or(Some(0), parse_level);
            set(b"SHLVL", decimal(level, 1)?.as_slice(), &mut overrides)?;
        }
        ShellKind::Bash => {
            if !is_canonical(directory.current) {
                return Err(Rejection::whole(Reason::EnvironmentVariable));
            }
            let level = environment.variable(b"SHLVL").map_or(Some(0), parse_level);
            let step = if command.replaces_shell() { 0 } else { 1 };
            set(b"SHLVL", decimal(level, step)?.as_slice(), &mut overrides)?;
            if command.kind() != CommandKind::Exec {
                set(b"_", program, &mut overrides)?;
            }
        }
    }
    set(b"PWD", directory.current, &mut overrides)?;
    if let PreviousDirectory::Left(path) = directory.previous {
        set(b"OLDPWD", path, &mut overrides)?;
    }

    let has_assignments = command.assignments().next().is_some();
    let mut filled = Filled { slots, len: 0 };
    let mut index = 0;
    while let Some(entry) = environment.entry(index) {
        let this = index;
        index += 1;
        let name = name_of(entry).unwrap_or_default();
        if !names::is_valid_name(name) {
            if traits.kind == ShellKind::Bash {
                // bash keeps strings that it cannot hold as variables, and exports them first,
                // from a table of 64 buckets.
                if name.is_empty() {
                    return Err(Rejection::environment(Reason::EnvironmentVariable, this));
                }
                filled.push(
                    EnvString::Inherited(this),
                    key(0, fnv1(name) % 64, 0, u32::MAX - position(this)),
                )?;
            } else if traits.exports_any_name && entry.contains(&b'=') {
                if name.is_empty() {
                    return Err(Rejection::environment(Reason::EnvironmentVariable, this));
                }
                filled.push(EnvString::Inherited(this), place(traits, name, this))?;
            }
            continue;
        }
        let is_dropped = (name == b"OLDPWD" && directory.previous == PreviousDirectory::Stale)
            || (name == b"_" && !keeps_underscore)
            || (has_assignments && assigns(command, name));
        if traits.kind == ShellKind::Bash && is_dropped {
            continue;
        }
        let string = match replacement(command, has_assignments, &mut overrides, name) {
            Some(text) if text.to_bytes() != entry => EnvString::Own(text),
            _ => EnvString::Inherited(this),
        };
        filled.push(string, place(traits, name, this))?;
    }
    for (offset, own) in overrides.list.iter().flatten().enumerate() {
        if !own.placed {
            let name = own.name();
            let key = if name == b"_" && traits.kind == ShellKind::Bash {
                // bash adds it last, after those of the table (execute_cmd.c,
                // `put_command_name_into_env`).
                u64::MAX
            } else {
                place(traits, name, index + offset)
            };
            filled.push(EnvString::Own(own.text), key)?;
        }
    }
    for (offset, text) in command.assignments().enumerate() {
        let name = name_of(text.to_bytes()).unwrap_or_default();
        if traits.kind == ShellKind::Bash {
            // The temporary environment: before the variables, from a table of four buckets,
            // last in first out.
            filled.push(
                EnvString::Own(text),
                key(1, fnv1(name) % 4, 0, u32::MAX - position(index + OWN + offset)),
            )?;
        } else if !inherits(environment, name) {
            filled.push(EnvString::Own(text), place(traits, name, index + OWN + offset))?;
        }
    }
    let Filled { slots, len } = filled;
    let slots = slots.get_mut(..len).unwrap_or_default();
    slots.sort_unstable_by_key(|slot| slot.key);
    refuse_duplicates(environment, slots)?;
    Ok(len)
}

/// The string in place of an inherited variable, if the shell or the line sets that variable.
fn replacement<'o>(
    command: &Command<'o>,
    has_assignments: bool,
    overrides: &mut Overrides<'o>,
    name: &[u8],
) -> Option<&'o CStr> {
    for own in overrides.list.iter_mut().flatten() {
        if own.name() == name {
            own.placed = true;
            return Some(own.text);
        }
    }
    // Most commands have no assignment, and the search for one goes through all words.
    if !has_assignments {
        return None;
    }
    command.assignments().find(|text| name_of(text.to_bytes()) == Some(name))
}

/// The sort key of a variable: its bucket, then its place in the bucket's chain.
fn place(traits: &ShellTraits, name: &[u8], index: usize) -> u64 {
    if traits.kind == ShellKind::Bash {
        // New variables go to the head of their chain.
        return key(2, fnv1(name) % 1024, 0, u32::MAX - position(index));
    }
    // The shell enters its own variables before it reads the environment, each at the head of
    // its chain. It appends those of the environment.
    let rank = names::ASH_VARIABLES.iter().rev().position(|own| own.as_bytes() == name).unwrap_or(0xff);
    key(2, ash_hash(name), u8::try_from(rank).unwrap_or(0xff), position(index))
}

impl Command<'_> {
    /// The size of `buf` that always suffices for [`ShellTraits::environment`], given the lengths
    /// of its three paths.
    #[must_use]
    pub const fn environment_bytes(current: usize, previous: usize, program: usize) -> usize {
        current + previous + program + OVERHEAD
    }
}

/// The slots filled so far.
struct Filled<'s, 'o> {
    slots: &'s mut [EnvSlot<'o>],
    len: usize,
}

impl<'o> Filled<'_, 'o> {
    fn push(&mut self, string: EnvString<'o>, key: u64) -> Result<(), Rejection> {
        let slot = self.slots.get_mut(self.len).ok_or(Rejection::whole(Reason::BufferTooSmall))?;
        *slot = EnvSlot { string, key };
        self.len += 1;
        Ok(())
    }
}

/// The variables the shell sets, in the order in which it sets them.
struct Overrides<'o> {
    list: [Option<Override<'o>>; OWN],
}

impl<'o> Overrides<'o> {
    const fn new() -> Self {
        Self { list: [None; OWN] }
    }

    fn own(&mut self, text: &'o CStr, name_len: usize) -> Result<(), Rejection> {
        let free = self.list.iter_mut().find(|slot| slot.is_none());
        *free.ok_or(Rejection::whole(Reason::TooMany))? = Some(Override { text, name_len, placed: false });
        Ok(())
    }
}

fn key(class: u8, bucket: u32, rank: u8, position: u32) -> u64 {
    (u64::from(class) << 56)
        | (u64::from(bucket & 0xffff) << 40)
        | (u64::from(rank) << 32)
        | u64::from(position)
}

fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// `hashvar` of dash and busybox: the table has 39 buckets.
fn ash_hash(name: &[u8]) -> u32 {
    let first = u32::from(name.first().copied().unwrap_or(0)) << 4;
    name.iter().fold(first, |hash, &byte| hash.wrapping_add(u32::from(byte))) % 39
}

/// `hash_string` of bash: FNV-1, 32 bits.
fn fnv1(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash: u32, &byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte))
}

fn assigns(command: &Command<'_>, name: &[u8]) -> bool {
    command.assignments().any(|text| name_of(text.to_bytes()) == Some(name))
}

fn inherits<E: Environment + ?Sized>(environment: &E, name: &[u8]) -> bool {
    environment.variable(name).is_some()
}

/// A shell imports a name inherited twice once, each shell in its own way. Equal names have the
/// same bucket, so only other names of that bucket can stand between them. A string that the shell
/// or the line makes stands in both places.
fn refuse_duplicates<E: Environment + ?Sized>(
    environment: &E,
    slots: &[EnvSlot<'_>],
) -> Result<(), Rejection> {
    for (at, slot) in slots.iter().enumerate() {
        let Some(this) = slot.name(environment) else { continue };
        let chain = slots.get(at + 1..).unwrap_or_default();
        let same_bucket = chain.iter().take_while(|other| other.key >> 40 == slot.key >> 40);
        if same_bucket.into_iter().any(|other| other.name(environment) == Some(this)) {
            return Err(Rejection::environment(Reason::DuplicateVariable, first_of(environment, this)));
        }
    }
    Ok(())
}

/// The index of the first string with this name.
fn first_of<E: Environment + ?Sized>(environment: &E, name: &[u8]) -> usize {
    let mut index = 0;
    while environment.entry(index).is_some_and(|entry| name_of(entry) != Some(name)) {
        index += 1;
    }
    index
}

/// Writes `NAME=VALUE` and a NUL into the front of `buf`. Returns the text and the rest of the
/// buffer.
fn format<'o>(buf: &'o mut [u8], name: &[u8], value: &[u8]) -> Result<(&'o CStr, &'o mut [u8]), Rejection> {
    let len = name.len() + value.len() + 2;
    let (front, rest) = buf.split_at_mut_checked(len).ok_or(Rejection::whole(Reason::BufferTooSmall))?;
    let parts = name.iter().chain(b"=").chain(value).chain(b"\0");
    front.iter_mut().zip(parts).for_each(|(slot, byte)| *slot = *byte);
    let text = CStr::from_bytes_with_nul(front).map_err(|_| Rejection::whole(Reason::Nul))?;
    Ok((text, rest))
}

/// A small number in decimal.
struct Decimal {
    digits: [u8; 4],
    start: usize,
}

impl Decimal {
    fn as_slice(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

fn decimal(level: Option<u16>, step: u16) -> Result<Decimal, Rejection> {
    let mut value = level.ok_or(Rejection::whole(Reason::EnvironmentVariable))? + step;
    let mut decimal = Decimal { digits: [b'0'; 4], start: 4 };
    for digit in decimal.digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        decimal.start -= 1;
        if value == 0 {
            break;
        }
    }
    Ok(decimal)
}
