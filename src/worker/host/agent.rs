//! Agent of `ringmark doctor` on a host: prints what the worker finds there, then measures links to other hosts on
//! request. The agent is not a rank: it never joins a job, and it ends with the ssh session that started it.

use std::fs;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringmark_core::dimension::{Bytes, DeviceChoice, GigabytesPerSecond, Seconds};
use ringmark_core::host::processors::Topology;
use ringmark_core::host::{Inspection, Library, Order, Reply, memory, unix_time};
use ringmark_core::listener::{Limits, Listener};

use crate::ffi::cuda::{self, Cuda, NoCuda};
use crate::ffi::nccl::Nccl;
use crate::ffi::process::libraries;
use crate::ffi::torch::shim;
use crate::host::facts;
use crate::host::network;

/// Time without requests after which the agent exits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout for the answer of another host.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for a slow link to transmit the data already passed to the kernel.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits on connections that have not sent anything.
const LIMITS: Limits = Limits { pending: 64, patience: REPLY_TIMEOUT, burst: 64 };

/// Maximum number of connections that are answered at once, each by a thread; others are closed.
const MAX_SERVED: usize = 64;

/// Name of these threads.
const SERVING_THREAD: &str = "doctor link";

/// Size of a write in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// Number of one-byte round trips whose median gives the latency.
const PINGS: usize = 100;

/// Number of round trips before them that are not measured.
const WARM_UP_PINGS: usize = 10;

/// First byte of a connection's second phase: the bytes that follow are counted and not answered.
const SEND: u8 = b's';
const PING: u8 = b'p';

/// Prints the facts of this host, then executes requests until standard input ends.
pub fn run(choice: DeviceChoice) -> Result<()> {
    print(&inspect(choice)?)?;
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match orders.recv_timeout(REQUEST_TIMEOUT) {
            Ok(line) => {
                let line = line.context("cannot read requests from standard input")?;
                let order = serde_json::from_str(&line).with_context(|| format!("unknown request {line:?}"))?;
                print(&execute(order).unwrap_or_else(|error| Reply::Failed(format!("{error:#}"))))?;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => bail!("no request for {} s", REQUEST_TIMEOUT.as_secs()),
        }
    }
}

fn print(message: &impl serde::Serialize) -> Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).context("cannot write to the launcher")
}

fn inspect(choice: DeviceChoice) -> Result<Inspection> {
    // Must precede any other call of libtorch: see the documentation of `load`.
    let cuda = cuda::load(choice);
    let nccl = cuda.as_ref().ok().map(nccl_version).transpose()?;
    let loaded = libraries::loaded();
    let library = |version: String, name: &str| {
        let path = loaded.iter().find(|path| libraries::is_named(path, name)).cloned().unwrap_or_default();
        Library { version, bytes: Bytes(fs::metadata(&path).map_or(0, |file| file.len())), path }
    };
    let topology = Topology::read();
    Ok(Inspection {
        ringmark_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch: library(shim::libtorch_version(), "libtorch_cpu.so"),
        mpi: library(libraries::mpi_version(), "libmpi.so"),
        nccl: nccl.map(|version| library(version, "libnccl.so")),
        nccl_copies: loaded.iter().filter(|path| libraries::is_named(path, "libnccl.so")).cloned().collect(),
        cuda_missing: cuda.as_ref().err().map(NoCuda::reason).map(str::to_owned),
        devices: cuda.as_ref().map_or(0, |cuda| cuda.devices.len() as u32),
        cuda_driver: cuda::driver_version().map(|version| version.to_string()),
        cuda_runtime: cuda::runtime_version().map(|version| version.to_string()),
        interfaces: network::interfaces()?,
        processor: facts::processor_name(),
        cores: facts::cores(),
        cores_per_node: topology.cores_per_node(),
        threads_per_core: topology.threads_per_core(),
        available_memory: Some(memory::available()),
    })
}

fn nccl_version(cuda: &Cuda) -> Result<String> {
    Nccl::new(cuda.nccl)?.version()
}

fn execute(order: Order) -> Result<Reply> {
    Ok(match order {
        Order::Clock => Reply::Clock(unix_time()),
        Order::Listen(address) => Reply::Listening(listen(address)?),
        Order::Measure { to, send } => measure(to, send)?,
    })
}

/// Accepts connections on `address` for the rest of this process; returns the port.
fn listen(address: Ipv4Addr) -> Result<u16> {
    let listener = TcpListener::bind((address, 0)).with_context(|| format!("cannot listen on address {address}"))?;
    let port = listener.local_addr()?.port();
    let mut listener = Listener::<()>::new(listener, LIMITS)?;
    let served = Arc::new(());
    let mut start_serving = move |listener: &mut Listener<()>, connection| {
        let (stream, own) = (listener.release(connection), Arc::clone(&served));
        if let (Ok(stream), true) = (stream, Arc::strong_count(&served) <= 1 + MAX_SERVED) {
            // The other end reports a connection that breaks, or for which the host has no thread.
            let _ = thread::Builder::new().name(SERVING_THREAD.to_owned()).spawn(move || {
                let _own = own;
                serve(stream)
            });
        }
        Ok(None)
    };
    thread::spawn(move || while listener.serve_pending(&mut start_serving).is_ok() {});
    Ok(port)
}

