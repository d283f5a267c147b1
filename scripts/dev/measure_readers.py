#!/usr/bin/env python3
"""Measures time and memory of the commands that read results, for 8 to 65,536 ranks.

    scripts/dev/measure_readers.py [--ranks 8,64,512,4096,65536] [--program target/release/ringmark] [--folder /tmp/ringmark-scale]

For each number of ranks, scripts/dev/make_large_result.py creates a folder with two runs on that many ranks and two runs on
one rank; the second-to-last rank is a straggler. Prints a Markdown table: CPU time and peak memory, in total and per rank, MB
of records read per second of CPU time, and size of the output. The folders are kept and reused (0.55 GB at 65,536 ranks).
"""

import argparse
import os
import pathlib
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent
RUNS, ITERATIONS = 2, 40
COMMANDS = {
    "extract": ["extract", "RESULT", "--json", "-"],
    "report": ["report", "RESULT", "-o", "PAGE"],
    "diff": ["diff", "RESULT", "RESULT"],
    "check": ["check", "RESULT"],
    "predict": ["predict", "RESULT"],
    "export": ["extract", "RESULT", "--format", "prometheus"],
}


def measure(program, words, log):
    """Returns CPU seconds, peak memory in bytes and exit status of a command."""
    with open(log, "wb") as output:
        process = subprocess.Popen([program, *words], stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)


def make(ranks, folder):
    if folder.exists():
        return
    words = [f"1,{ranks}", str(RUNS), str(ITERATIONS), str(folder), "--straggler", f"{ranks - 2}:1.3"]
    subprocess.run([sys.executable, SCRIPTS / "make_large_result.py", *words], check=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", default="8,64,512,4096,65536")
    options.add_argument("--program", default="target/release/ringmark")
    options.add_argument("--folder", type=pathlib.Path, default="/tmp/ringmark-scale")
    options.add_argument("--commands", default=",".join(COMMANDS))
    options = options.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| command | ranks | CPU time | per rank | memory | per rank | records | output |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.commands.split(","):
        for ranks in [int(word) for word in options.ranks.split(",")]:
            result = options.folder / str(ranks)
            make(ranks, result)
            page, log = options.folder / f"{ranks}.html", options.folder / f"{name}-{ranks}.txt"
            paths = {"RESULT": str(result), "PAGE": str(page)}
            seconds, memory, status = measure(options.program, [paths.get(word, word) for word in COMMANDS[name]], log)
            # `check` fails because of the straggler; `predict` cannot extrapolate from one host to several.
            if status != 0 and name != "check" and not (name == "predict" and ranks <= 8):
                sys.exit(f"{name} with {ranks} ranks: exit status {status}: {log.read_text()[-1000:]}")
            records = sum(file.stat().st_size for file in result.rglob("*.jsonl")) * (2 if name == "diff" else 1)
            written = page.stat().st_size if name == "report" else log.stat().st_size
            print(
                f"| {name} | {ranks:,} | {seconds:.2f} s | {1e6 * seconds / ranks:.0f} us | {memory / 1e6:.0f} MB | "
                f"{memory / 1e3 / ranks:.1f} kB | {records / 1e6 / seconds:.0f} MB/s | {written / 1e3:.0f} kB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
