//! Apache with very many virtual hosts, as published: requests for a CGI program each pay for a
//! fork of all that configuration.
//!
//! The configuration, a document root and all state live in the suite's private directory; the
//! server listens on a free port of the loopback address. Started by root it changes to another
//! user, as distributed. The fork call itself is timed by a small preloaded library
//! (`fork_times.c`), the same with and without `run`: a tracer would cost more than what is timed.

use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forkless_bench::check::Bound;
use forkless_bench::engine::{Arm, Turn};
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_bench::page_kinds::Pages;
use forkless_bench::results::{Metric, Param, Params};
use forkless_run::{Counter, HugePages, Settings};

use super::kept::huge_pages;
use super::server::{PATIENCE, Server, Service, mostly_huge, mostly_pool};
use super::stage::{Asked, FORK, Stage, Subject, params};
use crate::install;
use crate::last_lines::last_words_of;

/// Requests at a time, and workers. After a request mod_cgi may sleep for 47 ms because its child,
/// whose output has ended, is not quite gone (APR's `free_proc_chain`); enough workers keep the
/// processors busy meanwhile.
const CONCURRENCY: &str = "16";

/// The first host: others are found by comparing one name after the other, which takes longer than
/// a request but has nothing to do with forks.
const HOST: &str = "h0.example";

pub(super) fn cgi(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    requests(name, stage, "cgi")
}

pub(super) fn cgid(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    requests(name, stage, "cgid")
}

pub(super) fn thp(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    fork_call(name, stage, huge_pages(HugePages::Transparent), mostly_huge)
}

/// The pool has four times the server's memory. The workers write, too, each to pages of its own,
/// and a process that holds pages of the pool can fork only while as many are free.
pub(super) fn hugetlb(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let bytes = 4 * footprint(stage);
    memory::require(2 * bytes)?;
    let _pool = Pages::Hugetlb(2048).enable(bytes, Some(stage.guard))?;
    fork_call(name, stage, huge_pages(HugePages::Pool), mostly_pool)
}

fn hosts(stage: &Stage<'_>) -> u64 {
    if stage.spec.quick { 10_000 } else { 100_000 }
}

/// Bytes a server may come to hold: some 3 KiB a host.
pub(crate) fn footprint(stage: &Stage<'_>) -> u64 {
    hosts(stage) * (4 << 10) + (64 << 20)
}

fn host_params(name: &str, stage: &Stage<'_>) -> Params {
    let mut params = params(name, 0);
    params.insert("hosts".to_owned(), Param::Number(hosts(stage)));
    params
}

/// Requests a second under load.
fn requests(name: &'static str, stage: &mut Stage<'_>, module: &str) -> Result<(), Error> {
    let apache = Apache::found(name, stage)?;
    let generator = stage.need("ab", "apache2-utils")?;
    memory::require(3 * footprint(stage))?;
    // The one that comes last gets the memory that is cheaper to copy: let it be the plain one.
    let run = apache.start(name, stage, Some(Settings::default()), module, &[])?;
    let plain = apache.start(name, stage, None, module, &[])?;
    let params = host_params(name, stage);
    let served = Cell::new(0);
    let nobody = Cell::new(0);
    let subject = |method, instance, served| Subject {
        method,
        params: params.clone(),
        metrics: std::slice::from_ref(&Metric::RATE),
        arm: Box::new(Load { generator: generator.clone(), server: instance, served }),
    };
    let series = stage.measure(vec![subject("plain", &plain, &nobody), subject("run", &run, &served)])?;
    plain.server.finish()?;
    let evidence = run.server.finish()?.most(Counter::Committed, served.get());
    let figure = stage.ratio(&series[1][0], &series[0][0]);
    let asked_for = Asked::beyond_one("run / plain", Bound::AtLeast);
    stage.check(&params, asked_for, figure, evidence);
    Ok(())
}