/// Serves the other end of [`measure`]: answers pings, then counts received bytes and replies with the number.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    for _ in 0..WARM_UP_PINGS + PINGS {
        if byte[0] == SEND {
            break;
        }
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
    }
    if byte[0] != SEND {
        return Ok(());
    }
    let mut block = vec![0; BLOCK_BYTES];
    let mut count: u64 = 0;
    loop {
        match stream.read(&mut block) {
            Ok(0) => return stream.write_all(&count.to_le_bytes()),
            Ok(bytes) => count += bytes as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn measure(to: SocketAddrV4, send: Option<Seconds>) -> Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&to.into(), REPLY_TIMEOUT).map_err(|error| match error.kind() {
        // The error's own message describes a poll, not the network.
        ErrorKind::TimedOut => anyhow::anyhow!("no answer within {} s", REPLY_TIMEOUT.as_secs()),
        _ => error.into(),
    })?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let IpAddr::V4(from) = stream.local_addr()?.ip() else { bail!("{to} is reached over IPv6") };
    let latency = latency(&mut stream).context("no answer on the open connection")?;
    let speed = send.map(|time| speed(&mut stream, time)).transpose().context("data was not received")?;
    Ok(Reply::Measured { from, latency, speed })
}

/// Returns half the median round-trip time of one byte.
fn latency(stream: &mut TcpStream) -> io::Result<Seconds> {
    let mut times = Vec::new();
    for _ in 0..WARM_UP_PINGS + PINGS {
        let start = Instant::now();
        let mut byte = [PING];
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let counted = &mut times[WARM_UP_PINGS..];
    counted.sort_by(f64::total_cmp);
    Ok(Seconds(counted[counted.len() / 2] / 2.0))
}

/// Sends for `time`, then waits until the other end has counted all bytes.
fn speed(stream: &mut TcpStream, time: Seconds) -> io::Result<GigabytesPerSecond> {
    stream.write_all(&[SEND])?;
    let block = vec![0; BLOCK_BYTES];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < time.0 {
        stream.write_all(&block)?;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(DRAIN_TIMEOUT))?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    Ok(GigabytesPerSecond(u64::from_le_bytes(count) as f64 / start.elapsed().as_secs_f64() / 1e9))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn link_latency_and_speed_are_measured() {
        let Reply::Listening(port) = execute(Order::Listen(Ipv4Addr::LOCALHOST)).expect("a port") else {
            panic!("none")
        };
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        for send in [None, Some(Seconds(0.05))] {
            let reply = execute(Order::Measure { to, send }).expect("it answers");
            let Reply::Measured { from, latency, speed } = reply else { panic!("{reply:?}") };
            assert_eq!((from, speed.is_some()), (Ipv4Addr::LOCALHOST, send.is_some()));
            assert!(latency.0 > 0.0 && speed.is_none_or(|speed| speed.0 > 0.001), "{latency} {speed:?}");
        }
        assert!(matches!(execute(Order::Clock), Ok(Reply::Clock(now)) if now.0 > 1.7e9));
    }

    #[test]
    fn silent_connections_are_limited_and_have_no_thread() {
        let port = listen(Ipv4Addr::LOCALHOST).expect("a port");
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let mut silent: Vec<TcpStream> = (0..=LIMITS.pending).map(|_| TcpStream::connect(to).expect("open")).collect();
        let reply = execute(Order::Measure { to, send: None });
        assert!(matches!(reply, Ok(Reply::Measured { .. })), "{reply:?}");
        // Threads of this test and of concurrent tests that measure a link.
        let threads = fs::read_dir("/proc/self/task").expect("this process").flatten();
        let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        let serving = names.filter(|name| name.trim_end() == SERVING_THREAD).count();
        assert!(serving < 10, "{serving} threads");
        assert_eq!(silent[0].read(&mut [0]).expect("an end"), 0, "the oldest is closed");
    }

    #[test]
    fn unanswered_connection_is_an_error() {
        // A port that is bound but not listening: the kernel refuses connections.
        let taken = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("bound");
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, taken.port());
        let error = format!("{:#}", execute(Order::Measure { to, send: None }).expect_err("no listener"));
        expect!["Connection refused (os error 111)"].assert_eq(&error);
        assert!(execute(Order::Listen(Ipv4Addr::new(198, 51, 100, 1))).is_err(), "no address of this machine");
    }

    #[test]
    fn inspection_lists_loaded_libraries() {
        let found = inspect(DeviceChoice::Cpu).expect("an inspection");
        assert_eq!(found.cuda_missing.as_deref(), Some("--device cpu was requested"));
        assert!(found.libtorch.path.contains("/libtorch_cpu.so") && found.libtorch.bytes.0 > 1_000_000, "{found:?}");
        assert!(found.mpi.version.starts_with("Open MPI") && found.mpi.path.contains("/libmpi.so"), "{found:?}");
        assert!(found.nccl.is_none() && found.cores >= 1 && !found.interfaces.is_empty(), "{found:?}");
    }
}
