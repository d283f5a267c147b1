#!/usr/bin/env python3
"""Measures torchvision's input for compare_input.py; prints images/s as JSON.

A torch.utils.data.DataLoader reads batches from a folder of classes, with RandomResizedCrop to 224 pixels and a flip, as
bytes.
"""

import argparse
import itertools
import json
import time

from torch.utils.data import DataLoader
from torchvision import io, transforms
from torchvision.datasets import ImageFolder


def decode_jpeg(path):
    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder")
    options.add_argument("--decoder", choices=["pillow", "decode_jpeg"], required=True)
    options.add_argument("--workers", type=int, required=True)
    options.add_argument("--batch-size", type=int, required=True)
    options.add_argument("--batches", type=int, required=True)
    options.add_argument("--warmup", type=int, required=True)
    options = options.parse_args()
    augment = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    if options.decoder == "pillow":
        images = ImageFolder(options.folder, transforms.Compose([*augment, transforms.PILToTensor()]))
    else:
        images = ImageFolder(options.folder, transforms.Compose(augment), loader=decode_jpeg)
    # Prefetch four batches in total, as ringmark's loader does.
    loader = DataLoader(
        images, options.batch_size, shuffle=True, num_workers=options.workers, drop_last=True, persistent_workers=True,
        prefetch_factor=max(1, 4 // options.workers),
    )  # fmt: skip
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in range(options.warmup):
        next(batches)
    start = time.perf_counter()
    for _ in range(options.batches):
        next(batches)
    print(json.dumps({"images_per_second": options.batches * options.batch_size / (time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
