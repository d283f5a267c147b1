#!/usr/bin/env python3
"""Checks that ringmark and MXNet read each other's RecordIO files.

    scripts/dev/compare_recordio.py [--images 200] [--keep FOLDER]

Installs MXNet 1.9.1, which needs an old numpy, and OpenCV for im2rec.py in a separate environment: in a temporary folder, or
in --keep, which later calls reuse. Then runs these checks on JPEG files generated from a seed:

pack        `ringmark pack` and MXNet's im2rec.py write byte-identical .lst, .idx and .rec files of a folder
list        the same for a list with several labels per image
encode      the same for --resize, --center-crop, --quality and PNG: MXNet reads equal numbers, labels and sizes from both
            files, and pixels that differ by less than JPEG's error; ImageRecordIter decodes all of ringmark's
read        MXIndexedRecordIO reads every record of ringmark's file by its key; ImageRecordIter decodes all of them
write       ringmark reads the labels and bytes that MXNet wrote, with and without .idx; some records contain the magic
parts       ImageRecordIter's part_index of num_parts, without .idx, contains the same images as ringmark's parts (1, 3, 4
            and 7 parts)

Prints a line per check. Exits with 1 if anything differs.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Requirements of MXNet's last release.
PACKAGES = ["mxnet==1.9.1", "numpy<1.24", "opencv-python-headless<4.10"]


def in_environment(options):
    """Runs this script again with the Python that has MXNet."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary).resolve()
        python = folder / "mxnet/bin/python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder / "mxnet"], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        build = ["cargo", "build", "--quiet", "--package", "ringmark", "--package", "ringmark-input", "--bins", "--examples"]
        subprocess.run(build, cwd=ROOT, check=True)
        call = [python, __file__, "--images", str(options.images), "--work", tempfile.mkdtemp(dir=temporary)]
        return subprocess.run(call).returncode


