#!/usr/bin/env python3
"""Compiles the worker's CUDA kernels for every GPU architecture with NVRTC. Needs neither a GPU nor a driver.

    scripts/dev/check_kernels.py --cuda 12.6|13.0 | --libraries FOLDER [--registers 128] [--architectures 70,90]

--cuda       downloads NVRTC's wheel into .libtorch once (24 MB for 12.6, 90 MB for 13.0)
--libraries  folder with libnvrtc.so.* and libnvrtc-builtins.so.*

A kernel fails the check if it does not compile, spills registers to memory, or uses more than --registers. With 128
registers, two blocks of 256 threads fit on a multiprocessor, which was fastest on an H100 (results/h100/kernels.txt,
batch_norm_choice).
"""

import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src/worker/kernels"
WHEELS = {"12.6": "nvidia-cuda-nvrtc-cu12==12.6.85", "13.0": "nvidia-cuda-nvrtc==13.0.88"}
# Element types, and the oldest architecture that supports each.
ELEMENTS = {"HALF": 70, "BFLOAT16": 80, "FLOAT": 70}
OLDEST = 70
# Oldest architecture with the tensor core instructions that pointwise.cu uses.
OLDEST_POINTWISE = 80


def load_wheel(cuda):
    """Returns the folder of NVRTC's libraries for this CUDA version."""
    folder = ROOT / ".libtorch" / f"nvrtc-{cuda}"
    if not list(folder.glob("nvidia/*/lib/libnvrtc.so.*")):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, WHEELS[cuda]]
        subprocess.run(pip, check=True)
    return next(folder.glob("nvidia/*/lib/libnvrtc.so.*")).parent


def worker_sources():
    """Returns the source of each KernelSet: the files in ffi/cuda/kernels.rs, in the same order."""
    text = (ROOT / "src/worker/ffi/cuda/kernels.rs").read_text()
    include = r'include_str!\("\.\./\.\./kernels/([\w.]+)"\)'
    (prelude,) = re.findall(rf"const PRELUDE: &str = {include}", text)
    sets = {name: re.findall(include, files) for name, files in re.findall(r"KernelSet::(\w+) => &\[(.*?)\],\n", text, re.DOTALL)}
    unused = {file.name for file in KERNELS.iterdir()} - {prelude}.union(*sets.values())
    if unused or sorted(sets) != ["Norm", "Pointwise"]:
        raise SystemExit(f"src/worker/ffi/cuda/kernels.rs: kernel sets are {sorted(sets)}, files not included are {sorted(unused)}")
    return {name: b"".join((KERNELS / file).read_bytes() for file in [prelude, *files]) for name, files in sets.items()}


def is_served(name, architecture, element):
    """Returns the same result as KernelSet::serves in ffi/cuda/kernels.rs."""
    return architecture >= ELEMENTS[element] and (name == "Norm" or architecture >= OLDEST_POINTWISE)


class Nvrtc:
    def __init__(self, folder):
        def find(name):
            files = [file for file in sorted(pathlib.Path(folder).glob(name)) if "alt" not in file.name]
            if not files:
                raise SystemExit(f"no {name} in {folder}")
            return str(files[0])

        # Load this library first, because the compiler opens it by name only.
        ctypes.CDLL(find("libnvrtc-builtins.so.*"), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(find("libnvrtc.so.*"))

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def architectures(self):
        count = ctypes.c_int()
        self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self.library.nvrtcGetSupportedArchs(found)
        return [architecture for architecture in found if architecture >= OLDEST]

    def compile(self, source, architecture, element):
        """Returns the log, which contains each kernel's resources; raises RuntimeError with the log on failure."""
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
        options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17", "-default-device", f"-DELEMENT_{element}"]
        options = [option.encode() for option in [*options, "--ptxas-options=-v"]]
        status = self.library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        if status:
            raise RuntimeError(log.value.decode())
        return log.value.decode()


def uses(log):
    """Yields the name, registers and spilled bytes of each kernel in ptxas's log."""
    kernel = re.compile(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.DOTALL
    )
    for name, stores, loads, registers in kernel.findall(log):
        yield name, int(registers), int(stores) + int(loads)


def check(nvrtc, name, source, architecture, element, limit):
    """Returns a line about a compilation, and True if it passes."""
    begin = time.monotonic()
    title = f"sm_{architecture} {element.lower()} {name.lower()}"
    try:
        log = nvrtc.compile(source, architecture, element)
    except RuntimeError as error:
        return f"{title}: {str(error).strip()}", False
    kernels = list(uses(log))
    if not kernels or len(kernels) != log.count("Compiling entry function"):
        return f"{title}: unexpected output of ptxas: {log.strip()}", False
    wrong = [f"{name} {registers} registers, {spilled} bytes spilled" for name, registers, spilled in kernels if registers > limit or spilled]
    if wrong:
        return f"{title}: {'; '.join(wrong)}", False
    most = max(registers for _, registers, _ in kernels)
    return f"{title}: {len(kernels)} kernels, at most {most} registers, none spilled, {time.monotonic() - begin:.1f} s", True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    libraries = parser.add_mutually_exclusive_group(required=True)
    libraries.add_argument("--cuda", choices=WHEELS)
    libraries.add_argument("--libraries", type=pathlib.Path)
    parser.add_argument("--registers", type=int, default=128)
    parser.add_argument("--architectures", type=lambda text: [int(number) for number in text.split(",")])
    options = parser.parse_args()

    nvrtc = Nvrtc(options.libraries or load_wheel(options.cuda))
    architectures = options.architectures or nvrtc.architectures()
    print(f"NVRTC {nvrtc.version()}, sm_{', sm_'.join(map(str, architectures))}", flush=True)
    wanted = [
        (nvrtc, name, source, architecture, element, options.registers)
        for architecture in architectures
        for name, source in worker_sources().items()
        for element in ELEMENTS
        if is_served(name, architecture, element)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda arguments: check(*arguments), wanted))
    for line, passed in results:
        print("ok      " if passed else "FAILED  ", line)
    failed = sum(not passed for _, passed in results)
    print(f"{len(results)} compilations, {failed} failed")
    sys.exit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
