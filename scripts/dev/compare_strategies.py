#!/usr/bin/env python3
"""Compares exchange strategies between simulated hosts with each other and with the bandwidth bound of the busiest link.

    scripts/dev/compare_strategies.py [--rounds 3] [--hosts 4] [--servers 1,2,4] [--rate 1gbit] [--model resnet50_v1b] [--out FILE]

Creates hosts with scripts/dev/cluster.sh (needs root): one rank per host, and servers on separate hosts. A round measures a
few training steps with every strategy and without any exchange, and each exchange and update alone (ringmark bandwidth
--optimizer sgd), in an order that rotates between rounds. The time of a round is the median over iterations of the slowest
rank; the table shows the median and range over rounds. Images are small, so that a step consists mostly of its exchange.

The bound is the time for the bytes that cross the busiest link in one direction, at the rate of the link. For S bytes of fp32
weights, H hosts and N servers:

all-reduce, device   2 (H-1)/H S
servers              max(S, H S / N)
servers, 2-bit code  max(S / 16, H S / N / d), where d is the number of base-(2 H + 1) digits in 32 bits (docs/strategies.md)

"bound %" is the bound / the exchange time. Imbalance is the excess of the server with the most weights over the mean.
"""

import functools
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

from comparison import HERE, footer, measure_rounds, parser, report, run, spread

CLUSTER = str(HERE / "cluster.sh")
RATES = {"1gbit": 125e6, "100mbit": 12.5e6, "none": None}


class Strategy:
    def __init__(self, name, strategy, servers, more=()):
        self.name, self.strategy, self.servers, self.more = name, strategy, servers, list(more)
        self.exchanges = "none" not in self.more

    def bound(self, weights, hosts, rate):
        if rate is None or not self.exchanges:
            return None
        if self.servers:
            out, back = 1, 1
            if "2bit" in self.more:
                out, back = 16, int(32 / math.log2(2 * hosts + 1))
            return max(weights / out, hosts * weights / self.servers / back) / rate
        return 2 * (hosts - 1) / hosts * weights / rate

    def command(self, options):
        """Returns the arguments that both commands share."""
        names = [f"strategies-{number}" for number in range(1, options.hosts + max(options.servers) + 1)]
        command = [
            "--hosts", ",".join(f"{name}:1" for name in names[: options.hosts]), "--cases", f"{options.hosts}n1g",
            "--model", options.model, "--device", "cpu", "--threads", "1", "--warmup", str(options.warmup), *self.more,
        ]  # fmt: skip
        if self.strategy != "all-reduce":
            command += ["--strategy", self.strategy]
        if self.servers:
            hosts = names[options.hosts : options.hosts + self.servers]
            command += ["--servers", str(self.servers), "--server-hosts", ",".join(hosts)]
        return command

    def measure(self, program, arguments, pattern, options, environment):
        """Runs a command of ringmark; returns the JSON lines of its record."""
        with tempfile.TemporaryDirectory() as folder:
            command = [CLUSTER, "run", options.ringmark, program, *self.command(options), *arguments, "--out", f"{folder}/out"]
            run(command, environment)
            (record,) = pathlib.Path(folder).glob(f"out/*/{pattern}")
            return [json.loads(line) for line in record.open()]

    def step(self, options, environment):
        """Returns the seconds per step, the bytes of the weights, and the imbalance of servers."""
        count = options.warmup + options.iters
        arguments = ["--runs", "1", "--image-size", str(options.image_size), "--batch-size", "1", "--iters", str(count)]
        lines = self.measure("sweep", arguments, "*.jsonl", options, environment)
        steps = [max(line["step"]) for line in lines if line["kind"] == "iteration"]
        held = [server["weights"] for server in lines[-1].get("strategy", {}).get("servers", [])]
        imbalance = max(held) / statistics.mean(held) - 1 if held and sum(held) else None
        return statistics.median(steps[options.warmup :]), sum(lines[0]["buckets"]), imbalance

    def exchange(self, options, environment):
        """Returns the seconds of one exchange and update."""
        arguments = ["--iters", str(options.iters), "--optimizer", "sgd", "--arrays", "all"]
        (record,) = self.measure("bandwidth", arguments, "bandwidth.json", options, environment)
        (gradients,) = record["results"]
        return statistics.median(max(ranks) for ranks in zip(*(gradients["in_place"] or gradients["out_of_place"])["seconds"]))