def programs():
    """Returns the launcher and the example that lists items."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    folder = pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / "debug"
    return folder / "ringmark", folder / "examples/list_items"


class Comparison:
    def __init__(self, work, count):
        import mxnet
        import numpy

        self.mxnet, self.numpy = mxnet, numpy
        self.work, self.count = pathlib.Path(work), count
        self.ringmark, self.list_items = programs()
        self.failed = False

    def report(self, check, is_same, detail):
        self.failed |= not is_same
        print(f"{check:<8} {'same' if is_same else 'DIFFERS'}: {detail}", flush=True)

    def make_images(self):
        import cv2

        generator = self.numpy.random.RandomState(16)
        for number in range(self.count):
            folder = self.work / "images" / f"class{number % 7}"
            folder.mkdir(parents=True, exist_ok=True)
            height, width = generator.randint(40, 120, 2)
            small = generator.randint(0, 256, (6, 6, 3)).astype("uint8")
            cv2.imwrite(str(folder / f"{number:04}.jpg"), cv2.resize(small, (int(width), int(height))))

    def im2rec(self, prefix, *options):
        script = pathlib.Path(self.mxnet.__file__).parent / "tools/im2rec.py"
        call = [sys.executable, script, self.work / prefix, self.work / "images", *options]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)

    def pack(self, prefix, *options):
        call = [self.ringmark, "pack", self.work / "images", self.work / f"{prefix}.rec", *options]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)

    def compare_files(self, check, ours, theirs):
        for ending in ("lst", "idx", "rec"):
            one, other = ((self.work / f"{prefix}.{ending}").read_bytes() for prefix in (ours, theirs))
            self.report(check, one == other, f".{ending}, {len(one)} bytes")

    def compare_packing(self):
        for order in ([], ["--no-shuffle"]):
            ours, theirs = f"ours{len(order)}", f"theirs{len(order)}"
            (self.work / theirs).mkdir()
            theirs = f"{theirs}/a"
            self.im2rec(theirs, "--list", "--recursive", *order)
            self.im2rec(theirs, "--pass-through")
            self.pack(ours, "--pass-through", *order)
            self.compare_files("pack", ours, theirs)
        (self.work / "several").mkdir()
        lines = (self.work / "theirs0/a.lst").read_text().splitlines()[::2]
        fields = [line.split("\t") for line in lines]
        text = "".join(f"{id}\t{label}\t{int(id) / 8:f}\t{path}\n" for id, label, path in fields)
        (self.work / "several/a.lst").write_text(text)
        self.im2rec("several/a", "--pass-through", "--pack-label")
        self.pack("labels", "--list", self.work / "several/a.lst")
        self.compare_files("list", "labels", "several/a")

    def compare_encoding(self):
        (self.work / "encoded").mkdir()
        for number, (least, options) in enumerate((
            (40, ["--resize", "48", "--quality", "90"]),
            (40, ["--center-crop", "--quality", "95"]),
            (40, ["--center-crop", "--resize", "96", "--quality", "100"]),
            (45, ["--resize", "40", "--encoding", ".png", "--quality", "3"]),
        )):  # fmt: skip
            ours, theirs = f"encoded{number}", f"encoded/{number}"
            list_file = self.work / f"{theirs}.lst"
            list_file.write_bytes((self.work / "theirs0/a.lst").read_bytes())
            self.im2rec(theirs, *options)
            list_file.unlink()
            self.pack(ours, *options)
            same, worst = 0, float("inf")
            for (header, image), (other_header, other) in zip(self.decoded(ours), self.decoded(theirs)):
                same += header == other_header and image.shape == other.shape
                worst = min(worst, self.psnr(image, other))
            detail = f"{' '.join(options)}: {same} of {self.count} with equal size and label, PSNR of pixels at least {worst:.1f} dB"
            self.report("encode", same == self.count and worst >= least, detail)
            labels = self.labels(f"{ours}.rec", 0, 1)
            self.report("encode", len(labels) == self.count, f"ImageRecordIter: {len(labels)} images decoded")

    def decoded(self, prefix):
        """Yields header and pixels of every record, in the order of the file."""
        recordio = self.mxnet.recordio
        file = recordio.MXIndexedRecordIO(str(self.work / f"{prefix}.idx"), str(self.work / f"{prefix}.rec"), "r")
        for key in file.keys:
            header, image = recordio.unpack_img(file.read_idx(key))
            yield header, image

    def psnr(self, one, other):
        if one.shape != other.shape:
            return 0.0
        difference = ((one.astype(float) - other.astype(float)) ** 2).mean()
        return float(10 * self.numpy.log10(255**2 / difference)) if difference else float("inf")

    def compare_reading(self):
        recordio = self.mxnet.recordio
        file = recordio.MXIndexedRecordIO(str(self.work / "ours0.idx"), str(self.work / "ours0.rec"), "r")
        same = 0
        for line in (self.work / "ours0.lst").read_text().splitlines():
            id, label, path = line.split("\t")
            header, image = recordio.unpack(file.read_idx(int(id)))
            is_same = (header.id, header.label) == (int(id), float(label))
            same += is_same and image == (self.work / "images" / path).read_bytes()
        self.report("read", same == self.count, f"MXIndexedRecordIO: {same} of {self.count} records with equal label and image")
        labels = self.labels("ours0.rec", 0, 1)
        listed = [float(line.split("\t")[1]) for line in (self.work / "ours0.lst").read_text().splitlines()]
        self.report("read", labels == listed, f"ImageRecordIter: {len(labels)} images decoded, labels in order")

    def labels(self, file, index, parts):
        """Returns the labels that ImageRecordIter reads from part `index` of `parts`, which are byte ranges."""
        data = self.mxnet.io.ImageRecordIter(
            path_imgrec=str(self.work / file), data_shape=(3, 32, 32), batch_size=1, num_parts=parts, part_index=index,
            preprocess_threads=1, resize=32, round_batch=False, verbose=False,
        )  # fmt: skip
        return [batch.label[0].asnumpy()[0].item() for batch in data]

    def items(self, part, file):
        listed = subprocess.run([self.list_items, part, self.work / file], check=True, capture_output=True, text=True)
        return [line.split("\t") for line in listed.stdout.splitlines()]

    def compare_writing(self):
        recordio, magic = self.mxnet.recordio, struct.pack("<I", 0xCED7230A)
        generator = self.numpy.random.RandomState(8)
        file = recordio.MXIndexedRecordIO(str(self.work / "mxnet.idx"), str(self.work / "mxnet.rec"), "w")
        expected, splits = [], 0
        for id in range(500):
            pieces = [generator.bytes(int(generator.randint(0, 40))) for _ in range(int(generator.randint(1, 5)))]
            image = magic.join(pieces) if id % 2 else b"".join(pieces)
            labels = [float(id % 10)] if id % 3 else [1.0, id / 4, 3.0]
            header = recordio.IRHeader(0, labels[0] if len(labels) == 1 else labels, id, 0)
            record = recordio.pack(header, image)
            splits += sum(record[at : at + 4] == magic for at in range(0, len(record), 4))
            file.write_idx(id, record)
            text = ",".join(f"{label:g}" for label in labels)
            expected.append([str(id), text, str(len(image)), f"{zlib.crc32(image):08x}"])
        file.close()
        self.report("write", self.items("0/1", "mxnet.rec") == expected, f"500 records with .idx, which contain the magic {splits} times")
        (self.work / "mxnet.idx").unlink()
        for parts in (1, 3, 4):
            found = [item for index in range(parts) for item in self.items(f"{index}/{parts}", "mxnet.rec")]
            self.report("write", found == expected, f"without .idx, parts: {parts}")

    def compare_parts(self):
        """Compares parts by unique labels, because ImageRecordIter does not return record numbers."""
        lines = (self.work / "ours0.lst").read_text().splitlines()
        fields = [line.split("\t") for line in lines]
        (self.work / "numbered.lst").write_text("".join(f"{id}\t{id}\t{path}\n" for id, _, path in fields))
        self.pack("numbers", "--list", self.work / "numbered.lst")
        (self.work / "numbers.idx").unlink()
        for parts in (1, 3, 4, 7):
            theirs = [self.labels("numbers.rec", index, parts) for index in range(parts)]
            ours = [[float(item[1]) for item in self.items(f"{index}/{parts}", "numbers.rec")] for index in range(parts)]
            sizes = " ".join(str(len(part)) for part in ours)
            self.report("parts", ours == theirs, f"without .idx, parts: {parts}, of {sizes} images")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--keep", metavar="FOLDER", help="install MXNet in FOLDER and keep it for later calls")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.work:
        sys.exit(in_environment(options))
    comparison = Comparison(options.work, options.images)
    comparison.make_images()
    comparison.compare_packing()
    comparison.compare_encoding()
    comparison.compare_reading()
    comparison.compare_writing()
    comparison.compare_parts()
    sys.exit(comparison.failed)


if __name__ == "__main__":
    main()
