//! Rendezvous of workers and servers: every process announces itself through MPI, servers with their addresses; then
//! workers connect through TCP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::host::Interface;
use serde::{Deserialize, Serialize};

use crate::exchange::kv_store::accept;
use crate::exchange::kv_store::protocol::{self, FrameKind, Header, Hello, MAX_HELLO_BYTES, MAX_TIMEOUTS};
use crate::host::{facts, network};
use crate::job::heartbeat;
use crate::job::world::{self, World};

/// Timeout of a connection to one address of a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the hello on a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout between two bytes of a frame, if no launcher sets one.
const FRAME_TIMEOUT: Duration = Duration::from_secs(48);

/// Share of the launcher's timeout, so that an incomplete frame is reported before the launcher ends the job without a
/// cause.
const STALL_TIMEOUT_SHARE: f64 = 0.8;

/// Returns the read timeout of a connection; [`MAX_TIMEOUTS`] in a row end a frame.
pub fn read_timeout() -> Result<Duration> {
    let timeout = heartbeat::launcher()?.map(|launcher| launcher.patience.0 * STALL_TIMEOUT_SHARE);
    Ok(timeout.map_or(FRAME_TIMEOUT, Duration::from_secs_f64) / MAX_TIMEOUTS)
}

/// Announcement of a process before there are connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Announcement {
    Worker(WorkerFacts),
    Server(ServerFacts),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerFacts {
    pub host: String,
    /// Ranks whose gradients are summed in its pushes; 0 if it pushes nothing.
    pub summed: u32,
    /// Lengths of the parameters in the order of backward; rank 0 alone fills it.
    pub lengths: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerFacts {
    pub host: String,
    /// Secret of this job.
    pub token: u64,
    /// Addresses that it listens on, in the order in which workers try them.
    pub addresses: Vec<SocketAddr>,
}

/// All processes of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Membership {
    /// Workers in rank order.
    pub workers: Vec<WorkerFacts>,
    /// Servers in rank order.
    pub servers: Vec<ServerFacts>,
}

impl Membership {
    /// Exchanges the announcements. All workers and servers call this together.
    pub fn exchange(own: &Announcement, world: &World) -> Result<Membership> {
        let mut membership = Membership { workers: Vec::new(), servers: Vec::new() };
        for text in world.gather_text_from_all(&serde_json::to_string(own)?) {
            match serde_json::from_str(&text).context("cannot parse the announcement of a process")? {
                Announcement::Worker(worker) => membership.workers.push(worker),
                Announcement::Server(server) => membership.servers.push(server),
            }
        }
        Ok(membership)
    }

    /// Returns the ranks that push, in order.
    pub fn pushers(&self) -> Vec<u32> {
        (0..).zip(&self.workers).filter(|(_, worker)| worker.summed > 0).map(|(rank, _)| rank).collect()
    }
}

/// Waits until all processes are ready to connect. All workers and servers call this together. If one is not, the
/// others wait to be ended with the job, so that only its message is reported.
pub fn ready<T>(own: Result<T>, world: &World) -> Result<T> {
    let problem = own.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    let problems = world.gather_text_from_all(&problem);
    let ready = own?;
    if let Some(problem) = problems.into_iter().find(|problem| !problem.is_empty()) {
        thread::sleep(world::EXIT_DELAY);
        bail!("another process is not ready: {problem}");
    }
    Ok(ready)
}

/// Opens a port on every address of this host; returns it with the addresses for workers.
pub fn listen() -> Result<(TcpListener, Vec<SocketAddr>)> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a port for this server")?;
    let port = listener.local_addr()?.port();
    let addresses = addresses(&network::interfaces()?, facts::variable("NCCL_SOCKET_IFNAME").as_deref());
    Ok((listener, addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()))
}

