#!/usr/bin/env python3
"""Compares images/s or tokens/s of ringmark and PyTorch, with the same libtorch, threads, layout, batch size and training recipe.

    scripts/dev/compare_pytorch.py [--rounds 5] [--device cpu|cuda] [--models resnet50_v1b,vgg11] [--cases fp32,bf16:32]
                                   [--sequence-length TOKENS] [--score] [--compile] [--max-autotune] [--jemalloc] [--limit SECONDS]
                                   [--out FILE]

One process each; `ringmark alternate` compares several (scripts/dev/README.md). The case `bf16:32` has batch size 32. A case has
these sides:

ringmark        always
PyTorch         eager; omitted with --no-eager
--compile       adds torch.compile; the default on cuda. With --score, one side freezes the weights and another does not
--max-autotune  adds torch.compile(mode="max-autotune"), which uses CUDA graphs
--jemalloc      adds PyTorch's sides with jemalloc preloaded

Each round measures every side of a case once, in an order that rotates between rounds. The value of a round is batch size /
median step after warm-up. Tables show the median and range over rounds, and the median and range of two ratios
within each round: ringmark / side, and ringmark's arithmetic / the rate of torch.mm for two 4096 x 4096 matrices in the same
precision.

PyTorch's sides compile once; their process waits while other sides are measured. --parallel 3 starts these
processes in advance, three at a time. A side that fails is skipped, and the exit status is 1. After --limit SECONDS, the
tables show what was measured until then. The script installs missing parts of PyTorch next to libtorch, and jemalloc.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import pathlib
import selectors
import statistics
import subprocess
import sys
import tempfile
import time

import comparison
from comparison import HERE, ROOT, exit_with, ratios, run, spread


def jemalloc():
    """Returns the path of the library; if it is not installed, unpacks Debian's package, which does not need root."""
    installed, folder = "/usr/lib/*/libjemalloc.so.2", ROOT / "target/jemalloc"
    found = glob.glob(installed) or glob.glob(f"{folder}{installed}")
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", "libjemalloc2"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder], check=True)
        found = glob.glob(f"{folder}{installed}")
    return found[0]


# Networks whose name in files or image size differs.
FILES = {"resnet50_v1b": "rn50"}
OWN_SIZES = {"inception_v3": 299}

# Names of the sides in the table.
SIDES = {
    "ringmark": "ringmark",
    "pytorch": "PyTorch",
    "pytorch_jemalloc": "PyTorch jemalloc",
    "compiled": "torch.compile",
    "compiled_unfrozen": "compile unfrozen",
    "max_autotune": "max-autotune",
    "compiled_jemalloc": "compile jemalloc",
}

# Retaining pages and using huge pages is fastest for a training step.
JEMALLOC_SETTINGS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"


def unit(options):
    return "tokens/s" if options.sequence_length else "images/s"


def speed(seconds, images, warmup):
    return images / statistics.median(seconds[warmup:])


class Resident:
    """A process of pytorch_baseline.py that compiles once and then measures on request."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [*command, "--resident"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment, bufsize=0
        )  # fmt: skip
        self.read = b""

    def measure(self, limit):
        try:
            self.process.stdin.write(b"measure\n")
        except BrokenPipeError:
            self.fail("the process has exited")
        return self.read_json(limit)

    def read_json(self, limit):
        """Returns the next line of JSON in the process's output; compilers print other lines too."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self.read.partition(b"\n")
                if newline:
                    self.read = rest
                    if line.startswith(b"{"):
                        return json.loads(line)
                elif not selector.select(limit.left()):
                    self.fail("time limit exceeded")
                elif more := os.read(self.process.stdout.fileno(), 1 << 16):
                    self.read += more
                else:
                    self.fail(f"exit status {self.process.wait()}")

    def fail(self, reason):
        self.end()
        self.errors.seek(0)
        sys.exit(f"{' '.join(map(str, self.process.args))}: {reason}\n{self.errors.read()[-2000:]}")

    def end(self):
        self.process.kill()
        self.process.wait()


class Limit:
    def __init__(self, seconds):
        self.end = seconds and time.monotonic() + seconds

    def left(self):
        """Returns the remaining seconds, or None if there is no limit."""
        return self.end and max(0.0, self.end - time.monotonic())


