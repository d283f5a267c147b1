"""Functions that the measuring scripts share: rounds that alternate between sides, commands, medians with their range, output."""

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
    """Returns a parser with the options that all comparisons have; `option` names the program that is measured."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds:
        options.add_argument("--rounds", type=int, default=rounds)
    options.add_argument(option, default=str(ROOT / "target/release" / program))
    options.add_argument("--out", help="file for the table and the raw figures (JSON)")
    return options


def exit_with(reason):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {reason}")


def python_with_torch(modules="torchvision"):
    """Returns a Python that imports torch and `modules`: that of the set-up, completed if necessary, or this one."""
    of_setup = ROOT / ".libtorch/venv/bin/python"
    for python in [of_setup, pathlib.Path(sys.executable)]:
        if python.exists() and subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode == 0:
            return str(python)
    if not of_setup.exists():
        exit_with("no Python with torch and torchvision: run scripts/setup.sh, or use a Python that has them")
    # If libtorch is from another index, torchvision must be too: its version there is higher.
    index = (ROOT / ".libtorch/venv/ringmark-wheels").read_text().split()[1]
    other = [] if index == "default" else ["--extra-index-url", index]
    print("installing PyTorch's Python half and the CUDA libraries that it imports (about 4 GB)", file=sys.stderr)
    subprocess.run([of_setup, "-m", "pip", "install", "-q", *other, *PACKAGES], check=True)
    return str(of_setup)


def mpirun(processes, command):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(processes), *command]


def torchrun(python, processes, script):
    """Returns the command for a script in this folder and its arguments."""
    address = ["--master_addr", "127.0.0.1", "--master_port", "29511"]
    name, *arguments = script
    return [python, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), *address, str(HERE / name), *arguments]


def run(command, environment, timeout=None):
    """Returns the output of the command; exits if it fails."""
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        exit_with(f"{words}: the time limit is over")
    if done.returncode != 0:
        exit_with(f"{words} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def run_json(command, environment, timeout=None):
    """Returns the last line of the command's output, parsed."""
    return json.loads(run(command, environment, timeout).strip().splitlines()[-1])


def in_round(sides, number):
    """Returns the sides in the order of a round: the first one changes every round, so that none profits from drift."""
    sides = list(sides)
    shift = number % max(1, len(sides))
    return sides[shift:] + sides[:shift]


def measure_rounds(sides, rounds):
    """Calls every side once a round; returns the figures of each side, numbers or dictionaries of numbers."""
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
    """Returns a line for each side with its figures, and with the ratio of the first side to it within each round."""
    first, ours = next(iter(sides.items()))
    lines = [f"{title:42} {'':26}  {first} over this side"]
    for side, theirs in sides.items():
        ratio = "" if side == first else spread(ratios(ours, theirs), digits)
        lines.append(f"  {side:40} {spread(theirs, digits):26}  {ratio}".rstrip())
    return lines


def key_lines(title, figures, digits=2):
    """Returns the lines for each key of the figures, which are dictionaries."""
    lines = []
    for key in dict.fromkeys(key for rounds in figures.values() for key in rounds[0]):
        sides = {side: [figure[key] for figure in rounds] for side, rounds in figures.items() if key in rounds[0]}
        lines += side_lines(f"{title}, {key}", sides, digits)
    return lines


def tell(table, out, **figures):
    """Prints the table and writes it to `out`."""
    print("\n".join(table))
    write_figures(table, out, **figures)


def write_figures(table, out, **figures):
    """Writes the table, the command and the raw figures to the file `out`, if it is given."""
    if out:
        command = " ".join([f"scripts/dev/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]])
        pathlib.Path(out).write_text(json.dumps({"command": command, "table": table, **figures}, indent=1) + "\n")
