//! HTTP server for metrics: `GET /metrics`, one request for each connection. Uses one thread, and limits the number of
//! connections, the size of a request and its time, so that slow, large or frequent requests cannot slow down the job.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::anyhow;
use ringmark_core::listener::{self, Connection, Limits, ListenerThread};
use ringmark_core::options::usage::usage;

/// Path of the metrics.
const PATH: &str = "/metrics";

/// Content type of Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

const TEXT: &str = "text/plain; charset=utf-8";

/// Timeout of a whole connection, regardless of activity. A scrape takes milliseconds.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of connections; beyond it, the oldest is closed. Accepting pauses after a burst of this many.
const MAX_CLIENTS: usize = 16;

/// Maximum size of a request's header section, in bytes. Prometheus sends about 300.
const MAX_REQUEST: usize = 1 << 13;

/// Maximum number of bytes read from a client after its response was sent.
const MAX_REST: usize = 1 << 16;

/// HTTP server that runs until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    _thread: ListenerThread,
}

impl MetricsServer {
    /// Listens on `address`; port 0 lets the kernel choose one. `metrics` returns the body of each response.
    pub fn open(address: SocketAddr, metrics: impl Fn() -> String + Send + 'static) -> anyhow::Result<MetricsServer> {
        let open = || {
            let socket = TcpListener::bind(address)?;
            let address = socket.local_addr()?;
            let limits = Limits { pending: MAX_CLIENTS, patience: CLIENT_TIMEOUT, burst: MAX_CLIENTS };
            let serve = move |_: &mut _, client| Ok(serve(client, &metrics));
            Ok(MetricsServer { address, _thread: ListenerThread::start(socket, limits, serve)? })
        };
        open().map_err(|error: std::io::Error| {
            let fix = match error.kind() {
                ErrorKind::AddrInUse => "choose another port, or 0 for any free port",
                ErrorKind::AddrNotAvailable => {
                    "set --metrics-bind to an address of this machine, or to 0.0.0.0 or [::] for all"
                }
                ErrorKind::PermissionDenied => "choose a port of at least 1024, or 0 for any free port",
                _ => "choose another --metrics-port or --metrics-bind",
            };
            usage(anyhow!("--metrics-port {}: cannot listen on {address}: {error}: {fix}", address.port()))
        })
    }

