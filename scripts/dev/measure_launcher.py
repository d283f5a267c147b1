#!/usr/bin/env python3
"""Measures CPU time and memory of the launcher while 512 to 65,536 simulated ranks report to it.

    scripts/dev/measure_launcher.py [--ranks 512,4096,16384,65536] [--seconds 40] [--stall-timeout 60] [--shared]
                                    [--program target/release/ringmark]

The launcher runs a sweep with one case. This script replaces mpirun and reports for every rank as ringmark-worker does, over
one connection per rank. After --seconds, it stops reporting for the second-to-last rank. Prints a Markdown table: share of a
core, memory, sizes of the progress file, the metrics and the longest log line, reports per second, and the time until the
launcher named the stopped rank.

Every connection uses a file descriptor of the launcher. With --shared, or if there are more ranks than `ulimit -Hn`, ranks
share the connections of a few processes. shared_connections.c, which is preloaded into the launcher and needs a C compiler,
then provides the launcher's descriptors, so the CPU time excludes the kernel's share of reading.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

RANKS_PER_HOST = 8
RANKS_PER_PROCESS = 4096

encode = json.JSONEncoder(separators=(",", ":")).encode


def host(rank):
    return f"simulated-node{rank // RANKS_PER_HOST + 1:05}"


class Shared:
    """A rank's connection that sends its reports over a shared one, for shared_connections.c."""

    def __init__(self, rank, port, carrier):
        self.rank, self.carrier = rank, carrier
        with socket.socket() as connection:
            connection.bind((f"127.64.{rank // 256}.{rank % 256}", 0))
            connection.connect(("127.0.0.1", port))

    def sendall(self, line):
        self.carrier.sendall(struct.pack("<II", self.rank, len(line)) + line)


def connect(host, port):
    connection = socket.socket()
    connection.bind((host, 0))
    connection.connect(("127.0.0.1", port))
    return connection


def report_ranks(first, last, stopped, seconds, address, begun):
    """Reports for ranks `first` to `last` - 1 until the launcher closes their connections."""
    token, _, interval, addresses = address.split("@")
    interval, port = float(interval), int(addresses.rsplit(":", 1)[1])
    is_shared = "LD_PRELOAD" in os.environ
    carrier = connect(f"127.65.0.{1 + first // RANKS_PER_PROCESS}", port) if is_shared else None
    connections = {}
    progress = {"iteration": 0, "phase": "starting", "is_waiting": False, "chunks": 0, "processor_time": 0.1}
    progress = encode({"kind": "at", **progress, "available_memory": 10**10})
    for rank in range(first, last):
        # One address has only about 28,000 ports.
        connection = Shared(rank, port, carrier) if is_shared else connect(f"127.0.1.{1 + rank // 16384}", port)
        hello = {"kind": "hello", "token": token, "rank": rank, "host": host(rank), "process": 1000 + rank}
        connection.sendall(f"{encode(hello)}\n{progress}\n".encode())
        connections[rank] = connection
    begun.with_suffix(f".{first}").touch()
    while not begun.exists():
        time.sleep(0.05)
    begin = time.monotonic()
    due = {rank: interval * (rank - first) / (last - first) for rank in connections}
    while True:
        now = time.monotonic() - begin
        iteration = 1 + int(now / 2)
        line = {"kind": "at", "iteration": iteration, "phase": "forward", "is_waiting": False, "chunks": 3 * iteration}
        line |= {"processor_time": now, "available_memory": 10**10, "step": 2.0, "before_allreduce": 1.5}
        line = (encode(line) + "\n").encode()
        waits = line.replace(b'"forward"', b'{"exchange":{"operation":"all-reduce","bucket":1}}')
        waits = re.sub(rb'"chunks":\d+', b'"chunks":1', waits.replace(b'"is_waiting":false', b'"is_waiting":true'))
        waits = re.sub(rb'"iteration":\d+', b'"iteration":%d' % (1 + int(seconds / 2)), waits)
        is_over = now >= seconds
        for rank, due_time in due.items():
            if due_time <= now and not (is_over and rank == stopped):
                due[rank] = due_time + interval
                try:
                    connections[rank].sendall(waits if is_over else line)
                except OSError:
                    return
        time.sleep(0.05)


