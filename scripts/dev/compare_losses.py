#!/usr/bin/env python3
"""Compares the losses of ten training steps with PyTorch's, for the same initial weights and synthetic batch.

    scripts/dev/compare_losses.py [--dtype fp32|bf16] [--image-size 224] [--batch-size 4] [--device cpu|cuda]

Runs both memory layouts. Exits with 1 if a relative difference exceeds 1e-4 in fp32 or 2e-2 in bf16.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from comparison import HERE, ROOT, python_with_torch

LIMITS = {"fp32": 1e-4, "bf16": 2e-2}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dtype", choices=LIMITS, default="fp32")
    options.add_argument("--batch-size", default="4")
    options.add_argument("--image-size", default="224")
    options.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options.add_argument("--worker", default=str(ROOT / "target/release/ringmark-worker"))
    options = options.parse_args()
    python, worst = python_with_torch("torchvision, safetensors"), 0.0
    with tempfile.TemporaryDirectory() as folder:
        init, record = f"{folder}/init.safetensors", f"{folder}/record.jsonl"
        make = "import sys, torch, torchvision, safetensors.torch as s; torch.manual_seed(1); "
        make += "s.save_file({k: v.contiguous() for k, v in torchvision.models.resnet50().state_dict().items()}, sys.argv[1])"
        subprocess.run([python, "-c", make, init], check=True)
        for layout in ["nhwc", "nchw"]:
            step = ["--batch-size", options.batch_size, "--image-size", options.image_size, "--layout", layout, "--dtype", options.dtype]
            step += ["--device", options.device, "--iters", "10", "--threads", str(len(os.sched_getaffinity(0))), "--init", init]
            baseline = subprocess.run([python, HERE / "pytorch_baseline.py", *step], check=True, capture_output=True, text=True)
            theirs = json.loads(baseline.stdout.splitlines()[-1])["losses"]
            command = [options.worker, "train", *step, "--warmup", "0", "--record", record]
            subprocess.run(command, check=True, capture_output=True)
            ours = [line["loss"][0] for line in map(json.loads, open(record)) if line["kind"] == "iteration"]
            print(f"{layout}  iteration   ringmark    PyTorch  relative difference")
            for number, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
                worst = max(worst, abs(a - b) / b)
                print(f"{number:15}  {a:.6f}   {b:.6f}  {abs(a - b) / b:.1e}")
    print(f"largest relative difference {worst:.1e}, limit {LIMITS[options.dtype]:.0e} in {options.dtype}")
    sys.exit(worst > LIMITS[options.dtype])


if __name__ == "__main__":
    main()
