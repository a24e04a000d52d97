//! `--prometheus ADDR`: the smallest HTTP server that a scraper accepts. It handles one request at
//! a time, bounded in size and time, and answers with the text that the watching loop last set. The
//! crate tiny_http is no substitute: it has no time limit, and silent clients would hold threads
//! for ever.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;

use crate::exit::Usage;

/// A scraper that sends nothing is cut off after this long.
const PATIENCE: Duration = Duration::from_secs(2);
const LARGEST_REQUEST: usize = 8 << 10;

/// The text that is served.
#[derive(Debug, Clone, Default)]
pub(super) struct Page(Arc<Mutex<String>>);

impl Page {
    pub(super) fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Binds and serves from a thread of its own until the process ends. Returns the address, whose
/// port may have been 0.
pub(super) fn start(address: SocketAddr, page: Page) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).map_err(|error| {
        Usage(format!(
            "cannot listen on {address} for --prometheus: {error}; give another address of this machine, or port 0 for a free one"
        ))
    })?;
    let bound = listener.local_addr().context("cannot tell the address of --prometheus")?;
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // A scraper that goes away loses only its own answer.
                let _ = answer(stream, &page);
            }
        })
        .context("cannot start the thread for --prometheus")?;
    Ok(bound)
}

fn answer(mut stream: TcpStream, page: &Page) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0u8; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") && request.len() < LARGEST_REQUEST {
        match stream.read(&mut part)? {
            0 => break,
            bytes => request.extend_from_slice(&part[..bytes]),
        }
    }
    let (status, kind, body) = respond(&request, page);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if request.starts_with(b"HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

fn respond(request: &[u8], page: &Page) -> (&'static str, &'static str, String) {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target) = (words.next(), words.next());
    // A scraper may be configured to send parameters.
    let path = target.and_then(|target| target.split(|&byte| byte == b'?').next());
    match (method, path) {
        (Some(b"GET" | b"HEAD"), Some(b"/metrics")) => {
            let text = page.get();
            if text.is_empty() {
                // For a scraper, an empty answer means that all metrics are gone.
                return ("503 Service Unavailable", PLAIN, "the watch is about to begin\n".to_owned());
            }
            if accepts_openmetrics(request) {
                ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
            } else {
                ("200 OK", "text/plain; version=0.0.4; charset=utf-8", classic(&text))
            }
        }
        (Some(b"GET" | b"HEAD"), Some(_)) => ("404 Not Found", PLAIN, "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", PLAIN, "GET /metrics\n".to_owned()),
    }
}

/// Whether a scraper asks for OpenMetrics, as Prometheus does. curl, promtool and older agents get
/// the text format they know.
fn accepts_openmetrics(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    text.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("accept")
            && value.to_ascii_lowercase().contains("application/openmetrics-text")
    })
}

/// Turns an OpenMetrics page into text format 0.0.4. There a counter's family has the name of its
/// samples, with `_total`, and no mark ends the page.
fn classic(page: &str) -> String {
    let type_of = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        (kind == "counter").then(|| name.to_owned())
    };
    let counters: std::collections::HashSet<String> = page.lines().filter_map(type_of).collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text += &format!("# {what} {name}_total {rest}\n");
            }
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_served() {
        let page = Page::default();
        assert!(respond(b"GET /metrics HTTP/1.1\r\n\r\n", &page).0.starts_with("503"));
        page.set("x 1\n".to_owned());
        assert_eq!(respond(b"GET /metrics HTTP/1.1\r\n\r\n", &page).2, "x 1\n");
        assert_eq!(respond(b"GET /metrics?a=b HTTP/1.1\r\n\r\n", &page).0, "200 OK");
        assert_eq!(respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", &page).0, "200 OK");
        assert!(respond(b"GET /../etc/passwd HTTP/1.1\r\n", &page).0.starts_with("404"));
        assert!(respond(b"POST /metrics HTTP/1.1\r\n", &page).0.starts_with("405"));
        assert!(respond(b"\0\xff", &page).0.starts_with("405"));
    }

    /// `curl | promtool check metrics` found counters without help, because every client was sent
    /// OpenMetrics.
    #[test]
    fn who_does_not_ask_for_openmetrics_gets_the_older_format() {
        let page = Page::default();
        let text = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{k=\"# TYPE x counter\"} 1\n# HELP g Now.\n# TYPE g gauge\ng 2\n# EOF\n";
        page.set(text.to_owned());
        let old = respond(b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n", &page);
        assert!(old.1.starts_with("text/plain; version=0.0.4"));
        let expected = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{k=\"# TYPE x counter\"} 1\n# HELP g Now.\n# TYPE g gauge\ng 2\n";
        assert_eq!(old.2, expected);
        let asked = b"GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n";
        assert_eq!(respond(asked, &page).2, text);
    }
}
