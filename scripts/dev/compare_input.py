#!/usr/bin/env python3
"""Compares ringmark's image input with torchvision's DataLoader and libjpeg-turbo's tjbench.

    scripts/dev/compare_input.py PHOTOGRAPHS [--rounds 5] [--parts batches,decoding,training] [--workers N]
                                 [--training "--model resnet18 --image-size 32"] [--out FILE]

PHOTOGRAPHS is a folder of JPEG files, such as scripts/dev/make_photographs.py creates.

batches   images/s of batches of 32 from cached files: reading, decoding, RandomResizedCrop to 224 pixels, flip and
          collation, as bytes. ringmark reads a .rec with --workers threads, with libjpeg-turbo and with zune-jpeg. The
          DataLoader reads a folder with --workers processes, with Pillow and with torchvision's decode_jpeg on tensors
decoding  million pixels/s of decoding in one thread: ringmark's decode stage, and tjbench (Debian's libjpeg-turbo-progs)
          on the same files
training  images/s of a step on one thread, with synthetic images and with images that the other threads decode.
          --training is passed to ringmark-worker; the default is resnet50_v1b, fp32, batch size 8

Each round measures every side once, in an order that rotates between rounds. Needs a Python with torch and torchvision, as
compare_pytorch.py does.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

import comparison
from comparison import HERE, ROOT, run, run_json

BATCH = 32
# Number of files in the part `decoding`.
ALONE = 16


def classes(files, folder):
    """Creates a folder with two classes of links to the files."""
    for number, file in enumerate(files):
        link = folder / "ab"[number % 2] / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return folder


class Sides:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        files = sorted(options.photographs.glob("*.jpg"))
        if len(files) < BATCH:
            sys.exit(f"{options.photographs} has {len(files)} .jpg files, but {BATCH} are needed: run make_photographs.py")
        self.all = classes(files, folder / "all")
        self.alone = [files[index * len(files) // ALONE] for index in range(ALONE)]
        for name, images in [("all", self.all), ("alone", classes(self.alone, folder / "alone"))]:
            run([options.ringmark, "pack", images, folder / f"{name}.rec"], os.environ)

    def input(self, name, decoder, threads, batch_size, batches):
        record = self.folder / "input.json"
        command = [self.options.worker, "input", "--data", self.folder / f"{name}.rec", "--decoder", decoder, "--cache", "warm"]
        command += ["--decode-threads", str(threads), "--batch-size", str(batch_size), "--batches", str(batches), "--record", record]
        run(command, os.environ)
        return json.load(open(record))["passes"][0]["hosts"][0]

    def ringmark(self, decoder):
        host = self.input("all", decoder, self.options.workers, BATCH, self.options.batches)
        return BATCH * len(host["batches"]) / sum(host["batches"])

    def dataloader(self, decoder):
        script = [HERE / "dataloader_baseline.py", self.all, "--decoder", decoder, "--workers", str(self.options.workers)]
        script += ["--batch-size", str(BATCH), "--batches", str(self.options.batches), "--warmup", "2"]
        return run_json([self.options.python, *script], os.environ)["images_per_second"]

    def decode_stage(self, decoder):
        """Returns million pixels per second of decode time."""
        host = self.input("alone", decoder, 1, ALONE, self.options.batches)
        stored = json.load(open(self.folder / "input.json"))["stored"]
        return stored["pixels"] * host["images"] / host["decode"] / 1e6

    def tjbench(self):
        """Returns million pixels per second: the pixels of all files / the sum of their times."""
        pixels = seconds = 0
        for file in self.alone:
            words = run(["tjbench", file, "-benchtime", "0.3", "-warmup", "0.1", "-quiet", "-nowrite"], os.environ).split()
            width, height, rate = int(words[-5]), int(words[-4]), float(words[-1])
            pixels += width * height
            seconds += width * height / rate
        return pixels / seconds

    def step(self, *data):
        record = self.folder / "record.jsonl"
        command = [self.options.worker, "train", "--device", "cpu", "--threads", "1", "--warmup", "0", *self.options.training.split()]
        run([*command, *data, "--record", record], {**os.environ, "OMP_NUM_THREADS": "1"})
        header, *lines = map(json.loads, open(record))
        steps = [line["step"][0] for line in lines if line["kind"] == "iteration"]
        return header["config"]["batch_size"] / statistics.median(steps[2:])

    def tables(self):
        decoders = ["turbojpeg", "zune"]
        loaders = {f"ringmark, {decoder}": lambda decoder=decoder: self.ringmark(decoder) for decoder in decoders}
        loaders |= {f"DataLoader, {decoder}": lambda decoder=decoder: self.dataloader(decoder) for decoder in ["pillow", "decode_jpeg"]}
        stages = {f"ringmark, {decoder}": lambda decoder=decoder: self.decode_stage(decoder) for decoder in decoders}
        read = ["--data", str(self.folder / "all.rec"), "--decode-threads", str(max(1, self.options.workers - 1))]
        parts = {
            "batches": (f"images/s, {self.options.workers} threads or processes", loaders),
            "decoding": ("decoding alone, Mpx/s, 1 thread", {**stages, "tjbench": self.tjbench}),
            "training": ("training, images/s, 1 thread", {"synthetic": self.step, "read": lambda: self.step(*read)}),
        }
        for part in self.options.parts.split(","):
            if part not in parts:
                comparison.exit_with(f"--parts {part}: choose from {', '.join(parts)}")
            yield parts[part]


def main():
    options = comparison.parser(__doc__)
    options.add_argument("photographs", type=pathlib.Path)
    options.add_argument("--workers", type=int, default=comparison.CORES)
    options.add_argument("--batches", type=int, default=60)
    options.add_argument("--parts", default="batches,decoding,training")
    options.add_argument("--training", default="--batch-size 8 --iters 10", help="more options of ringmark-worker train")
    options.add_argument("--ringmark", default=str(ROOT / "target/release/ringmark"))
    options = options.parse_args()
    options.python = comparison.python_with_torch()

    with tempfile.TemporaryDirectory() as folder:
        tables = list(Sides(options, pathlib.Path(folder)).tables())
        figures = comparison.measure_rounds({(title, side): measure for title, sides in tables for side, measure in sides.items()}, options.rounds)
    rates = {title: {side: figures[title, side] for side in sides} for title, sides in tables}
    table = [line for title, sides in rates.items() for line in comparison.side_lines(title, sides)]
    table.append(comparison.footer(options.rounds))
    comparison.report(table, options.out, rates=rates)


if __name__ == "__main__":
    main()
