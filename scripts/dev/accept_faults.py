#!/usr/bin/env python3
"""Runs `ringmark accept` on simulated hosts with a fault, and checks that the verdict names the fault and nothing else.

    scripts/dev/accept_faults.py [FAULT...] [--hosts 8] [--clean 1] [--out FOLDER] [--ringmark PATH]

Creates the hosts with scripts/dev/cluster.sh (needs root) and one more, from which ringmark runs. Each host has one core for a
share of the time that is the same for all of them, so that they are as fast as each other on a machine with few cores.
Faults: clean, quota (half of the core time), link (an outgoing rate), pair (packets between two hosts are dropped),
dead-STAGE (a host loses its network after the first measurement of alone, pairs, groups or whole), unreachable (a host without a
network), late (a login takes 7 seconds), disk (a full temporary folder), version (another build of the worker), and several of
them at once. Without arguments: all, and clean as often as --clean. Writes a Markdown table and the folders of all runs.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = str(ROOT / "scripts/dev/cluster.sh")
NAME = "accept"
ENVIRONMENT = {**os.environ, "CLUSTER_NAME": NAME}
PERIOD = 20_000  # microseconds: a job lasts hundreds of periods, and the smallest quota is 1,000


class Cluster:
    """Simulated hosts with equal shares of the cores."""

    def __init__(self, hosts, share):
        self.hosts, self.share = hosts, share

    def __enter__(self):
        self.call("down")
        self.call("up", str(self.hosts + 1))
        for host in range(1, self.hosts + 1):
            pid = pathlib.Path(f"/run/{NAME}-cluster/{NAME}-{host}/sshd.pid").read_text().strip()
            core = sorted(os.sched_getaffinity(0))[host % len(os.sched_getaffinity(0))]
            subprocess.run(["taskset", "-cp", str(core), pid], check=True, stdout=subprocess.DEVNULL)
            self.call("quota", str(host), "100")
            self.set_share(host, self.share)
        return self

    def __exit__(self, *_):
        self.call("down")

    def call(self, *words):
        return subprocess.run([CLUSTER, *words], check=True, env=ENVIRONMENT, text=True, capture_output=True).stdout

    def on(self, host, command):
        return self.call("on", str(host), *shlex.split(command))

    def set_share(self, host, share):
        """Limits the host to `share` of a core, and prefers it to other programs of the machine."""
        old, new = pathlib.Path(f"/sys/fs/cgroup/cpu/{NAME}-{host}"), pathlib.Path(f"/sys/fs/cgroup/{NAME}-{host}")
        quota = int(PERIOD * share)
        if old.is_dir():
            # The quota may not exceed the period's maximum at any time.
            for file, value in [
                ("cpu.cfs_quota_us", -1),
                ("cpu.cfs_period_us", PERIOD),
                ("cpu.cfs_quota_us", quota),
                ("cpu.shares", 65536),
            ]:
                (old / file).write_text(str(value))
        else:
            (new / "cpu.max").write_text(f"{quota} {PERIOD}")
            (new / "cpu.weight").write_text("10000")

    def name(self, host):
        return f"{NAME}-{host}"


def journal_has(out, stage):
    """Returns true once the journal contains a measurement of `stage`."""
    try:
        return f'"stage":"{stage}"' in (out / "accept.jsonl").read_text()
    except FileNotFoundError:
        return False


def dead_from(host, stage):
    """Returns a fault that cuts off the host once a job of the stage was measured."""

    def start(cluster, out, worker):
        def wait():
            while not journal_has(out, stage):
                time.sleep(0.2)
            cluster.on(host, "ip link set eth0 down")

        threading.Thread(target=wait, daemon=True).start()

    return start


def drop_packets(cluster, host, other):
    cluster.on(host, f"iptables -A OUTPUT -d 10.77.0.{other} -j DROP")


def fill_disk(cluster, host):
    folder = f"/run/{NAME}-cluster/{cluster.name(host)}/tmp"
    cluster.on(host, f"mount -t tmpfs -o size=4m tmpfs {folder}")
    cluster.on(host, f"dd if=/dev/zero of={folder}/full bs=4096 count=1024 status=none")


def delay_logins(cluster, host, out):
    """Lets each login of the host sleep in the start-up file of its shell."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "bashrc").write_text("sleep 7\n")
    home = pathlib.Path.home() / ".bashrc"
    home.touch()
    cluster.on(host, f"mount --bind {out / 'bashrc'} {home}")


def replace_worker(cluster, host, out, worker):
    """Shows the host a worker that differs in its last byte."""
    out.mkdir(parents=True, exist_ok=True)
    other = out / "other-worker"
    shutil.copy2(worker, other)
    with other.open("ab") as file:
        file.write(b"\n")
    cluster.on(host, f"mount --bind {other} {worker}")


def at_once(*faults):
    """Returns a fault that consists of others."""
    what = "; ".join(FAULTS[fault][0] for fault in faults)
    named = [part for fault in faults for part in FAULTS[fault][2]]

    def start(cluster, out, worker):
        for fault in faults:
            FAULTS[fault][1](cluster, out, worker)

    return what, start, named


