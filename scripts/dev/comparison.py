"""Shared functions of the comparison scripts: alternating rounds, commands, medians with their range, and output."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORES = len(os.sched_getaffinity(0))
PACKAGES = ["torch==2.11.0", "torchvision==0.26.0", "numpy", "safetensors"]


def parser(description, rounds=5, option="--worker", program="ringmark-worker"):
    """Returns a parser with the options of all comparisons; `option` selects the measured program."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds:
        options.add_argument("--rounds", type=int, default=rounds)
    options.add_argument(option, default=str(ROOT / "target/release" / program))
    options.add_argument("--out", help="JSON file for the table and the raw figures")
    return options


def exit_with(reason):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {reason}")


def python_with_torch(modules="torchvision"):
    """Returns a Python that can import torch and `modules`: that of setup.sh, completed if necessary, or this one."""
    venv = ROOT / ".libtorch/venv/bin/python"
    for python in [venv, pathlib.Path(sys.executable)]:
        if python.exists() and subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode == 0:
            return str(python)
    if not venv.exists():
        exit_with("torch and torchvision not found: run scripts/setup.sh, or use a Python that has them")
    # torchvision must come from the same index as libtorch: the other index has a newer version.
    index = (ROOT / ".libtorch/venv/ringmark-wheels").read_text().split()[1]
    other = [] if index == "default" else ["--extra-index-url", index]
    print("installing PyTorch's Python modules and the CUDA libraries that they import (about 4 GB)", file=sys.stderr)
    subprocess.run([venv, "-m", "pip", "install", "-q", *other, *PACKAGES], check=True)
    return str(venv)


def mpirun(processes, command):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(processes), *command]


def torchrun(python, processes, script):
    """Returns the command that runs a script of this folder with its arguments."""
    address = ["--master_addr", "127.0.0.1", "--master_port", "29511"]
    name, *arguments = script
    return [python, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), *address, str(HERE / name), *arguments]


def run(command, environment, timeout=None):
    """Returns the output of the command; exits if it fails."""
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        exit_with(f"{words}: time limit exceeded")
    if done.returncode != 0:
        exit_with(f"{words} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def run_json(command, environment, timeout=None):
    """Runs the command and parses the last line of its output as JSON."""
    return json.loads(run(command, environment, timeout).strip().splitlines()[-1])


def in_round(sides, number):
    """Returns the sides in the order of a round, which rotates so that drift affects all sides equally."""
    sides = list(sides)
    shift = number % max(1, len(sides))
    return sides[shift:] + sides[:shift]


def measure_rounds(sides, rounds):
    """Calls every side once per round; returns each side's figures, which are numbers or dictionaries of numbers."""
    figures = {side: [] for side in sides}
    for number in range(rounds):
        for side in in_round(sides, number):
            figure = sides[side]()
            figures[side].append(figure)
            shown = figure if isinstance(figure, dict) else {"": figure}
            name = side if isinstance(side, str) else ", ".join(side)
            print(f"round {number + 1} {name}:", *(f"{key} {value:.4g}" for key, value in shown.items()), file=sys.stderr)
    return figures


def ratios(ours, theirs):
    return [a / b for a, b in zip(ours, theirs)]


def spread(values, digits=2):
    return f"{statistics.median(values):8.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def footer(rounds, conditions=f"{CORES} cores"):
    return f"medians [lowest, highest] of {rounds} rounds; {conditions}"


def side_lines(title, sides, digits=2):
    """Returns a line for each side with its figures and the ratios of the first side to it within each round."""
    first, ours = next(iter(sides.items()))
    lines = [f"{title:42} {'':26}  {first} / side"]
    for side, theirs in sides.items():
        ratio = "" if side == first else spread(ratios(ours, theirs), digits)
        lines.append(f"  {side:40} {spread(theirs, digits):26}  {ratio}".rstrip())
    return lines


def key_lines(title, figures, digits=2):
    """Returns the lines of `side_lines` for each key of figures that are dictionaries."""
    lines = []
    for key in dict.fromkeys(key for rounds in figures.values() for key in rounds[0]):
        sides = {side: [figure[key] for figure in rounds] for side, rounds in figures.items() if key in rounds[0]}
        lines += side_lines(f"{title}, {key}", sides, digits)
    return lines


def report(table, out, **figures):
    """Prints the table and writes it and the figures to file `out`, if given."""
    print("\n".join(table))
    write_figures(table, out, **figures)


def write_figures(table, out, **figures):
    """Writes the command, the table and the raw figures to file `out`, if given."""
    if out:
        command = " ".join([f"scripts/dev/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]])
        pathlib.Path(out).write_text(json.dumps({"command": command, "table": table, **figures}, indent=1) + "\n")
