#!/usr/bin/env python3
"""What tracing costs, and what the readings of telemetry take: the same training with and without --trace, one alternating run.

    scripts/compare_trace.py [--rounds 5] [--worker target/release/ringmark-worker] [--out FILE] [-- OPTIONS OF train]

Each round runs both sides in turns, on one process. A side's figures are the median step of the iterations after warm-up, all
of which are traced on one side, and the core time of the whole loop, which other programs of a shared machine disturb less; a
ratio is over the plain side of the same round. The record tells the core time of the readings (`telemetry.processor_time`).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
USUAL = "--model resnet18 --image-size 64 --batch-size 8 --iters 60 --warmup 10 --device cpu --dtype fp32 --threads 1"
WARMUP = 10


def train(worker, options, trace):
    """Median step and core time in seconds, and share of one core that readings took."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.jsonl"
        traced = ["--trace", f"{folder}/trace.json", "--trace-iterations", f"{WARMUP + 1}-60"] if trace else []
        command = [worker, "train", *options, *traced, "--record", record]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compare_trace.py: {' '.join(map(str, command))}:\n{done.stderr}")
        lines = [json.loads(line) for line in record.read_text().splitlines()]
    steps = [line["step"][0] for line in lines if line["kind"] == "iteration"][WARMUP:]
    end = lines[-1]
    host = end["host_use"][0]
    readings = host["telemetry"]["processor_time"] / host["elapsed"]
    return {"step": statistics.median(steps), "core_time": end["rank_use"][0]["core_time"], "readings": readings}


def spread(values, unit=""):
    return f"{statistics.median(values):.3f} [{min(values):.3f}, {max(values):.3f}] {unit}".rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", default=ROOT / "target/release/ringmark-worker")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("train", nargs="*", default=USUAL.split())
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        # Who goes first changes: what the machine does in between falls on both.
        order = [False, True] if number % 2 == 0 else [True, False]
        sides = {trace: train(options.worker, options.train, trace) for trace in order}
        rounds.append({"plain": sides[False], "traced": sides[True]})
    ratios = {of: [it["traced"][of] / it["plain"][of] for it in rounds] for of in ("step", "core_time")}
    table = [
        f"step {spread([1e3 * it['plain']['step'] for it in rounds], 'ms')}",
        f"step, traced / plain {spread(ratios['step'])}",
        f"core time, traced / plain {spread(ratios['core_time'])}",
        f"readings {spread([100 * it['plain']['readings'] for it in rounds], '% of one core')}",
    ]
    print("\n".join(table))
    if options.out:
        command = " ".join(["scripts/compare_trace.py", *sys.argv[1:]])
        options.out.write_text(json.dumps({"command": command, "train": options.train, "table": table, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