class Case:
    def __init__(self, model, case, options, python):
        self.name = f"{model} {case}"
        self.model = model
        self.dtype, _, batch = case.partition(":")
        self.options = options
        self.python = python
        self.residents = {}
        self.batch = int(batch or 0) or options.batch_size or (128 if options.device == "cuda" else 16)
        # None until ringmark, which runs first, has recorded its default.
        self.layout = options.layout
        wanted = {
            "ringmark": True,
            "pytorch": options.eager,
            "pytorch_jemalloc": options.eager and options.jemalloc,
            "compiled": options.compile,
            "compiled_unfrozen": options.compile and options.score,
            "compiled_jemalloc": options.compile and options.jemalloc,
            "max_autotune": options.max_autotune,
        }
        self.speeds = {side: [] for side, is_wanted in wanted.items() if is_wanted}
        # For each round: the rate of matrix products, and ringmark's arithmetic if the network's operations are known.
        self.limits, self.gigaflops = [], []

    def step_options(self, separate_warmup=0):
        iters = str(self.options.warmup + self.options.iters - separate_warmup)
        return [
            "--model", self.model, "--batch-size", str(self.batch), "--dtype", self.dtype, "--device", self.options.device, "--iters", iters,
            *self.sample_options(), "--threads", str(self.options.cores), *(["--layout", self.layout] if self.layout else []),
        ]  # fmt: skip

    def sample_options(self):
        if self.options.sequence_length:
            return ["--sequence-length", str(self.options.sequence_length)]
        return ["--image-size", str(self.options.image_size or OWN_SIZES.get(self.model, 224))]

    def work(self):
        """Returns the images or tokens of a batch."""
        return self.batch * (self.options.sequence_length or 1)

    def environment(self):
        return {**os.environ, "OMP_NUM_THREADS": str(self.options.cores)}

    def ringmark(self):
        benchmark = "score" if self.options.score else "train"
        # A path that `ringmark extract` recognizes.
        length = f"_s{self.options.sequence_length}" if self.options.sequence_length else ""
        name = f"1n1g/{FILES.get(self.model, self.model.replace('_', '-'))}_b{self.batch}{length}_{self.dtype}_1"
        with tempfile.TemporaryDirectory() as folder:
            record, log = pathlib.Path(folder, f"{name}.jsonl"), pathlib.Path(folder, f"{name}.log")
            record.parent.mkdir()
            # Both benchmarks capture CUDA graphs during warm-up. Training records warm-up iterations, which are dropped below.
            warmup = self.options.warmup
            counted = self.step_options(warmup if self.options.score else 0)
            command = [self.options.worker, benchmark, *counted, "--warmup", str(warmup), "--record", record]
            if self.options.device == "cuda" and not self.options.score:
                command += ["--graphs", "auto"]
            if length and not self.options.score:
                command += ["--optimizer", "adamw"]
            command += self.options.ringmark_options.split()
            log.write_text(run(command, self.environment(), self.options.limit.left()))
            lines = [json.loads(line) for line in open(record)]
            gigaflop_per_image = self.gigaflop_per_image(folder)
        self.layout = lines[0]["config"]["layout"]
        if self.options.score:
            steps, warmup = lines[0]["seconds"], 0
        else:
            steps, warmup = zip(*(line["step"] for line in lines if line["kind"] == "iteration")), self.options.warmup
        images_per_second = sum(speed(rank_steps, self.work(), warmup) for rank_steps in steps)
        if gigaflop_per_image:
            self.gigaflops.append(images_per_second * gigaflop_per_image)
        return images_per_second

    def gigaflop_per_image(self, folder):
        """Returns the operations per image of the run in `folder`, or None if the network's operations are unknown."""
        if not self.options.ringmark.exists():
            return None
        extract = [self.options.ringmark, "extract", folder, "--json"]
        if not self.options.score:
            extract += ["--warmup", str(self.options.warmup)]
        # Exit status 1 is expected, because the folder has no single-rank case as a baseline.
        done = subprocess.run(extract, capture_output=True, text=True)
        try:
            (row,) = json.loads(done.stdout)["rows"]
        except ValueError:
            exit_with(f"ringmark extract found no run:\n{done.stderr}")
        return row["arithmetic"] and 1000 * row["arithmetic"]["teraflops_per_second"] / row["units_per_second"]

    def limit(self):
        """Returns GFLOP/s of matrix products."""
        return self.resident("limit").measure(self.options.limit)["gigaflops_per_second"]

    def python_command(self, side):
        """Returns the command and environment of pytorch_baseline.py for `side`."""
        script, environment = [str(HERE / "pytorch_baseline.py")], self.environment()
        if side == "limit":
            script += ["--matrix-product", "--dtype", self.dtype, "--device", self.options.device, "--threads", str(self.options.cores)]
            return script, environment
        script += self.step_options()
        if self.options.score:
            script.append("--score")
        if side.startswith("compiled"):
            script.append("--compile")
        if side == "compiled_unfrozen":
            script.append("--no-freezing")
        if side == "max_autotune":
            script += ["--compile", "max-autotune"]
        if side.endswith("_jemalloc"):
            environment |= {"LD_PRELOAD": jemalloc(), "MALLOC_CONF": JEMALLOC_SETTINGS}
        return script, environment

    def resident(self, side, limit=None):
        """Returns the prepared process of `side`."""
        if side not in self.residents:
            script, environment = self.python_command(side)
            self.residents[side] = Resident([self.python, *script], environment)
            self.residents[side].read_json(limit or self.options.limit)
        return self.residents[side]

    def pytorch(self, side):
        result = self.resident(side).measure(self.options.limit)
        return speed(result["seconds"], self.work(), self.options.warmup)

    def measure(self, side):
        return getattr(self, side)() if side in ["ringmark", "limit"] else self.pytorch(side)

    def sides_to_prepare(self):
        """Returns PyTorch's sides that are resident processes."""
        sides = [side for side in self.speeds if side != "ringmark"]
        return [*sides, "limit"] if self.options.ringmark.exists() else sides

    def prepare(self, side):
        """Prepares the process of `side`. If memory is too small now, it will be prepared later, when it runs alone."""
        try:
            self.resident(side, self.options.prepare_limit)
        except SystemExit as error:
            if "out of memory" not in error.code:
                raise
            del self.residents[side]

    def drop(self, side):
        """Drops a side without a measurement, or all sides if it is ringmark, because nothing can then be compared."""
        if not self.speeds.get(side):
            for dropped in list(self.speeds) if side == "ringmark" else [side]:
                self.speeds.pop(dropped, None)

    def end(self):
        for resident in self.residents.values():
            resident.end()


