#!/usr/bin/env python3
"""Measures the cost of tracing and telemetry by comparing traced iterations with untraced ones in the same run.

    scripts/dev/compare_trace.py [--rounds 10] [--worker target/release/ringmark-worker] [--out FILE] [-- OPTIONS OF train]

Each round is one run of one process with 150 iterations after warm-up, of which the middle 50 are traced by layer. The ratio is
the median step of these 50 / the median of the 50 before and the 50 after, which cancels differences between runs and drift
within a run. The CPU time of telemetry readings is in the record (`telemetry.processor_time`).
"""

import json
import os
import pathlib
import statistics
import tempfile

from comparison import parser, report, run, spread

DEFAULT_OPTIONS = "--model resnet18 --image-size 64 --batch-size 8 --device cpu --dtype fp32 --threads 1"
WARMUP, THIRD = 10, 50


def train(worker, options):
    """Returns the median steps of traced and other iterations in seconds, and the share of one core used by readings."""
    first, last = WARMUP + THIRD + 1, WARMUP + 2 * THIRD
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "record.jsonl"
        length = ["--iters", WARMUP + 3 * THIRD, "--warmup", WARMUP]
        traced = ["--trace", f"{folder}/trace.json", "--trace-iterations", f"{first}-{last}"]
        run(list(map(str, [worker, "train", *options, *length, *traced, "--record", record])), os.environ)
        lines = [json.loads(line) for line in record.read_text().splitlines()]
    steps = [line["step"][0] for line in lines if line["kind"] == "iteration"]
    host = lines[-1]["host_use"][0]
    return {
        "traced": statistics.median(steps[first - 1 : last]),
        "plain": statistics.median(steps[WARMUP : first - 1] + steps[last:]),
        "readings": host["telemetry"]["processor_time"] / host["elapsed"],
    }


def main():
    options = parser(__doc__, rounds=10)
    options.add_argument("train", nargs="*", default=DEFAULT_OPTIONS.split())
    options = options.parse_args()
    rounds = [train(options.worker, options.train) for _ in range(options.rounds)]
    table = [
        f"step {spread([1e3 * it['plain'] for it in rounds], 4)} ms",
        f"step, traced / plain {spread([it['traced'] / it['plain'] for it in rounds], 4)}",
        f"readings {spread([100 * it['readings'] for it in rounds], 4)} % of one core",
    ]
    report(table, options.out, train=options.train, rounds=rounds)


if __name__ == "__main__":
    main()
