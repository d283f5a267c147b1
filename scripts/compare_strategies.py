#!/usr/bin/env python3
"""Exchange strategies between simulated hosts, each against the bound that its bytes set on the busiest link.

    scripts/compare_strategies.py [--rounds 3] [--hosts 4] [--servers 1,2,4] [--rate 1gbit] [--model resnet50_v1b] [--out FILE]

Makes hosts by scripts/cluster.sh (root alone may), one rank on each, and servers on hosts of their own. Every round trains a
few steps by every strategy, and without any exchange, in turns. A side's step in a round is the median over iterations of
the slowest rank's; the table gives the median over rounds and the range. Images are small, so that a step is little else
than its exchange; forward, backward and update are in it all the same.

The bound is the time that the bytes of one direction of the busiest link need at the rate of the link, S being the weights
in fp32, H the hosts, N the servers: ring and owners 2 (H-1)/H S, servers max(S, H S / N); with 2-bit codes S / 16 out of a
worker, and H S / N / d out of a server, d being the digits of base 2 H + 1 in 32 bits (docs/kv_store.md).
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare_pytorch import run, spread, tell

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CLUSTER = str(HERE / "cluster.sh")
RATES = {"1gbit": 125e6, "100mbit": 12.5e6, "none": None}


class Strategy:
    def __init__(self, name, kv_store, servers, more=()):
        self.name, self.kv_store, self.servers, self.more = name, kv_store, servers, list(more)

    def bound(self, weights, hosts, rate):
        if rate is None or "none" in self.more:
            return None
        if self.servers:
            out, back = 1, 1
            if "2bit" in self.more:
                out, back = 16, int(32 / math.log2(2 * hosts + 1))
            return max(weights / out, hosts * weights / self.servers / back) / rate
        return 2 * (hosts - 1) / hosts * weights / rate

    def step(self, options, environment):
        """Seconds of one step, and bytes of the weights."""
        names = [f"strategies-{number}" for number in range(1, options.hosts + max(options.servers) + 1)]
        with tempfile.TemporaryDirectory() as folder:
            command = [
                CLUSTER, "run", options.ringmark, "sweep", "--hosts", ",".join(f"{name}:1" for name in names[: options.hosts]),
                "--cases", f"{options.hosts}n1g", "--runs", "1", "--kv-store", self.kv_store, "--model", options.model,
                "--image-size", str(options.image_size), "--batch-size", "1", "--iters", str(options.warmup + options.iters),
                "--warmup", str(options.warmup), "--device", "cpu", "--threads", "1", "--out", f"{folder}/out", *self.more,
            ]  # fmt: skip
            if self.servers:
                command += ["--servers", str(self.servers)]
                command += ["--server-hosts", ",".join(names[options.hosts : options.hosts + self.servers])]
            run(command, environment)
            (record,) = pathlib.Path(folder).glob("out/*/*.jsonl")
            lines = [json.loads(line) for line in record.open()]
        buckets = lines[0]["buckets"]
        steps = [max(line["step"]) for line in lines if line["kind"] == "iteration"]
        return statistics.median(steps[options.warmup :]), sum(buckets)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--servers", default="1,2,4", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--rate", choices=list(RATES), default="1gbit")
    parser.add_argument("--model", default="resnet50_v1b")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--iters", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--ringmark", default=str(ROOT / "target/release/ringmark"))
    parser.add_argument("--out", help="file for the table and the raw figures (JSON)")
    options = parser.parse_args()
    strategies = [Strategy("no exchange", "ring", 0, ["--backend", "none"])]
    strategies += [Strategy("ring", "ring", 0), Strategy("device", "device", 0)]
    for count in options.servers:
        name = f"dist_sync, {count} server{'s' * (count > 1)}"
        strategies.append(Strategy(name, "dist_sync", count))
        strategies.append(Strategy(f"{name}, 2bit", "dist_sync", count, ["--gradient-compression", "2bit"]))

    environment = {**os.environ, "CLUSTER_NAME": "strategies", "OMP_NUM_THREADS": "1"}
    subprocess.run([CLUSTER, "up", str(options.hosts + max(options.servers))], env=environment, check=True, stdout=subprocess.DEVNULL)
    figures, weights = {strategy.name: [] for strategy in strategies}, 0
    try:
        if options.rate != "none":
            subprocess.run([CLUSTER, "limit", options.rate], env=environment, check=True)
        for number in range(options.rounds):
            for strategy in strategies[number % len(strategies) :] + strategies[: number % len(strategies)]:
                seconds, weights = strategy.step(options, environment)
                figures[strategy.name].append(seconds)
                print(f"round {number + 1} {strategy.name}: {seconds:.3f} s", file=sys.stderr)
    finally:
        subprocess.run([CLUSTER, "down"], env=environment, check=False)

    lines = [f"{'strategy':28} {'step s':>24} {'bound s':>8} {'of it %':>8}"]
    for strategy in strategies:
        seconds = figures[strategy.name]
        bound = strategy.bound(weights, options.hosts, RATES[options.rate])
        share = [f"{'-':>8}", f"{'-':>8}"] if bound is None else [f"{bound:8.3f}", f"{100 * bound / statistics.median(seconds):8.1f}"]
        lines.append(f"{strategy.name:28} {spread(seconds):>24} {share[0]} {share[1]}")
    lines.append(
        f"{options.model}, {weights / 1e6:.1f} MB of weights, {options.hosts} hosts of one rank, links of {options.rate}; "
        f"medians [lowest, highest] of {options.rounds} rounds"
    )
    tell(lines, options.out, seconds_a_step=figures)


if __name__ == "__main__":
    main()
