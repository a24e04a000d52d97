//! The methods of [`Command`] for the child's attributes: credentials, limits, signals and
//! the like.

use super::builder::Command;
use crate::spec::attributes::{OnDrop, Resource, Scheduler};
use forkless_sys::sched::Rlimit;
use forkless_sys::signal::{SIGPIPE, SigSet};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::PoisonError;

impl Command {
    /// The user, as `CommandExt::uid`.
    ///
    /// If the effective user is root, or the caller has `CAP_SETGID`, the supplementary groups are
    /// emptied, unless [`Command::groups`] sets them. Otherwise they stay, also where the kernel
    /// refuses to empty them (`EPERM`, as in some user namespaces). std does the same.
    /// [`Command::groups`] fails the start there.
    ///
    /// ```
    /// use forkless::Command;
    /// let me = rustix::process::getuid().as_raw();
    /// let out = Command::new("id").arg("-u").uid(me).output().unwrap();
    /// assert_eq!(out.stdout, format!("{me}\n").as_bytes());
    /// ```
    pub fn uid(&mut self, id: u32) -> &mut Command {
        self.spec.attributes.uid = Some(id);
        self
    }

    /// The group.
    ///
    /// ```
    /// use forkless::Command;
    /// let mine = rustix::process::getgid().as_raw();
    /// let out = Command::new("id").arg("-g").gid(mine).output().unwrap();
    /// assert_eq!(out.stdout, format!("{mine}\n").as_bytes());
    /// ```
    pub fn gid(&mut self, id: u32) -> &mut Command {
        self.spec.attributes.gid = Some(id);
        self
    }