def main():
    options = parser(__doc__, rounds=3, option="--ringmark", program="ringmark")
    options.add_argument("--hosts", type=int, default=4)
    options.add_argument("--servers", default="1,2,4", type=lambda text: [int(part) for part in text.split(",")])
    options.add_argument("--rate", choices=list(RATES), default="1gbit")
    options.add_argument("--model", default="resnet50_v1b")
    options.add_argument("--image-size", type=int, default=64)
    options.add_argument("--iters", type=int, default=6)
    options.add_argument("--warmup", type=int, default=2)
    options.add_argument("--only", help="strategies to measure, by their names in the table, separated by semicolons", type=lambda text: text.split(";"))
    options = options.parse_args()
    strategies = [Strategy("no exchange", "all-reduce", 0, ["--backend", "none"])]
    strategies += [Strategy("all-reduce", "all-reduce", 0), Strategy("device", "device", 0)]
    for count in options.servers:
        name = f"dist_sync, {count} server{'s' * (count > 1)}"
        strategies.append(Strategy(name, "dist_sync", count))
        strategies.append(Strategy(f"{name}, 2bit", "dist_sync", count, ["--gradient-compression", "2bit"]))
    servers = max(options.servers)
    strategies.append(Strategy(f"dist_async, {servers} server{'s' * (servers > 1)}", "dist_async", servers))

    strategies = [strategy for strategy in strategies if not options.only or strategy.name in options.only]

    environment = {**os.environ, "CLUSTER_NAME": "strategies", "OMP_NUM_THREADS": "1"}
    subprocess.run([CLUSTER, "up", str(options.hosts + max(options.servers))], env=environment, check=True, stdout=subprocess.DEVNULL)
    weights, imbalances = 0, {}

    def measure(strategy):
        nonlocal weights
        seconds, weights, imbalances[strategy.name] = strategy.step(options, environment)
        alone = {"s alone": strategy.exchange(options, environment)} if strategy.exchanges else {}
        return {"s": seconds, **alone}

    try:
        if options.rate != "none":
            subprocess.run([CLUSTER, "limit", options.rate], env=environment, check=True)
        sides = {strategy.name: functools.partial(measure, strategy) for strategy in strategies}
        figures = measure_rounds(sides, options.rounds)
    finally:
        subprocess.run([CLUSTER, "down"], env=environment, check=False)

    steps = {name: [figure["s"] for figure in rounds] for name, rounds in figures.items()}
    exchanges = {name: [figure["s alone"] for figure in rounds if "s alone" in figure] for name, rounds in figures.items()}
    lines = [f"{'strategy':28} {'step s':>20} {'exchange s':>20} {'bound s':>8} {'bound %':>8} {'imbalance %':>12}"]
    for strategy in strategies:
        alone = exchanges[strategy.name]
        bound = strategy.bound(weights, options.hosts, RATES[options.rate])
        cells = [spread(steps[strategy.name]).rjust(20), (spread(alone) if alone else "-").rjust(20)]
        cells += ["-".rjust(8)] * 2 if bound is None else [f"{bound:8.3f}", f"{100 * bound / statistics.median(alone):8.1f}"]
        imbalance = imbalances[strategy.name]
        cells.append("-".rjust(12) if imbalance is None else f"{100 * imbalance:12.2f}")
        lines.append(f"{strategy.name:28} {' '.join(cells)}")
    size = f"{options.model}, {weights / 1e6:.1f} MB of weights"
    lines.append(footer(options.rounds, f"{size}, {options.hosts} hosts with one rank each, links of {options.rate}"))
    report(lines, options.out, seconds_a_step=steps, seconds_an_exchange=exchanges, imbalance=imbalances)


if __name__ == "__main__":
    main()