def write(cases, failures, options):
    """Writes the table and the figures of all completed rounds to --out; returns the lines of the table."""
    lines = [f"{'case':24} {'batch':>5} {'layout':>6} {'side':16} {unit(options):>26} {'ringmark / side':>22}"]
    for case in cases:
        ours = case.speeds.get("ringmark")
        for side, theirs in case.speeds.items():
            if theirs:
                line = f"{case.name:24} {case.batch:5} {case.layout:>6} {SIDES[side]:16} {spread(theirs):>26}"
                lines.append(line if side == "ringmark" else f"{line} {spread(ratios(ours, theirs)):>22}")
    for case in cases:
        if case.gigaflops and case.limits:
            rates = f"{spread(case.gigaflops)} of {spread(case.limits)} GFLOP/s of matrix products"
            shares = [100 * share for share in ratios(case.gigaflops, case.limits)]
            lines.append(f"{case.name}, ringmark: {' '.join(rates.split())}: {spread(shares).strip()} %")
    rounds = max(len(speeds) for case in cases for speeds in [*case.speeds.values(), []])
    lines.append(comparison.footer(rounds, f"{options.device}, {options.cores} cores"))
    lines += [f"failed: {name}: {reason.strip().splitlines()[-1]}" for name, reason in failures.items()]
    comparison.write_figures(
        lines,
        options.out,
        **{unit(options).replace("/s", "_per_second"): {case.name: case.speeds for case in cases}},
        gigaflops_per_second={case.name: {"ringmark": case.gigaflops, "matrix products": case.limits} for case in cases},
        **({"failures": failures} if failures else {}),
    )
    return lines


