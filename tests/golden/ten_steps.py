#!/usr/bin/env python3
"""Computes the losses in ten_steps.json with torchvision's resnet50, as reference for the tests of ringmark-worker.

Regenerate them with torch 2.11.0, torchvision 0.26.0 and numpy (any machine, one minute):

    .libtorch/venv/bin/python tests/golden/ten_steps.py > tests/golden/ten_steps.json

`names`      names and shapes of the state_dict, in order
`ten_steps`  losses of ten SGD steps in fp32, in each memory layout, and the corresponding options of ringmark-worker

Random initial weights cannot serve as a reference: in train mode, with few images, batch normalization amplifies
rounding errors in every block, and a ReLU whose input is near 0 turns them into jumps of the gradient. Therefore `hashed`
keeps the residual branches small (the weight of their last normalization is about 1/4) and shifts most ReLU inputs away
from 0 (the bias of every batch normalization is about 2). With these weights, fp32 and fp64, and channels_last and
contiguous, agree to 1e-5.
"""

import json
import math
import sys

import numpy
import torch
import torchvision

LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def hashed(model):
    """Initializes the parameters: element n, counted over all of them, is mean + bound x u(n).

    u(n) is a 24-bit hash of n, scaled to -1 to 1. Only integer arithmetic and single fp32 roundings are used, so that a
    program without torch can reproduce every bit.
    """
    first = 0
    for name, tensor in model.named_parameters():
        shape, count = tensor.shape, tensor.numel()
        if len(shape) == 4:
            bound, mean = math.sqrt(6 / (shape[0] * shape[2] * shape[3])), 0.0
        elif name.startswith("fc."):
            bound, mean = 1 / 64, 0.0
        elif name.endswith("bias"):
            bound, mean = 1 / 8, 2.0
        else:
            bound, mean = 1 / 8, 0.25 if name.startswith("layer") and name.endswith("bn3.weight") else 1.0
        unit = splitmix(first, count) * numpy.float32(2**-23) - numpy.float32(1)
        tensor.copy_(torch.from_numpy(numpy.float32(mean) + numpy.float32(bound) * unit).view(shape))
        first += count


def splitmix(first, count):
    """Returns the upper 24 bits of `count` values of splitmix64, starting at index `first`."""
    value = numpy.arange(first + 1, first + 1 + count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return ((value ^ (value >> numpy.uint64(31))) >> numpy.uint64(40)).astype(numpy.float32)


SEED, BATCH, SIZE = 3, 4, 64
RATE, WARMUP, MOMENTUM, DECAY = 3e-5, 5, 0.875, 0.5
# The settings above as options of ringmark-worker. Weight decay is large because a usual value would have no visible
# effect after ten steps at this learning rate.
OPTIONS = (
    f"--seed {SEED} --batch-size {BATCH} --image-size {SIZE} --iters 10 --warmup 0 "
    f"--lr {RATE:.5f} --lr-warmup-iters {WARMUP} --momentum {MOMENTUM} --weight-decay {DECAY}"
)


def ten_steps(layout, dtype=torch.float32):
    model = torchvision.models.resnet50()
    with torch.no_grad():
        hashed(model)
    model.to(dtype).to(memory_format=LAYOUTS[layout]).train()
    torch.manual_seed(SEED)
    images = torch.randn(BATCH, 3, SIZE, SIZE).to(dtype).contiguous(memory_format=LAYOUTS[layout])
    labels = torch.randint(1000, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True)
    losses = []
    for number in range(1, 11):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, number / WARMUP)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def far_apart(one, other):
    """Returns the largest relative difference between two lists."""
    return max(abs(one - other) / abs(other) for one, other in zip(one, other))


def main():
    torch.set_num_threads(1)
    losses = {layout: ten_steps(layout) for layout in LAYOUTS}
    exact = ten_steps("nchw", torch.float64)
    for layout in LAYOUTS:
        print(f"{layout}: fp32 and fp64 differ by {far_apart(losses[layout], exact):.1e} in the losses", file=sys.stderr)
    result = {
        "made_by": f"ten_steps.py, torch {torch.__version__}, torchvision {torchvision.__version__}",
        "ten_steps": {"options": OPTIONS, "losses": losses},
    }
    state = torchvision.models.resnet50().state_dict()
    names = ",\n".join(f'  ["{name}", {list(tensor.shape)}]' for name, tensor in state.items())
    print(json.dumps(result, indent=1)[:-2] + f',\n "names": [\n{names}\n ]\n}}')


if __name__ == "__main__":
    main()
