#!/usr/bin/env python3
"""Compares ringmark's checkpoints with dd on the same disk: GB/s of writing with fsync and of reading, by one writer.

    scripts/dev/compare_checkpoint.py FOLDER [--rounds 10] [--size 1024] [--out FILE]

FOLDER is on the disk to measure. --size is in MiB. Every side writes and reads --size MiB of the same kind of data (random
bytes from memory) in blocks of 16 MiB, in a new file that is removed afterwards:

buffered  ringmark checkpoint --io buffered, and dd bs=16M conv=fsync. dd reads after the pages of the file are dropped
          (dd iflag=nocache count=0)
direct    ringmark checkpoint --io direct, and dd bs=16M oflag=direct conv=fsync, iflag=direct
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import comparison
from comparison import run

BLOCK = 1 << 20


class Sides:
    def __init__(self, options, memory):
        self.options = options
        self.bytes = options.size * BLOCK
        self.record = memory / "record.json"
        # In memory, so that dd reads from no disk.
        self.source = memory / "source"
        block = os.urandom(16 * BLOCK)
        with self.source.open("wb") as file:
            for start in range(0, self.bytes, len(block)):
                file.write(block[: self.bytes - start])

    def ringmark(self, io):
        command = [self.options.worker, "checkpoint", "--folder", self.options.folder, "--size", str(self.bytes), "--io", io]
        command += ["--writers", "rank-0", "--iters", "1", "--warmup", "0", "--device", "cpu", "--threads", "1", "--record", self.record]
        run(command, os.environ)
        result = json.loads(self.record.read_text())["results"][0]
        (rank,) = result["checkpoints"][0]
        if rank["from_storage"] is not None and rank["from_storage"] < 0.9 * self.bytes:
            comparison.exit_with(f"{self.options.folder}: ringmark read from memory")
        return {"write": self.bytes / rank["total"] / 1e9, "read": self.bytes / rank["read"] / 1e9}

    def dd(self, write, read):
        file = self.options.folder / "dd"
        try:
            written = self.copy(f"if={self.source}", f"of={file}", "conv=fsync", *write)
            subprocess.run(["dd", f"if={file}", "iflag=nocache", "count=0", "status=none"], check=True)
            return {"write": written, "read": self.copy(f"if={file}", "of=/dev/null", *read)}
        finally:
            file.unlink(missing_ok=True)

    def copy(self, *words):
        """Returns GB/s: the bytes / the time that dd prints."""
        done = subprocess.run(["dd", "bs=16M", *words], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
        return self.bytes / float(re.search(r"copied, ([0-9.e+-]+) s", done.stderr)[1]) / 1e9

    def tables(self):
        yield "buffered", {"ringmark": lambda: self.ringmark("buffered"), "dd": lambda: self.dd([], [])}
        yield "direct", {"ringmark": lambda: self.ringmark("direct"), "dd": lambda: self.dd(["oflag=direct"], ["iflag=direct"])}


def main():
    options = comparison.parser(__doc__, rounds=10)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--size", type=int, default=1024)
    options = options.parse_args()
    if not options.folder.is_dir():
        comparison.exit_with(f"{options.folder} is not a folder: create it on the disk to measure")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        tables = dict(Sides(options, pathlib.Path(memory)).tables())
        sides = {(title, side): measure for title, sides in tables.items() for side, measure in sides.items()}
        figures = comparison.measure_rounds(sides, options.rounds)
    rates = {title: {side: figures[title, side] for side in sides} for title, sides in tables.items()}
    table = [line for title, sides in rates.items() for line in comparison.key_lines(f"GB/s, {title}", sides, 3)]
    table.append(comparison.footer(options.rounds))
    comparison.report(table, options.out, rates=rates)


if __name__ == "__main__":
    main()