    /// The supplementary groups.
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// match Command::new("id").arg("-G").groups(&[7, 9]).output() {
    ///     Ok(out) => assert!(String::from_utf8_lossy(&out.stdout).ends_with("7 9\n")),
    ///     // EPERM: not root.
    ///     Err(e) => assert_eq!((e.step(), e.raw_os_error()), (Step::Groups, Some(1))),
    /// }
    /// ```
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.spec.attributes.groups = Some(groups.to_vec());
        self
    }

    /// The process group: 0 for a new one, which
    /// [`Child::signal_group`](crate::Child::signal_group) then reaches.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    /// let pid = rustix::process::Pid::from_raw(child.id() as i32);
    /// assert_eq!(rustix::process::getpgid(pid).unwrap(), pid.unwrap());
    /// child.kill_group().unwrap();
    /// child.wait().unwrap();
    /// ```
    pub fn process_group(&mut self, pgroup: i32) -> &mut Command {
        self.spec.attributes.pgid = Some(pgroup);
        self
    }

    /// A new session (`setsid(2)`), without a controlling terminal.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("sleep").arg("60").setsid(true).spawn().unwrap();
    /// let pid = rustix::process::Pid::from_raw(child.id() as i32);
    /// assert_eq!(rustix::process::getsid(pid).unwrap(), pid.unwrap());
    /// child.kill().unwrap();
    /// child.wait().unwrap();
    /// ```
    pub fn setsid(&mut self, yes: bool) -> &mut Command {
        self.spec.attributes.setsid = yes;
        self
    }

    /// Makes the terminal at this number *of the child* the controlling terminal of its new
    /// session; implies [`Command::setsid`].
    ///
    /// ```
    /// use forkless::Command;
    /// use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    /// let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    /// grantpt(&main)?;
    /// unlockpt(&main)?;
    /// let path = ptsname(&main, Vec::new())?;
    /// let tty =
    ///     std::fs::File::options().read(true).write(true).open(path.to_str().unwrap())?;
    /// let status = Command::new("sh")
    ///     .args(["-c", ": </dev/tty"])
    ///     .stdin(tty)
    ///     .controlling_terminal(0)
    ///     .status()?;
    /// assert!(status.success()); // /dev/tty is there
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn controlling_terminal(&mut self, number: RawFd) -> &mut Command {
        self.spec.attributes.setsid = true;
        self.spec.attributes.terminal = Some(number);
        self
    }

    /// Makes the child's process group the foreground group of the terminal at this number of the
    /// child (`tcsetpgrp(3)`).
    ///
    /// ```
    /// use forkless::Command;
    /// use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    /// let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    /// grantpt(&main)?;
    /// unlockpt(&main)?;
    /// let path = ptsname(&main, Vec::new())?;
    /// let tty = std::fs::File::options().read(true).write(true).open(path.to_str().unwrap())?;
    /// // As a terminal emulator does: a new session with this terminal, and its leader in front.
    /// let status = Command::new("sh").args(["-c", "ps -o stat= -p $$ | grep -q +"]).stdin(tty)
    ///     .controlling_terminal(0).foreground(0).status()?;
    /// # let _ = status; // ps may not be installed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn foreground(&mut self, number: RawFd) -> &mut Command {
        self.spec.attributes.foreground = Some(number);
        self
    }

    /// The file mode creation mask.
    ///
    /// ```
    /// let out =
    ///     forkless::Command::new("sh").args(["-c", "umask"]).umask(0o077).output().unwrap();
    /// assert_eq!(out.stdout, b"0077\n");
    /// ```
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.spec.attributes.umask = Some(mask);
        self
    }

    /// A resource limit, in the resource's own unit; `u64::MAX` for none. The last call for a
    /// resource counts. Set before credentials change, so root may raise it, and after the
    /// descriptors are connected: their numbers keep to this process's limit.
    ///
    /// ```
    /// use forkless::{Command, Resource};
    /// let out = Command::new("sh")
    ///     .args(["-c", "ulimit -n"])
    ///     .rlimit(Resource::OpenFiles, 99, 99)
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"99\n");
    /// ```
    pub fn rlimit(&mut self, resource: Resource, soft: u64, hard: u64) -> &mut Command {
        let (resource, limit) = (resource as u32, Rlimit { soft, hard });
        let limits = &mut self.spec.attributes.rlimits;
        // One after the other, a second could not raise what the first has lowered.
        limits.retain(|before| before.0 != resource);
        limits.push((resource, limit));
        self
    }

    /// The nice value, -20 to 19; absolute.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("nice").nice(19).output().unwrap();
    /// assert_eq!(out.stdout, b"19\n");
    /// ```
    pub fn nice(&mut self, value: i32) -> &mut Command {
        self.spec.attributes.nice = Some(value);
        self
    }

    /// The scheduling policy.
    ///
    /// ```
    /// use forkless::{Command, Scheduler};
    /// let out = Command::new("cut")
    ///     .args(["-d ", "-f41", "/proc/self/stat"])
    ///     .scheduler(Scheduler::Idle)
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"5\n"); // SCHED_IDLE
    /// ```
    pub fn scheduler(&mut self, policy: Scheduler) -> &mut Command {
        self.spec.attributes.scheduler = Some(policy);
        self
    }

    /// The CPUs that the program may run on, by number.
    ///
    /// ```
    /// let mut c = forkless::Command::new("true");
    /// assert!(c.affinity([0]).status().unwrap().success());
    /// ```
    pub fn affinity<I: IntoIterator<Item = usize>>(&mut self, cpus: I) -> &mut Command {
        let mut mask = Vec::new();
        for cpu in cpus {
            if cpu >= 1 << 16 {
                self.spec.complain(format!("no machine has a CPU {cpu}"));
                continue;
            }
            if mask.len() <= cpu / 64 {
                mask.resize(cpu / 64 + 1, 0);
            }
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        self.spec.attributes.affinity = Some(mask);
        self
    }

    /// A signal that the child gets when this **process** dies, and not when merely the calling
    /// thread ends.
    ///
    /// The child gets it also if the process dies before the child could ask for it. It asks after
    /// its change of credentials, which would clear the request.
    ///
    /// The kernel watches the creating thread (`PR_SET_PDEATHSIG(2const)`). So from another thread
    /// than the first, a start makes a thread that creates the child and stays until the child
    /// ends. The child inherits all that is the calling thread's own, as any other child does:
    /// credentials, namespaces, filters. A thread that has changed the PID namespace of its
    /// children cannot make a thread: the start fails with `EINVAL`. An exec by this process ends
    /// its other threads, so those children get the signal then. A child that the first thread
    /// starts gets the signal also when that thread ends by itself (`pthread_exit(3)`) and others
    /// go on.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut child = Command::new("sleep").arg("60").parent_death_signal(9).spawn().unwrap();
    /// // Were this process to die now, so would the sleep.
    /// child.kill().unwrap();
    /// child.wait().unwrap();
    /// ```
    pub fn parent_death_signal(&mut self, signal: i32) -> &mut Command {
        self.spec.attributes.death_signal = Some(signal);
        self
    }

    /// Neither the program nor anything it starts can gain privileges by exec (`no_new_privs`).
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("grep")
    ///     .args(["NoNewPrivs", "/proc/self/status"])
    ///     .no_new_privs(true)
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"NoNewPrivs:\t1\n");
    /// ```
    pub fn no_new_privs(&mut self, yes: bool) -> &mut Command {
        self.spec.attributes.no_new_privs = yes;
        self
    }

    /// The root directory, entered before credentials change. The working directory becomes its
    /// `/`, unless set.
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// match Command::new("/bin/true").chroot("/").status() {
    ///     Ok(status) => assert!(status.success()),
    ///     // EPERM: not root.
    ///     Err(e) => assert_eq!((e.step(), e.raw_os_error()), (Step::Chroot, Some(1))),
    /// }
    /// ```
    pub fn chroot<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.spec.attributes.chroot = self.spec.c_string("chroot", dir.as_ref().as_os_str());
        self
    }

    /// The directory of a cgroup. The child is born there (`CLONE_INTO_CGROUP`) or, where that is
    /// refused, joins it before it does anything that needs privilege.
    ///
    /// Every start with a cgroup suspends the calling thread until the program runs,
    /// [`Command::spawn_nonblocking`] included. Otherwise a cgroup that runs out of memory would
    /// take this process along, whose memory the child shares until then. A frozen cgroup holds the
    /// thread, too, and no time limit ends that.
    ///
    /// ```
    /// use forkless::{Command, Step};
    /// let error =
    ///     Command::new("true").cgroup("/sys/fs/cgroup/no/such/group").status().unwrap_err();
    /// assert_eq!(error.step(), Step::Cgroup);
    /// ```
    pub fn cgroup<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.spec.attributes.cgroup = self.spec.c_string("cgroup", dir.as_ref().as_os_str());
        self
    }

    /// The signals blocked in the program, instead of those that the calling thread blocks. Bit n -
    /// 1 stands for signal n.
    ///
    /// ```
    /// use forkless::{Command, SigSet};
    /// let out = Command::new("grep")
    ///     .args(["SigBlk", "/proc/self/status"])
    ///     .signal_mask(SigSet::EMPTY.with(10))
    ///     .output()
    ///     .unwrap();
    /// assert_eq!(out.stdout, b"SigBlk:\t0000000000000200\n");
    /// ```
    pub fn signal_mask(&mut self, blocked: SigSet) -> &mut Command {
        self.spec.attributes.mask = Some(blocked);
        self
    }

    /// Hands on SIGPIPE's action, as fork would. Without this the program starts with SIGPIPE at
    /// its default action, as with `std::process`, since Rust's runtime ignores it. Either way the
    /// program blocks the signals that the calling thread blocks, and other ignored signals stay
    /// ignored. Forgets a mask set by [`Command::signal_mask`].
    ///
    /// ```
    /// use forkless::Command;
    /// // Rust programs ignore SIGPIPE; what they start does not, unless asked to.
    /// let ignored = |c: &mut Command| {
    ///     let out = c.args(["SigIgn", "/proc/self/status"]).output().unwrap();
    ///     u64::from_str_radix(String::from_utf8(out.stdout).unwrap()[8..].trim(), 16).unwrap()
    ///         >> 12
    ///         & 1
    /// };
    /// assert_eq!(ignored(&mut Command::new("grep")), 0);
    /// assert_eq!(ignored(Command::new("grep").inherit_signals(true)), 1);
    /// ```
    pub fn inherit_signals(&mut self, yes: bool) -> &mut Command {
        let a = &mut self.spec.attributes;
        a.mask = None;
        a.default = if yes { a.default.without(SIGPIPE) } else { a.default.with(SIGPIPE) };
        self
    }

    /// Signals that are at their default action when the program starts; adds to earlier calls.
    /// SIGKILL and SIGSTOP always are, so [`SigSet::ALL`] is a set like any other.
    ///
    /// ```
    /// use forkless::{Command, SigSet};
    /// assert!(Command::new("true").default_signals(SigSet::ALL).status().unwrap().success());
    /// use std::os::unix::process::ExitStatusExt as _;
    /// let status = Command::new("sh")
    ///     .args(["-c", "kill -HUP $$"])
    ///     .default_signals(SigSet::EMPTY.with(1))
    ///     .status()
    ///     .unwrap();
    /// assert_eq!(status.signal(), Some(1));
    /// ```
    pub fn default_signals(&mut self, signals: SigSet) -> &mut Command {
        // Their action cannot be set, not even to the default (do_sigaction, kernel/signal.c).
        const ALWAYS: SigSet = SigSet::EMPTY.with(9).with(19);
        self.spec.attributes.default.0 |= signals.0 & !ALWAYS.0;
        self.spec.attributes.ignore.0 &= !signals.0;
        self
    }

    /// Signals that are ignored when the program starts; adds to earlier calls. SIGKILL and SIGSTOP
    /// among them fail the start (`EINVAL`).
    ///
    /// ```
    /// use forkless::{Command, SigSet};
    /// let status = Command::new("sh")
    ///     .args(["-c", "kill -HUP $$; exit 5"])
    ///     .ignore_signals(SigSet::EMPTY.with(1))
    ///     .status()
    ///     .unwrap();
    /// assert_eq!(status.code(), Some(5)); // what nohup(1) does
    /// ```
    pub fn ignore_signals(&mut self, signals: SigSet) -> &mut Command {
        self.spec.attributes.ignore.0 |= signals.0;
        self.spec.attributes.default.0 &= !signals.0;
        self
    }

    /// What the drop of the [`Child`](crate::Child) does. The default is [`OnDrop::Detach`], as
    /// with `std::process`, but without a zombie.
    ///
    /// ```
    /// use forkless::{Command, OnDrop};
    /// let child = Command::new("sleep").arg("0.01").on_drop(OnDrop::Wait).spawn().unwrap();
    /// drop(child); // returns when it has ended
    /// ```
    pub fn on_drop(&mut self, policy: OnDrop) -> &mut Command {
        self.spec.on_drop = policy;
        self
    }

    /// A function to run in the child as the last thing before exec.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "umask"]);
    /// // SAFETY: one system call; nothing of this process is touched.
    /// unsafe {
    ///     c.pre_exec(|| {
    ///         rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o27));
    ///         Ok(())
    ///     })
    /// };
    /// assert_eq!(c.output().unwrap().stdout, b"0027\n");
    /// ```
    ///
    /// # Safety
    /// The function runs **in this process's memory**, on a stack of 2 MiB (64 KiB where memory is
    /// short). The calling thread is suspended, and others run on. The function has its own pid and
    /// descriptors. So it may make system calls, and must not
    /// - take a lock or allocate (another thread that holds the heap's lock runs on, but a lock
    ///   that the function leaves held stays held),
    /// - change memory that others rely on, since the parent sees what it writes,
    /// - call libc functions that signal other threads (`setuid` and its kin) or run code at exit,
    /// - unwind (a panic is caught and fails the start) or not return.
    ///
    /// A function that dies by a signal kills the child alone. Before Linux 5.16 this process dies,
    /// too, if the signal's default action is to dump core. A function that dies while it panics,
    /// by a panic hook that aborts, say, leaves the calling thread counted as panicking. A later
    /// panic of that thread ends the process.
    ///
    /// With [`Command::parent_death_signal`], on a start from another thread than the first, the
    /// function runs on a thread of the library's. It finds that thread's thread-locals, not the
    /// caller's. A filter that it installs must allow what the child still calls: `rt_sigprocmask`
    /// and `execve`.
    ///
    /// Every signal is blocked while the function runs. If it sets a mask or unblocks a signal with
    /// libc's functions, that holds for the program. If it blocks more signals, that is not seen:
    /// use [`Command::signal_mask`].
    ///
    /// An `Err` fails the start with its error number. `errno` of the calling thread is put back.
    #[expect(unsafe_code, reason = "declares an obligation of the caller's; see above")]
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        self.spec.hooks.get_mut().unwrap_or_else(PoisonError::into_inner).push(Box::new(f));
        self
    }
}