/// Returns the addresses of the interface that was chosen for MPI and NCCL, else all; the loopback's, which reaches
/// this host only, is last.
fn addresses(interfaces: &[Interface], chosen: Option<&str>) -> Vec<IpAddr> {
    let chosen = chosen.map(|name| name.trim_start_matches('='));
    let is_chosen = |interface: &Interface| chosen == Some(&interface.name);
    let has_chosen = interfaces.iter().any(|interface| is_chosen(interface) && !interface.addresses.is_empty());
    let is_wanted =
        |interface: &&Interface| interface.is_up && (interface.is_loopback || !has_chosen || is_chosen(interface));
    let mut wanted: Vec<&Interface> = interfaces.iter().filter(is_wanted).collect();
    wanted.sort_by_key(|interface| interface.is_loopback);
    wanted.into_iter().flat_map(|interface| &interface.addresses).map(|address| IpAddr::V4(address.addr())).collect()
}

/// Accepts the workers that push and returns their connections in order.
pub fn accept(listener: TcpListener, token: u64, pushers: usize) -> Result<Vec<TcpStream>> {
    let _waiting = heartbeat::wait();
    accept::accept_workers(listener, token, pushers, HELLO_TIMEOUT)
}

/// Connects worker `pusher` to `server`.
pub fn connect(server: &ServerFacts, number: usize, pusher: usize) -> Result<TcpStream> {
    let own_host = facts::host_name();
    let mut addresses = server.addresses.clone();
    // On the same host the loopback works without a network card; from another host it leads elsewhere.
    match server.host == own_host {
        true => addresses.sort_by_key(|address| !address.ip().is_loopback()),
        false => addresses.retain(|address| !address.ip().is_loopback()),
    }
    let mut problems = Vec::new();
    for address in &addresses {
        match handshake(address, &Hello { token: server.token, pusher }) {
            Ok(stream) => return Ok(stream),
            Err(error) => problems.push(format!("{address}: {error:#}")),
        }
    }
    bail!(
        "cannot connect to server {number} on host {} from host {own_host} by TCP ({}): choose a network between the \
         hosts with --interface, or allow the traffic in the firewall",
        server.host,
        if problems.is_empty() { "no address".to_owned() } else { problems.join("; ") }
    )
}

fn handshake(address: &SocketAddr, hello: &Hello) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    protocol::send_message(&mut stream, FrameKind::Hello, hello)?;
    let header = Header::read(&mut stream).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => anyhow::anyhow!("the listener is not a server of this job"),
        _ => error.into(),
    })?;
    ensure!(header.kind == FrameKind::Welcome, "unexpected reply {:?}", header.kind);
    protocol::read_message::<()>(&header, &mut stream, MAX_HELLO_BYTES)?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn interface(name: &str, address: &str, is_loopback: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            is_up: true,
            is_loopback,
            is_bridge: false,
            link_megabits: None,
            addresses: vec![address.parse().expect("an address")],
        }
    }

    #[test]
    fn chosen_interface_comes_first() {
        let all = [
            interface("lo", "127.0.0.1/8", true),
            interface("a", "10.0.0.1/24", false),
            interface("b", "10.1.0.1/24", false),
        ];
        let texts = |chosen| addresses(&all, chosen).iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(texts(None), "10.0.0.1 10.1.0.1 127.0.0.1");
        assert_eq!(texts(Some("=b")), "10.1.0.1 127.0.0.1");
        assert_eq!(texts(Some("ib0")), "10.0.0.1 10.1.0.1 127.0.0.1");
    }

    #[test]
    fn only_workers_of_the_job_are_welcomed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || accept(listener, 5, 2));
        drop(TcpStream::connect(address).expect("listens"));
        assert!(handshake(&address, &Hello { token: 4, pusher: 0 }).is_err(), "another job's token");
        let facts = ServerFacts { host: facts::host_name(), token: 5, addresses: vec![address] };
        let workers = [1, 0].map(|pusher| connect(&facts, 0, pusher).expect("expected"));
        let accepted = server.join().expect("no panic").expect("both");
        assert_eq!(accepted[0].peer_addr().expect("connected"), workers[1].local_addr().expect("connected"));
        let nowhere = ServerFacts { addresses: Vec::new(), ..facts };
        let error = connect(&nowhere, 3, 0).expect_err("nowhere").to_string();
        let expected = "cannot connect to server 3 on host ";
        assert!(error.starts_with(expected) && error.contains("(no address)"), "{error}");
    }
}