/// The time of the fork call alone, for one request after the other.
fn fork_call(
    name: &'static str,
    stage: &mut Stage<'_>,
    settings: Settings,
    evidence: fn(u32) -> Result<String, String>,
) -> Result<(), Error> {
    let apache = Apache::found(name, stage)?;
    memory::require(3 * footprint(stage))?;
    let library =
        stage.compile("fork_times", include_str!("programs/fork_times.c"), &["-shared", "-fPIC", "-ldl"])?;
    let mut start = |settings: Option<Settings>| {
        let times = stage.file("times");
        let file = fs::File::create(&times).and_then(|file| file.set_len(8 + 65_536 * 8).map(|()| file));
        drop(file.map_err(Error::io(format!("create {}", times.display())))?);
        let variables = [
            ("LD_PRELOAD", library.clone().into_os_string()),
            ("FORKLESS_FORK_TIMES", times.clone().into()),
            ("FORKLESS_FORK_NAME", "apache2".into()),
        ];
        let instance = apache.start(name, stage, settings, "cgi", &variables)?;
        Ok::<_, Error>((instance, times))
    };
    let (run, run_times) = start(Some(settings))?;
    let (plain, plain_times) = start(None)?;
    let params = host_params(name, stage);
    let subject = |method, instance, times: &Path| Subject {
        method,
        params: params.clone(),
        metrics: std::slice::from_ref(&FORK),
        arm: Box::new(Call { server: instance, times: times.to_owned() }),
    };
    let series =
        stage.measure(vec![subject("plain", &plain, &plain_times), subject("run", &run, &run_times)])?;
    let evidence = evidence(run.pid);
    plain.server.finish()?;
    run.server.finish()?;
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}

/// Where Apache is.
pub(crate) struct Apache {
    program: PathBuf,
    modules: PathBuf,
    cgi: PathBuf,
    /// Variables that env(1) sets for the server alone, and not for what keeps it.
    pub(crate) environment: Vec<OsString>,
    /// How long it may take until it answers.
    pub(crate) patience: Duration,
}

/// A running one.
pub(crate) struct Instance {
    server: Server,
    pub(crate) port: u16,
    pub(crate) pid: u32,
}

impl Instance {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hello", self.port)
    }

    /// The error that says how the server failed, and what it said last.
    fn failure(&self, what: &str) -> Error {
        self.server.failure(what)
    }
}

impl Apache {
    pub(crate) fn found(name: &str, stage: &mut Stage<'_>) -> Result<Apache, Error> {
        let program = stage.need("apache2", "apache2-bin")?;
        let modules = PathBuf::from("/usr/lib/apache2/modules");
        if !modules.is_dir() {
            return Err(Error::Missing(format!("Apache's modules are not in {}", modules.display())));
        }
        stage.note(format!("{name}: {}", install::version(&program, "-v").unwrap_or_default()));
        let cgi = stage.compile("cgi", include_str!("programs/cgi.c"), &["-static"])?;
        Ok(Apache { program, modules, cgi, environment: Vec::new(), patience: PATIENCE })
    }

    pub(crate) fn start(
        &self,
        name: &str,
        stage: &mut Stage<'_>,
        settings: Option<Settings>,
        module: &str,
        variables: &[(&str, OsString)],
    ) -> Result<Instance, Error> {
        let root = stage.directory("apache")?;
        let documents = root.join("documents");
        let set_up = || -> std::io::Result<()> {
            fs::create_dir(&documents)?;
            fs::copy(&self.cgi, documents.join("hello"))?;
            for path in [&root, &documents, &documents.join("hello")] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        };
        set_up().map_err(Error::io(format!("set up {}", root.display())))?;
        // The port is free again when it is dropped; nobody else is given it soon, for ports are
        // handed out in turn.
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = port.map_err(Error::io("find a free port"))?.port();
        let file = root.join("conf");
        let text = self.configuration(&root, &documents, port, module, hosts(stage));
        fs::write(&file, text).map_err(Error::io(format!("write {}", file.display())))?;
        let mut arguments: Vec<OsString> = vec!["-DFOREGROUND".into(), "-f".into(), file.into()];
        let mut program = self.program.clone();
        if !self.environment.is_empty() {
            arguments.insert(0, std::mem::replace(&mut program, stage.need("env", "coreutils")?).into());
            arguments.splice(0..0, self.environment.iter().cloned());
        }
        let answers = || get(port).ok();
        let service = Service {
            name,
            settings,
            program: &program,
            arguments: &arguments,
            variables,
            log: Some(root.join("error.log")),
            patience: self.patience,
        };
        let (server, answer) = Server::start(stage, service, answers)?;
        if !answer.contains("hello") {
            return Err(server.failure("does not run CGI programs"));
        }
        let pid = fs::read_to_string(root.join("pid")).ok().and_then(|text| text.trim().parse().ok());
        Ok(Instance { server, port, pid: pid.unwrap_or(0) })
    }

