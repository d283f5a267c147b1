#!/usr/bin/env python3
"""Compares ringmark's all-reduce on CPUs with MPI_Allreduce and gloo, alone and in training.

    scripts/dev/compare_allreduce.py [--rounds 5] [--parts large,small,ranks,training] [--out FILE]

large     bus bandwidth of 102.4 MB in place on two ranks: ringmark, one MPI_Allreduce, MPI_Allreduce in chunks of 4 MB,
          and gloo through torch.distributed. Also the share of the memory bandwidth limit, which ringmark-worker measures
          in the same run (see results/all-reduce-cpu)
small     time of 8 B to 64 KB in place on two ranks: ringmark and MPI_Allreduce
ranks     time of 102.4 MB on 2, 4 and 8 ranks, regardless of the number of cores: ringmark, and MPI with 8 ranks
training  step and exposed all-reduce of ResNet50-v1b on two ranks with one thread each: ringmark, MPI, and no exchange

Each round measures every side once, in an order that rotates between rounds. The value of a round is the median over
iterations of the mean over ranks; tables show the median and range over rounds.
"""

import json
import os
import pathlib
import statistics
import tempfile

import comparison
from comparison import mpirun, run, run_json

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LARGE = 102_400_000
SMALL = [8, 64, 512, 4096, 16384, 65536]
RINGMARK, MPI, CHUNKS = ["--backend", "shared-memory"], ["--backend", "mpi", "--chunk-kb", "0"], ["--backend", "mpi", "--chunk-kb", "4000"]


def worker(options, ranks, arguments, flag):
    """Runs ringmark-worker with mpirun; returns the contents of the file that it writes for option `flag`."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/out"
        run(mpirun(ranks, [options.worker, *arguments, "--device", "cpu", "--threads", "1", flag, path]), ENVIRONMENT)
        return pathlib.Path(path).read_text()


def bandwidth(options, ranks, arguments):
    return json.loads(worker(options, ranks, ["bandwidth", *arguments], "--json"))


def median_time(result):
    """Returns the median over iterations of the mean over ranks, for the in-place operation."""
    return statistics.median(map(statistics.mean, zip(*result["in_place"]["seconds"])))


def busbw(size, seconds, ranks=2):
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


def large(options):
    arguments = ["-b", str(LARGE), "-e", str(LARGE), "-n", "20"]

    def by(more):
        def measure():
            record = bandwidth(options, 2, arguments + more)
            rate = busbw(LARGE, median_time(record["results"][0]))
            return {"GB/s": rate, "share of memory": rate / record["memory"]["busbw"]}

        return measure

    def gloo():
        command = comparison.torchrun(options.python, 2, ["gloo_baseline.py", str(LARGE), "20", "5"])
        seconds = run_json(command, ENVIRONMENT)["seconds"]
        return {"GB/s": busbw(LARGE, statistics.median(seconds))}

    return {"ringmark": by(RINGMARK), "MPI_Allreduce": by(MPI), "MPI in 4 MB": by(CHUNKS), "gloo": gloo}


def small(options):
    def by(more):
        def measure():
            figures = {}
            for size in SMALL:
                record = bandwidth(options, 2, ["-b", str(size), "-e", str(size), "-n", "2000", "-w", "200", *more])
                figures[f"{size} B us"] = median_time(record["results"][0]) * 1e6
            return figures

        return measure

    return {"ringmark": by(RINGMARK), "MPI_Allreduce": by(MPI)}


def ranks(options):
    def by(count, more):
        def measure():
            record = bandwidth(options, count, ["-b", str(LARGE), "-e", str(LARGE), "-n", "5", "-w", "2", *more])
            return {"ms": median_time(record["results"][0]) * 1e3}

        return measure

    names = {f"ringmark, {count} ranks": by(count, RINGMARK) for count in [2, 4, 8]}
    return {**names, "MPI, 8 ranks": by(8, MPI)}


def training(options):
    arguments = ["train", "--batch-size", "8", "--dtype", options.dtype, "--iters", "18", "--warmup", "3"]

    def by(more):
        def measure():
            lines = map(json.loads, worker(options, 2, arguments + more, "--record").splitlines())
            steps = [line for line in lines if line["kind"] == "iteration"][3:]
            median = lambda name: statistics.median(statistics.mean(step[name]) for step in steps) * 1e3
            mean = statistics.mean(statistics.mean(step["step"]) for step in steps) * 1e3
            return {"step ms": median("step"), "mean step ms": mean, "exposed ms": median("exposed_allreduce")}

        return measure

    return {"ringmark": by(RINGMARK), "MPI in 4 MB": by(CHUNKS), "none": by(["--backend", "none"])}


PARTS = {"large": large, "small": small, "ranks": ranks, "training": training}


def main():
    options = comparison.parser(__doc__)
    options.add_argument("--parts", default="large,small,ranks,training")
    options.add_argument("--dtype", default="bf16", help="precision of the training step")
    options = options.parse_args()
    options.python = comparison.python_with_torch()

    lines, figures = [], {}
    for part in options.parts.split(","):
        figures[part] = comparison.measure_rounds(PARTS[part](options), options.rounds)
        lines += comparison.key_lines(part, figures[part], 3)
    lines.append(comparison.footer(options.rounds))
    comparison.report(lines, options.out, figures=figures)


if __name__ == "__main__":
    main()
