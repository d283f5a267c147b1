#!/usr/bin/env python3
"""Compares the speed of `ringmark extract` on logs without records with DLPerf's extractor in Python, on one core.

    scripts/dev/compare_extract.py [--rounds 5] [--parts lines,noise] [--megabytes 1000] [--out FILE]

lines     one log that contains only iteration lines, about 17 million in 1 GB
noise     30 logs of DLPerf's six cases, five runs each. Every line starts with a rank's tag, and NCCL and mpirun output,
          with lines of up to 64 kB, separates the iterations

DLPerf's extractor reads a log line by line, selects lines with `Epoch[0] Batch[`, parses the speed with a regular
expression, and averages from the 21st value on. This script does the same if it is called with --reference. The logs are
generated from a seed and read once before timing starts. Each round runs both sides as separate processes on one core, in
alternating order, and both must find the same speed for every run. The table shows the median and range over rounds, by
wall-clock time and by CPU time (user and system), which other programs on the machine affect less.
"""

import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

from comparison import exit_with, footer, key_lines, measure_rounds, parser, report

CASES = ["1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]
WARMUP = 20


def reference(folder):
    """Returns the speed of every run, computed as in DLPerf's extractor."""
    pattern = re.compile(r"Speed: (\d+\.\d+) samples/sec")
    runs = {}
    for path in sorted(pathlib.Path(folder).glob("*/*.log")):
        speeds = []
        with open(path) as log:
            for line in log:
                if "Epoch[0] Batch[" in line:
                    speeds.append(float(pattern.search(line).group(1)))
        counted = speeds[WARMUP:]
        runs[f"{path.parent.name}/{path.name}"] = round(sum(counted) / len(counted), 2)
    return runs


def make_lines(folder, size, noise):
    path = folder / "1n1g/rn50_b128_fp32_1.log"
    path.parent.mkdir(parents=True)
    speeds = [f"{noise.gauss(384, 4):.2f}" for _ in range(9973)]
    batch = 0
    with open(path, "w") as log:
        while log.tell() < size:
            first, batch = batch, batch + 100_000
            log.write("".join(line(number, speeds) for number in range(first + 1, batch + 1)))


def line(batch, speeds):
    return f"INFO:root:Epoch[0] Batch[{batch}]\tSpeed: {speeds[batch % len(speeds)]} samples/sec\n"


def make_noise(folder, size, noise):
    logs = [folder / case / f"rn50_b128_fp32_{run}.log" for case in CASES for run in range(1, 6)]
    speeds = [f"{noise.gauss(384, 4):.2f}" for _ in range(9973)]
    between = ["".join(noisy_line(noise) for _ in range(noise.randrange(40))) for _ in range(997)]
    between[0] = "[1,3]<stdout>:" + "x" * (64 << 10) + "\n"
    a_round = sum(map(len, between)) / len(between) + 75
    for path in logs:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as log:
            for batch in range(1, int(size / len(logs) / a_round) + 1):
                log.write(f"[1,0]<stderr>:{line(batch, speeds)}{noise.choice(between)}")


def noisy_line(noise):
    rank = noise.randrange(8)
    return noise.choice([
        f"[1,{rank}]<stdout>:node1:{4000 + rank}:{4100 + rank} [{rank}] NCCL INFO Channel {rank:02}/24 : {rank} -> {rank + 1} via P2P/CUMEM/read\n",
        f"[1,{rank}]<stdout>:node1:{4000 + rank}:{4100 + rank} [{rank}] NCCL INFO Trees [0] {rank}/-1/-1->{rank + 1}->-1 [1] -1/-1/-1->{rank}->3\n",
        f"[1,{rank}]<stderr>:INFO:root:Epoch[0] Time cost={noise.random():.3f}\n",
        "[node1:12345] 7 more processes have sent help message help-mpi-btl-base.txt / btl:no-nics\n",
        "\n",
    ])  # fmt: skip


def ringmark(options, folder):
    subprocess.run([options.program, "extract", folder, "--out", f"{folder}/result"], check=True, capture_output=True)
    result = json.loads(next(pathlib.Path(folder, "result").glob("*_result.json")).read_text())
    return {run["log"]: run["dlperf_speed"] for row in result["rows"] for run in row["runs"]}


def python(options, folder):
    done = subprocess.run([sys.executable, __file__, "--reference", folder], check=True, capture_output=True)
    return json.loads(done.stdout)


PARTS = {"lines": make_lines, "noise": make_noise}
SIDES = {"ringmark": ringmark, "Python": python}


def measure(side, options, folder, megabytes):
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    speeds = side(options, folder)
    elapsed, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return speeds, {"MB/s": megabytes / elapsed, "MB/s of core time": megabytes / core}


def compare(part, options):
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        PARTS[part](pathlib.Path(folder), options.megabytes * 1e6, random.Random(1))
        logs = list(pathlib.Path(folder).glob("*/*.log"))
        megabytes = sum(log.stat().st_size for log in logs) / 1e6
        for log in logs:
            log.read_bytes()
        found = {}

        def by(name):
            def measured():
                found[name], figure = measure(SIDES[name], options, folder, megabytes)
                if any(speeds != found[name] for speeds in found.values()):
                    exit_with(f"the speeds of part {part} differ: {found}")
                return figure

            return measured

        figures = measure_rounds({name: by(name) for name in SIDES}, options.rounds)
    return [f"{part}: {megabytes:.0f} MB in {len(logs)} logs", *key_lines(part, figures, 1)], figures


def main():
    options = parser(__doc__, option="--program", program="ringmark")
    options.add_argument("--parts", default="lines,noise")
    options.add_argument("--megabytes", type=int, default=1000, help="size of the logs in each part")
    options.add_argument("--folder", help="folder for the logs [default: the system's folder for temporary files]")
    options.add_argument("--reference", metavar="FOLDER", help="only print the speeds that DLPerf's method finds in FOLDER")
    options = options.parse_args()
    if options.reference:
        return print(json.dumps(reference(options.reference)))

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    table, figures = [], {}
    for part in options.parts.split(","):
        lines, figures[part] = compare(part, options)
        table += lines
    table.append(footer(options.rounds, "one core, logs in the page cache"))
    report(table, options.out, figures=figures)


if __name__ == "__main__":
    main()
