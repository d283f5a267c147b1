#!/usr/bin/env python3
"""Compares ringmark's checkpoints with dd on the same disk: GB/s of writing with fsync and of reading, by one writer.

    scripts/dev/compare_checkpoint.py FOLDER [--rounds 10] [--size 1024] [--out FILE]

FOLDER is on the disk to measure. --size is in MiB. Every side writes and reads --size MiB in blocks of 16 MiB, in a new
file that is removed afterwards: once as a warm-up, because new pages of the page cache may be slow on virtual machines,
and three times measured. A figure of a round is the median of the three. ringmark writes random bytes. dd writes zeros, because
reading a file in memory would take a third of its time: on a file system that compresses, dd is faster.

buffered  ringmark checkpoint --io buffered, and dd bs=16M conv=fsync. dd reads after the pages of the file are dropped
          (dd iflag=nocache count=0)
direct    ringmark checkpoint --io direct, and dd bs=16M oflag=direct conv=fsync, iflag=direct. The time in which dd fills its
          buffer with zeros (of=/dev/null) is subtracted: nothing is written meanwhile
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import comparison
from comparison import run

MIB = 1 << 20
# Measured files of each side and round, after one for warm-up.
MEASURED = 3


class Sides:
    def __init__(self, options, folder):
        self.options = options
        self.bytes = options.size * MIB
        self.record = folder / "record.json"

    def ringmark(self, io):
        command = [self.options.worker, "checkpoint", "--folder", self.options.folder, "--size", str(self.bytes), "--io", io]
        command += ["--writers", "rank-0", "--iters", str(MEASURED), "--warmup", "1", "--device", "cpu", "--threads", "1"]
        run([*command, "--record", self.record], os.environ)
        (result,) = json.loads(self.record.read_text())["results"]
        ranks = [rank for (rank,) in result["checkpoints"]]
        if any(rank["from_storage"] is not None and rank["from_storage"] < 0.9 * self.bytes for rank in ranks):
            comparison.exit_with(f"{self.options.folder}: ringmark read from memory")
        median = lambda key: statistics.median(self.bytes / rank[key] / 1e9 for rank in ranks)
        return {"write": median("total"), "read": median("read")}

    def dd(self, write, read):
        rates = [self.dd_once(write, read) for _ in range(1 + MEASURED)][1:]
        return {key: statistics.median(rate[key] for rate in rates) for key in rates[0]}

    def dd_once(self, write, read):
        file = self.options.folder / "dd"
        zeros = ["if=/dev/zero", f"count={self.bytes}", "iflag=count_bytes"]
        try:
            written = self.seconds(*zeros, f"of={file}", "conv=fsync", *write)
            if write:
                written -= self.seconds(*zeros, "of=/dev/null")
            subprocess.run(["dd", f"if={file}", "iflag=nocache", "count=0", "status=none"], check=True)
            times = {"write": written, "read": self.seconds(f"if={file}", "of=/dev/null", *read)}
            return {key: self.bytes / time / 1e9 for key, time in times.items()}
        finally:
            file.unlink(missing_ok=True)

    def seconds(self, *words):
        """Returns the time that dd prints."""
        # Huge pages for dd's buffer, which libtorch's memory has: with O_DIRECT, small ones cost up to half of the rate.
        environment = {**os.environ, "LC_ALL": "C", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        done = subprocess.run(["dd", "bs=16M", *words], capture_output=True, text=True, check=True, env=environment)
        return float(re.search(r"copied, ([0-9.e+-]+) s", done.stderr)[1])

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
    with tempfile.TemporaryDirectory() as folder:
        tables = dict(Sides(options, pathlib.Path(folder)).tables())
        sides = {(title, side): measure for title, sides in tables.items() for side, measure in sides.items()}
        figures = comparison.measure_rounds(sides, options.rounds)
    rates = {title: {side: figures[title, side] for side in sides} for title, sides in tables.items()}
    table = [line for title, sides in rates.items() for line in comparison.key_lines(f"GB/s, {title}", sides, 3)]
    table.append(comparison.footer(options.rounds))
    comparison.report(table, options.out, rates=rates)


if __name__ == "__main__":
    main()
