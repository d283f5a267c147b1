#!/usr/bin/env python3
"""Creates a result folder of any size for tests of readers: records and logs in ringmark's format, with synthetic times.

    scripts/dev/make_large_result.py RANKS RUNS ITERATIONS OUT [--straggler RANK:FACTOR] [--seed 1]

    scripts/dev/make_large_result.py 1,64 5 10000 /tmp/large

RANKS may be a list, with one case for each; cases of more than eight ranks have eight ranks per host. Options and environment
are copied from a record in results/cpu-2-cores. Times have the noise of an idle machine. In each iteration, ranks wait for the
slowest rank, so that the phases of a step are consistent. The same arguments create the same files.
"""

import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import struct

TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "results/cpu-2-cores/1n2g/rn50_b8_bf16_1.jsonl"
RANKS_PER_HOST = 8
WARMUP = 20
# Time between the starts of two runs, which must not overlap.
HOURS = 100

# Seconds on one rank, and their coefficients of variation between iterations and between runs.
FORWARD, BACKWARD, ALLREDUCE, OPTIMIZER, LOOP = 0.1, 0.2, 0.012, 0.004, 0.0002
NOISE, RUN_NOISE = 0.01, 0.003


def header(lines, case, ranks, run, number, iterations):
    line = json.loads(lines[0])
    line["config"].update(iterations=iterations, warmup=min(WARMUP, iterations // 2), record=None)
    template = line["ranks"][0]
    rank_lines = [
        {**template, "rank": rank, "local_rank": rank % RANKS_PER_HOST, "host": host(rank), "process": 1000 + rank}
        for rank in range(ranks)
    ]
    # The key's name depends on the version of the template.
    backend = {"backend" if "backend" in line else "collective": "solo" if ranks == 1 else "mpi"}
    return {**line, "case": case, "run": run, "started": 1.7e9 + HOURS * 3600 * number, **backend, "ranks": rank_lines}


def host(rank):
    return f"node{rank // RANKS_PER_HOST + 1:02}"


def end(lines, ranks, iterations, wall):
    line = json.loads(lines[-1])
    here = collections.Counter(host(rank) for rank in range(ranks))
    use = {**line["host_use"][0], "cores": RANKS_PER_HOST, "cores_of_ranks": RANKS_PER_HOST, "elapsed": wall, "steal": 0.0}
    host_use = [{**use, "host": name, "machine": name, "busy": 0.98 * wall * count} for name, count in here.items()]
    rank_use = [{**line["rank_use"][0], "core_time": 0.975 * wall}] * ranks
    checksums, memory = line["parameter_checksums"][:1] * ranks, line["peak_memory"][:1] * ranks
    line.update(iterations=iterations, wall=wall, host_use=host_use, rank_use=rank_use)
    return {**line, "parameter_checksums": checksums, "peak_memory": memory}


def iteration(noise, number, ranks, level, straggler):
    """Returns the line of an iteration, with times in whole nanoseconds; `level` is the run's factor, 1 on average."""
    gauss = noise.gauss
    # This factor is common to all ranks; the first iterations are slower.
    factors = [level * (1 + 2 / number**2) * gauss(1, NOISE / 2)] * ranks
    if straggler and straggler[0] < ranks:
        factors[straggler[0]] *= straggler[1]
    forward = [round(FORWARD * factor * gauss(1, NOISE), 9) for factor in factors]
    backward = [round(BACKWARD * factor * gauss(1, NOISE), 9) for factor in factors]
    optimizer = [round(OPTIMIZER * gauss(1, NOISE), 9) for _ in factors]
    done = [one + other for one, other in zip(forward, backward)]
    summed = round(max(done) + (ALLREDUCE * gauss(1, 3 * NOISE) if ranks > 1 else 0.0), 9)
    loss = 7 / (1 + number / 2000)
    return {
        "kind": "iteration",
        "iteration": number,
        "step": [round(summed + last + LOOP, 9) for last in optimizer],
        "forward": forward,
        "backward": backward,
        # A difference with a rounding error, as in real records.
        "exposed_allreduce": [max(summed - computed, 0.0) for computed in done],
        "optimizer": optimizer,
        "before_allreduce": [round(one + other / 8, 9) for one, other in zip(forward, backward)],
        "loss": [single_precision(loss + gauss(0, 0.02)) for _ in factors],
        "loss_scale": 1.0,
        "skipped": False,
    }


def single_precision(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def case_of(ranks):
    hosts = -(-ranks // RANKS_PER_HOST)
    return f"{hosts}n{ranks // hosts}g"


def write_manifest(logs, options):
    """Writes sweep.json, which `ringmark check` needs."""
    manifest = json.loads((TEMPLATE.parent.parent / "sweep.json").read_text())
    hosts = list(dict.fromkeys(host(rank) for rank in range(max(options.ranks))))
    conditions, ran_on = manifest["conditions"], manifest["ran_on" if "ran_on" in manifest else "found"]
    conditions["hosts"] = hosts
    conditions["options"].update({"--iters": str(options.iterations), "--warmup": str(min(WARMUP, options.iterations // 2))})
    ran_on["hosts"] = [{"name": name, "devices": ran_on["hosts"][0]["devices"][:1] * RANKS_PER_HOST} for name in hosts]
    manifest["runs"] = [finished_run(log, options.out) for log in logs]
    (pathlib.Path(options.out) / "sweep.json").write_text(json.dumps(manifest, indent=2) + "\n")


def finished_run(log, out):
    files = {"log": log, "record": log.with_suffix(".jsonl")}
    hashes = {kind: hashlib.sha256(file.read_bytes()).hexdigest() for kind, file in files.items()}
    return {"log": str(log.relative_to(out)), "state": "finished", "sha256": hashes}


def make(ranks, run, number, options):
    lines = TEMPLATE.read_text().splitlines()
    head = [line for line in TEMPLATE.with_suffix(".log").read_text().splitlines() if line[0] in "+#"]
    case = case_of(ranks)
    folder = pathlib.Path(options.out) / case
    folder.mkdir(parents=True, exist_ok=True)
    noise = random.Random(f"{options.seed} {ranks} {run}")
    first = header(lines, case, ranks, run, number, options.iterations)
    batch, dtype = first["config"]["batch_size"], first["config"]["dtype"]
    path = folder / f"rn50_b{batch}_{dtype}_{run}.jsonl"
    encode = json.JSONEncoder(separators=(",", ":")).encode
    level, wall = noise.gauss(1, RUN_NOISE), 0.0
    with open(path, "w") as record, open(path.with_suffix(".log"), "w") as log:
        record.write(encode(first) + "\n")
        log.write("\n".join(head[:-1]) + "\n")
        for number in range(1, options.iterations + 1):
            one = iteration(noise, number, ranks, level, options.straggler)
            wall += one["step"][0]
            record.write(encode(one) + "\n")
            speed = batch * ranks / one["step"][0]
            log.write(f"INFO:root:Epoch[0] Batch[{number}]\tSpeed: {speed:.2f} samples/sec\tloss={one['loss'][0]:.6f}\n")
        last = end(lines, ranks, options.iterations, wall)
        record.write(encode(last) + "\n")
        log.write(f"# {options.iterations} iterations in {wall:.3f} s, 0 skipped, weights {last['parameter_checksums'][0]}\n")
    return path.with_suffix(".log")


def straggler(text):
    rank, _, factor = text.partition(":")
    return int(rank), float(factor)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("ranks", type=lambda text: [int(word) for word in text.split(",")], metavar="RANKS")
    options.add_argument("runs", type=int, metavar="RUNS")
    options.add_argument("iterations", type=int, metavar="ITERATIONS")
    options.add_argument("out", metavar="OUT")
    options.add_argument("--straggler", type=straggler, metavar="RANK:FACTOR", help="multiplies the compute time of RANK by FACTOR")
    options.add_argument("--seed", type=int, default=1)
    parser, options = options, options.parse_args()
    if any(ranks < 1 or (ranks > RANKS_PER_HOST and ranks % RANKS_PER_HOST) for ranks in options.ranks):
        parser.error(f"RANKS must be between 1 and {RANKS_PER_HOST}, or a multiple of {RANKS_PER_HOST}")
    if min(options.runs, options.iterations) < 1:
        parser.error("RUNS and ITERATIONS must be at least 1")
    runs = [(ranks, run) for ranks in options.ranks for run in range(1, options.runs + 1)]
    work = [(*case_and_run, number, options) for number, case_and_run in enumerate(runs)]
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        write_manifest(pool.starmap(make, work, chunksize=1), options)


if __name__ == "__main__":
    main()