def main():
    options = comparison.parser(__doc__)
    options.add_argument("--models", default="resnet50_v1b", help="networks of torchvision")
    options.add_argument("--score", action="store_true", help="inference instead of training")
    options.add_argument("--cases", default="fp32,bf16")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--layout", choices=["nhwc", "nchw"], help="of both programs [default: ringmark's]")
    options.add_argument("--batch-size", type=int, help="[default: cuda 128, cpu 16]")
    options.add_argument("--image-size", type=int, help="[default: the network's]")
    options.add_argument("--sequence-length", type=int, help="tokens of a sequence: compares language models, such as --models gpt2-124m")
    options.add_argument("--iters", type=int, help="timed iterations of a run [default: cuda 100, cpu 6]")
    options.add_argument("--warmup", type=int, help="warm-up iterations of a run [default: cuda 20, cpu 2]")
    options.add_argument("--compile", action=argparse.BooleanOptionalAction, help="add torch.compile [default: on cuda]")
    options.add_argument("--max-autotune", action="store_true", help="add torch.compile(mode='max-autotune')")
    options.add_argument("--eager", action=argparse.BooleanOptionalAction, default=True, help="PyTorch without torch.compile")
    options.add_argument("--parallel", type=int, default=1, help="PyTorch processes to prepare at the same time; needs --layout")
    options.add_argument("--limit", type=float, help="seconds after which no measurement starts")
    options.add_argument("--jemalloc", action="store_true", help="add PyTorch's sides with jemalloc preloaded")
    options.add_argument("--cores", type=int, default=comparison.CORES)
    options.add_argument("--ringmark-options", default="", help="additional options for ringmark-worker")
    options = options.parse_args()
    options.ringmark = pathlib.Path(options.worker).with_name("ringmark")
    on_gpu = options.device == "cuda"
    options.iters = options.iters or (100 if on_gpu else 6)
    options.warmup = options.warmup if options.warmup is not None else (20 if on_gpu else 2)
    if options.compile is None:
        options.compile = on_gpu

    if options.parallel > 1 and not options.layout:
        exit_with("--parallel starts PyTorch before ringmark selects a layout: add --layout")
    # Slow preparation must leave time for measurements.
    options.prepare_limit = Limit(options.limit and 0.6 * options.limit)
    options.limit = Limit(options.limit)

    python = comparison.python_with_torch()
    cases = [Case(model, case, options, python) for model in options.models.split(",") for case in options.cases.split(",")]
    failures = {}

    def attempt(case, side, call):
        """Calls `call` unless the side has already failed."""
        name = f"{case.name} {side}"
        if name in failures:
            return None
        try:
            if options.limit.left() == 0:
                sys.exit("time limit exceeded")
            return call(side)
        except SystemExit as error:
            failures[name] = str(error.code)
            print(f"compare_pytorch.py: {name}: {error.code}", file=sys.stderr, flush=True)
            case.drop(side)

    def run_round(case, number):
        for side in comparison.in_round(case.speeds, number):
            images = attempt(case, side, case.measure) if side in case.speeds else None
            if images:
                case.speeds[side].append(images)
                print(f"round {number + 1} {case.name} {side}: {images:.2f} {unit(options)}", file=sys.stderr, flush=True)
        if case.gigaflops and (limit := attempt(case, "limit", case.measure)):
            case.limits.append(limit)

    try:
        if options.parallel > 1:
            with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
                pairs = [(case, side) for case in cases for side in case.sides_to_prepare()]
                # Compiled sides first, because they take the longest.
                for case, side in sorted(pairs, key=lambda pair: pair[1] in ["pytorch", "limit"]):
                    pool.submit(attempt, case, side, case.prepare)
        # Waiting processes may need much memory, so those of all cases run together only with --parallel.
        for group in [cases] if options.parallel > 1 else [[case] for case in cases]:
            for number in range(options.rounds):
                for case in group:
                    run_round(case, number)
                # Write after every round, so that an interrupted run keeps the completed rounds.
                write(cases, failures, options)
            for case in group:
                case.end()
    finally:
        for case in cases:
            case.end()

    print("\n".join(write(cases, failures, options)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