    /// Returns the URL for a browser.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

#[derive(Default)]
enum State {
    /// The head of the request is being received.
    #[default]
    Receiving,
    /// The response, and the number of bytes sent.
    Responding(Vec<u8>, usize),
    /// The response is sent; more bytes are read, because closing with unread bytes would reset the connection and
    /// discard it.
    Closing,
}

/// Serves a client that is ready: one read or one write. Returns the connection unless it is finished.
fn serve(mut client: Connection<State>, metrics: &impl Fn() -> String) -> Option<Connection<State>> {
    match &mut client.state {
        State::Responding(answer, sent) => match client.stream.write(&answer[*sent..]) {
            Ok(0) => return None,
            Ok(count) => *sent += count,
            Err(error) => return listener::is_passing(&error).then_some(client),
        },
        State::Receiving | State::Closing => {
            if !client.receive() {
                return None;
            }
        }
    }
    match &client.state {
        State::Receiving => {
            if let Some(answer) = answer(&client.received, metrics) {
                client.state = State::Responding(answer, 0);
                client.is_sending = true;
            }
        }
        State::Responding(answer, sent) => {
            if *sent == answer.len() {
                client.stream.shutdown(Shutdown::Write).ok()?;
                client.received.clear();
                client.state = State::Closing;
                client.is_sending = false;
            }
        }
        State::Closing => {
            if client.received.len() >= MAX_REST {
                return None;
            }
        }
    }
    Some(client)
}

/// Returns the response once the header section is complete or too long.
fn answer(head: &[u8], metrics: &impl Fn() -> String) -> Option<Vec<u8>> {
    let ends = |end: &[u8]| head.windows(end.len()).any(|bytes| bytes == end);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        let is_too_long = head.len() >= MAX_REQUEST;
        return is_too_long.then(|| {
            response(
                "431 Request Header Fields Too Large",
                TEXT,
                "request header too \
                 long\n",
                true,
            )
        });
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let [method, target, version] = words[..] else {
        return Some(response("400 Bad Request", TEXT, "not an HTTP/1 request\n", true));
    };
    if !version.starts_with("HTTP/1.") {
        return Some(response("400 Bad Request", TEXT, "not an HTTP/1 request\n", true));
    }
    let path = target.split('?').next().unwrap_or_default();
    let (is_get, is_head) = (method == "GET", method == "HEAD");
    Some(match path == PATH && (is_get || is_head) {
        true => response("200 OK", METRICS, &metrics(), is_get),
        false => response("404 Not Found", TEXT, "metrics are at GET /metrics\n", !is_head),
    })
}

fn response(status: &str, content: &str, body: &str, has_body: bool) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         Connection: close\r\n\r\n"
    );
    let body = if has_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};
    use std::thread;
    use std::time::Instant;

    use expect_test::expect;

    use super::*;

    fn server(text: &'static str) -> MetricsServer {
        MetricsServer::open((Ipv4Addr::LOCALHOST, 0).into(), move || text.to_owned()).expect("a port")
    }

    fn connect(server: &MetricsServer) -> TcpStream {
        let stream = TcpStream::connect(server.address).expect("listener accepts");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream
    }

    /// Sends `request`; returns the whole response.
    fn response_to(server: &MetricsServer, request: &[u8]) -> String {
        let mut stream = connect(server);
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered and closed");
        answer
    }

    #[test]
    fn metrics_are_served_only_at_their_path() {
        let server = server("a 1\n");
        assert!(server.url().starts_with("http://127.0.0.1:") && server.url().ends_with("/metrics"));
        let answer = response_to(&server, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 4\r\n"), "{head}");
        assert_eq!(body, "a 1\n");
        assert!(response_to(&server, b"GET /metrics?name=a HTTP/1.0\n\n").ends_with("\r\n\r\na 1\n"));
        assert_eq!(response_to(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n"), format!("{head}\r\n\r\n"));
        for request in ["GET / ", "GET /metrics/ ", "POST /metrics ", "GET http://a/metrics ", "\u{e4} /metrics "] {
            let answer = response_to(&server, format!("{request}HTTP/1.1\r\n\r\n").as_bytes());
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{request}: {answer}");
        }
        for request in [&b"\r\n\r\n"[..], b"GET /metrics\r\n\r\n", b"GET /metrics SMTP\r\n\r\n", b"\xff \xff\n\n"] {
            assert!(response_to(&server, request).starts_with("HTTP/1.1 400 Bad Request\r\n"));
        }
        let long = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'x'; MAX_REQUEST]].concat();
        assert!(response_to(&server, &long).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn used_port_is_reported() {
        let server = server("");
        let error = MetricsServer::open(server.address, String::new).expect_err("port is in use");
        let text = format!("{error:#}").replace(&server.address.port().to_string(), "PORT");
        expect!["--metrics-port PORT: cannot listen on 127.0.0.1:PORT: Address already in use (os error 98): choose another port, or 0 for any free port"].assert_eq(&text);
        // No machine has this address: it is reserved for documentation.
        let error =
            MetricsServer::open("192.0.2.1:0".parse().expect("an address"), String::new).expect_err("elsewhere");
        expect!["--metrics-port 0: cannot listen on 192.0.2.1:0: Cannot assign requested address (os error 99): set --metrics-bind to an address of this machine, or to 0.0.0.0 or [::] for all"].assert_eq(&format!("{error:#}"));
        let address = server.address;
        drop(server);
        MetricsServer::open(address, String::new).expect("free again");
    }

    #[test]
    fn slow_or_frequent_clients_do_not_block_others() {
        let server = server("a 1\n");
        // Silent clients, and one that sends a byte now and then.
        let mut silent: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
        let mut slow = connect(&server);
        assert!(response_to(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\na 1\n"));
        assert_eq!(silent[0].read(&mut [0]).expect("closed"), 0, "the oldest goes");
        let since = Instant::now();
        while slow.write_all(b"G").is_ok() {
            assert!(since.elapsed() < 12 * CLIENT_TIMEOUT, "connection is still open");
            thread::sleep(CLIENT_TIMEOUT / 50);
        }
    }

    #[test]
    fn client_that_never_stops_or_never_reads_is_closed() {
        // Larger than the kernel's buffers for a client that does not read.
        let text: &'static str = Box::leak("a 1\n".repeat(1 << 22).into_boxed_str());
        let server = server(text);
        let mut endless = connect(&server);
        endless.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let sent = (0..100_000).take_while(|_| endless.write_all(&[b'x'; 1 << 12]).is_ok()).count();
        assert!(sent < 100_000);
        let mut deaf = connect(&server);
        deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
        let since = Instant::now();
        while deaf.write_all(b"x").is_ok() {
            assert!(since.elapsed() < 12 * CLIENT_TIMEOUT, "connection is still open");
            thread::sleep(CLIENT_TIMEOUT / 50);
        }
        let mut read = Vec::new();
        // The response may end early, with or without an error.
        let _ = deaf.read_to_end(&mut read);
        assert!(read.len() < text.len(), "client does not read");
        assert!(response_to(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    }
}
