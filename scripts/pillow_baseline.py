#!/usr/bin/env python3
"""What Pillow and torchvision do in one thread with the files that ringmark-input's test `speed` decodes:

    VENV/bin/python scripts/pillow_baseline.py target/photographs [ROUNDS]

Prints the median over the rounds, in which the sides take turns, of images/s: decoding alone, and with torchvision's
RandomResizedCrop, flip and conversion to bytes in order of channels (`to numpy`); on Pillow's images, which is what
torchvision's ImageFolder gives, and on tensors by torchvision's own decode_jpeg.
"""

import io
import statistics
import sys
import time
from pathlib import Path

import numpy
import PIL
import torch
import torchvision
from PIL import Image
from torchvision import io as images
from torchvision import transforms


def main():
    torch.set_num_threads(1)
    files = [path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())]
    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    crop = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    validate = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])

    def pillow(file):
        return Image.open(io.BytesIO(file)).convert("RGB")

    def decode_jpeg(tensor):
        return images.decode_jpeg(tensor, mode=images.ImageReadMode.RGB)

    sides = {
        "Pillow, decode": (files, pillow),
        "Pillow, decode and imagenet": (files, lambda file: numpy.asarray(crop(pillow(file)))),
        "Pillow, decode and validation": (files, lambda file: numpy.asarray(validate(pillow(file)))),
        "decode_jpeg, decode": (tensors, decode_jpeg),
        "decode_jpeg, decode and imagenet": (tensors, lambda tensor: crop(decode_jpeg(tensor))),
        "decode_jpeg, decode and validation": (tensors, lambda tensor: validate(decode_jpeg(tensor))),
    }
    rates = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (inputs, work) in sides.items():
            start = time.perf_counter()
            for one in inputs:
                work(one)
            rates[name].append(len(inputs) / (time.perf_counter() - start))
    print(f"Pillow {PIL.__version__}, torchvision {torchvision.__version__}, {len(files)} files, 1 thread")
    for name, rate in rates.items():
        print(f"{name:36} {statistics.median(rate):8.0f} images/s")


if __name__ == "__main__":
    main()