def mpirun():
    """Acts as mpirun: the launcher starts this script by that name, first with --version."""
    if "--version" in sys.argv:
        print("mpirun (Open MPI) 4.1.4")
        return
    words = os.environ["SIMULATION"].split()
    ranks, seconds, begun = int(words[0]), float(words[1]), pathlib.Path(words[2])
    children = {}
    for first in range(0, ranks, RANKS_PER_PROCESS):
        if (child := os.fork()) == 0:
            last, address = min(first + RANKS_PER_PROCESS, ranks), os.environ["RINGMARK_LAUNCHER"]
            report_ranks(first, last, ranks - 2, seconds, address, begun)
            os._exit(0)
        children[first] = child
    while not all(begun.with_suffix(f".{first}").exists() for first in children):
        time.sleep(0.05)
    begun.touch()
    for child in children.values():
        os.waitpid(child, 0)


def used(process):
    """Returns a process's CPU seconds and peak memory in bytes."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), peak


def metrics(port):
    """Returns the metrics that the launcher serves to Prometheus."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


@contextlib.contextmanager
def ended(process):
    """Ends the process after a `with` block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def measure(ranks, is_shared, options):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "mpirun").symlink_to(pathlib.Path(__file__).resolve())
        hosts = -(-ranks // RANKS_PER_HOST)
        slots = min(ranks, RANKS_PER_HOST)
        (folder / "hosts").write_text("".join(f"{host(8 * number)} slots={slots}\n" for number in range(hosts)))
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        environment["SIMULATION"] = f"{ranks} {options.seconds} {folder / 'begun'}"
        words = ["sweep", "--no-doctor", "--worker", shutil.which("true"), "--hostfile", str(folder / "hosts")]
        words += ["--cases", f"{hosts}n{slots}g", "--runs", "1", "--stall-timeout", str(options.stall_timeout)]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words += ["--out", str(folder / "out"), "--metrics-port", str(port)]
        if is_shared:
            library, source = folder / "shared_connections.so", pathlib.Path(__file__).with_name("shared_connections.c")
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
            environment["LD_PRELOAD"] = str(library)
        with (
            open(folder / "log", "wb") as log,
            ended(subprocess.Popen([options.program, *words], env=environment, stdout=log, stderr=log)) as process,
        ):
            while not (folder / "begun").exists():
                if process.poll() is not None:
                    sys.exit((folder / "log").read_text()[-2000:])
                time.sleep(0.05)
            begun = time.monotonic()
            # Exclude the time of connecting.
            time.sleep(options.seconds / 2)
            if process.poll() is not None:
                sys.exit((folder / "log").read_text()[-2000:])
            before, since = used(process.pid)[0], time.monotonic()
            time.sleep(begun + options.seconds - time.monotonic())
            after, memory = used(process.pid)
            share = (after - before) / (time.monotonic() - since)
            progress = folder / "out/.ringmark.progress.json"
            size = progress.stat().st_size
            stopped = time.monotonic()
            scraped = len(metrics(port))
            longest = max(len(line) for line in (folder / "log").read_bytes().splitlines())
            process.wait()
            named = time.monotonic() - stopped
        log_text = (folder / "log").read_text()
        pattern = rf"rank {ranks - 2} of {ranks} on host {host(ranks - 2)} \(process {998 + ranks}\) has not reported"
        if not re.search(pattern, log_text):
            sys.exit(f"{ranks} ranks: the launcher did not name the stopped rank: {log_text[-2000:]}")
        interval = max(1.0, min(ranks / 4096, options.stall_timeout / 4))
        print(
            f"| {ranks:,}{', shared' if is_shared else ''} | {100 * share:.1f} % | {memory / 1e6:.0f} MB | {memory / 1e3 / ranks:.1f} kB | "
            f"{size / 1e3:.0f} kB | {scraped / 1e3:.0f} kB | {longest} | {ranks / interval:.0f} | {named:.0f} s |",
            flush=True,
        )


def main():
    if pathlib.Path(sys.argv[0]).name == "mpirun":
        return mpirun()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", default="512,4096,16384,65536")
    options.add_argument("--seconds", type=float, default=40)
    options.add_argument("--stall-timeout", type=int, default=60)
    options.add_argument("--shared", action="store_true")
    options.add_argument("--program", default="target/release/ringmark")
    options = options.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    print(
        "| ranks | share of a core | memory | per rank | progress file | metrics | longest line | reports per second "
        "| stopped rank named after |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for ranks in [int(word) for word in options.ranks.split(",")]:
        measure(ranks, options.shared or ranks + 512 > limit, options)


if __name__ == "__main__":
    main()