    fn configuration(&self, root: &Path, documents: &Path, port: u16, module: &str, hosts: u64) -> String {
        let (root, documents, modules) = (root.display(), documents.display(), self.modules.display());
        let mut text = format!(
            "ServerRoot \"{root}\"\nDefaultRuntimeDir \"{root}\"\nPidFile \"{root}/pid\"\nErrorLog \"{root}/error.log\"\n\
             ServerName localhost\nListen 127.0.0.1:{port}\n\
             LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\n\
             LoadModule {module}_module {modules}/mod_{module}.so\n\
             StartServers {CONCURRENCY}\nMinSpareServers 1\nMaxSpareServers {CONCURRENCY}\n\
             MaxRequestWorkers {CONCURRENCY}\n\
             DocumentRoot \"{documents}\"\n\
             <Directory \"{documents}\">\nOptions +ExecCGI\nSetHandler cgi-script\n</Directory>\n"
        );
        if module == "cgid" {
            let _ = writeln!(text, "ScriptSock \"{root}/socket\"");
        }
        if forkless_bench::machine::is_root() {
            text.push_str("User www-data\nGroup www-data\n");
        }
        for host in 0..hosts {
            let _ =
                writeln!(text, "<VirtualHost 127.0.0.1:{port}>\nServerName h{host}.example\n</VirtualHost>");
        }
        text
    }
}

/// One request, one answer.
pub(crate) fn get(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET /hello HTTP/1.0\r\nHost: {HOST}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A second under load.
pub(crate) struct Load<'a> {
    pub(crate) generator: PathBuf,
    pub(crate) server: &'a Instance,
    pub(crate) served: &'a Cell<u64>,
}

impl Load<'_> {
    /// Requests a second.
    pub(crate) fn second(&self) -> Result<f64, Error> {
        let output = Command::new(&self.generator)
            .args(["-q", "-H", &format!("Host: {HOST}")])
            .args(["-t", "1", "-n", "100000", "-c", CONCURRENCY, &self.server.url()])
            .output()
            .map_err(Error::io("start ab"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok())
        };
        let bad = field("Failed requests").unwrap_or(0.0) + field("Non-2xx responses").unwrap_or(0.0);
        match (field("Complete requests"), field("Requests per second")) {
            (Some(complete), Some(rate)) if bad == 0.0 && complete > 0.0 => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
                self.served.set(self.served.get() + complete as u64);
                Ok(rate)
            }
            _ => {
                let said = last_words_of(&output.stderr);
                let what = format!("failed {bad} requests of ab, which ended with {}: {said}", output.status);
                Err(self.server.failure(&what))
            }
        }
    }
}

impl Arm for Load<'_> {
    fn turn(&mut self, _settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for _ in 0..counted {
            turn.add(0, self.second()?);
        }
        Ok(())
    }

    fn series(&self) -> usize {
        1
    }
}

/// A request, and how long the fork for it took.
struct Call<'a> {
    server: &'a Instance,
    times: PathBuf,
}

impl Call<'_> {
    /// All times noted so far.
    fn noted(&self) -> Result<u64, Error> {
        let mut count = [0; 8];
        let read = fs::File::open(&self.times).and_then(|file| file.read_exact_at(&mut count, 0));
        read.map_err(Error::io("read the times of forks"))?;
        Ok(u64::from_ne_bytes(count))
    }

    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a call")]
    fn one(&self) -> Result<f64, Error> {
        let before = self.noted()?;
        let answer = get(self.server.port);
        answer.map_err(|error| self.server.failure(&format!("did not answer a request: {error}")))?;
        let after = self.noted()?;
        if after <= before || after > 65_536 {
            let what = format!("noted {after} forks where {before} were noted before");
            return Err(self.server.failure(&what));
        }
        let mut time = [0; 8];
        let read = fs::File::open(&self.times).and_then(|file| file.read_exact_at(&mut time, 8 * after));
        read.map_err(Error::io("read the times of forks"))?;
        Ok(u64::from_ne_bytes(time) as f64 / 1e3)
    }
}

impl Arm for Call<'_> {
    fn turn(&mut self, settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        for repetition in 0..settle + counted {
            let time = self.one()?;
            if repetition >= settle {
                turn.add(0, time);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        1
    }
}