# Name: what is done, how, and the parts of the fleet that must be named: hosts, links, GPUs.
FAULTS = {
    "clean": ("nothing", lambda cluster, out, worker: None, []),
    "quota": ("host 5: half of its core time", lambda cluster, out, worker: cluster.set_share(5, cluster.share / 2), ["5"]),
    "link": ("host 3: 40 Mbit/s (tbf)", lambda cluster, out, worker: cluster.on(3, "tc qdisc replace dev eth0 root tbf rate 40mbit burst 256k latency 50ms"), ["3"]),
    "pair": ("hosts 2 and 6: packets dropped (iptables)", lambda cluster, out, worker: drop_packets(cluster, 2, 6), ["2-6"]),
    "dead-alone": ("host 1: link down while hosts are alone", dead_from(1, "alone"), ["1"]),
    "dead-pairs": ("host 7: link down during the pairs", dead_from(7, "pairs"), ["7"]),
    "dead-groups": ("host 2: link down during the groups", dead_from(2, "groups"), ["2"]),
    "dead-whole": ("host 4: link down in the whole", dead_from(4, "whole"), ["4"]),
    "unreachable": ("host 8: link down before the start", lambda cluster, out, worker: cluster.on(8, "ip link set eth0 down"), ["8"]),
    "late": ("host 3: logins take 7 s", lambda cluster, out, worker: delay_logins(cluster, 3, out), ["3"]),
    "disk": ("host 4: full temporary folder", lambda cluster, out, worker: fill_disk(cluster, 4), ["4"]),
    "version": ("host 6: another worker", lambda cluster, out, worker: replace_worker(cluster, 6, out, worker), ["6"]),
}  # fmt: skip
FAULTS["several"] = at_once("quota", "pair", "unreachable")
FAULTS["others"] = at_once("link", "dead-pairs", "disk", "version")


def run(fault, number, options):
    """Runs the command with a fault; returns the row of the table."""
    what, inject, expected = FAULTS[fault]
    out = pathlib.Path(options.out).resolve() / (fault if number == 1 else f"{fault}_{number}")
    with Cluster(options.hosts, options.share) as cluster:
        inject(cluster, out, options.worker)
        hosts = ",".join(f"{cluster.name(host)}:1" for host in range(1, options.hosts + 1))
        command = ["accept", "--hosts", hosts, "--device", "cpu", "--stall-timeout", "10", "--out", str(out)]
        command += ["--worker", options.worker, *shlex.split(options.options)]
        start = time.monotonic()
        words = [CLUSTER, "on", str(options.hosts + 1), options.ringmark, *command]
        ended = subprocess.run(words, env=ENVIRONMENT, text=True, capture_output=True)
        minutes = (time.monotonic() - start) / 60
    (out / "output.txt").write_text(ended.stdout + ended.stderr)
    print(ended.stdout + ended.stderr, flush=True)
    verdict = json.loads((out / "accept.json").read_text())
    bad = [
        part
        for kind in ("hosts", "gpus", "links", "switches", "fleet")
        for part in verdict[kind]
        if part["fitness"] in ("unfit", "suspect")
    ]
    named = [subject(part) for part in bad]
    is_found = sorted(named) == sorted(expected)
    is_status_right = ended.returncode == (1 if expected else 0)
    jobs = len(list((out / "jobs").glob("*.log")))
    text = "; ".join(f"{part['name']}: {part['fitness']} ({part['cause']})" for part in bad) or "fleet: fit"
    mark = "yes" if is_found and is_status_right else "NO"
    return [fault, what, text, mark, f"{verdict['rounds']}", f"{jobs}", f"{minutes:.1f}"]


def subject(part):
    """Returns `3` for host 3, `2-6` for a link."""
    kind = part["subject"]
    if isinstance(kind, str):
        return kind
    ((name, value),) = kind.items()
    numbers = value if isinstance(value, list) else [value]
    return "-".join(str(number + 1) for number in numbers) if name in ("host", "link") else f"{name} {value}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.2, help="share of a core of each host")
    parser.add_argument("--clean", type=int, default=1, help="runs without a fault")
    parser.add_argument("--options", default="", help="more options of accept")
    parser.add_argument("--out", default="results/accept")
    parser.add_argument("--ringmark", default=str(ROOT / "target/release/ringmark"))
    parser.add_argument("--worker", default=str(ROOT / "target/release/ringmark-worker"))
    options = parser.parse_args()
    rows = []
    for fault in options.faults or FAULTS:
        for number in range(1, (options.clean if fault == "clean" else 1) + 1):
            rows.append(run(fault, number, options))
            print(" | ".join(rows[-1]), flush=True)
    head = ["fault", "what", "verdict", "right", "rounds", "jobs", "min"]
    lines = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    (pathlib.Path(options.out) / "table.md").write_text(table)
    print(table)
    sys.exit(any(row[3] != "yes" for row in rows))


if __name__ == "__main__":
    main()
