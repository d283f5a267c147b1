#!/usr/bin/env python3
"""What torchvision's networks compute: the numbers in model_reference.json, which ringmark-worker is tested against.

Remake them with torch 2.11.0, torchvision 0.26.0 and numpy (any machine, one minute):

    .libtorch/venv/bin/python tests/golden/model_reference.py > tests/golden/model_reference.json

`names`      names and shapes of the state_dict of resnet50, in order
`step`       one forward and backward of it in train mode, in fp64: loss, some scores, norms of gradients, running means;
             then the scores in evaluation mode, by the running statistics
`ten_steps`  losses of ten steps of SGD in fp32, in each memory layout, with the options that ringmark-worker takes
`resnet18`   names and step of that network

Fresh random weights would be no reference: in train mode, with few images, batch normalization amplifies rounding in
every block, and each ReLU whose input is near 0 turns rounding into a jump of the gradient. So both rules below keep
the residual branches small (weight of their last normalization about 1/4) and shift most inputs of ReLU off 0 (bias of every batch
normalization about 2). Then fp32 and fp64, channels_last and contiguous agree to 1e-5 in everything that is kept here.
"""

import json
import math
import sys

import numpy
import torch
import torchvision

LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


# The weight of each block's last normalization ends so; what is kept of a step.
LAST_NORM = {"resnet50": "bn3.weight", "resnet18": "bn2.weight"}
GRADIENTS = {
    "resnet50": [
        "conv1.weight",
        "bn1.weight",
        "layer1.0.downsample.0.weight",
        "layer2.0.conv2.weight",
        "layer3.0.downsample.1.weight",
        "layer4.2.bn3.weight",
        "fc.weight",
        "fc.bias",
    ],
    "resnet18": [
        "conv1.weight",
        "bn1.weight",
        "layer1.0.conv1.weight",
        "layer2.0.downsample.0.weight",
        "layer2.0.conv2.weight",
        "layer3.0.downsample.1.weight",
        "layer4.1.bn2.weight",
        "fc.weight",
        "fc.bias",
    ],
}
STATISTICS = {
    "resnet50": ["bn1.running_mean", "layer2.3.bn2.running_mean", "layer4.0.downsample.1.running_var"],
    "resnet18": ["bn1.running_mean", "layer2.1.bn2.running_mean", "layer4.0.downsample.1.running_var"],
}


def make(layout, dtype, rule, network="resnet50"):
    model = getattr(torchvision.models, network)()
    with torch.no_grad():
        rule(model, LAST_NORM[network])
    return model.to(dtype).to(memory_format=LAYOUTS[layout]).train()


# --- one step ---------------------------------------------------------------------------------------------------------


def drawn(model, last_norm):
    """Every parameter, then every running statistic, in order: randn of seed 8 x deviation + mean."""
    torch.manual_seed(8)
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if buffer.dim() == 1]
    for name, tensor in [*model.named_parameters(), *buffers]:
        shape = list(tensor.shape)
        if len(shape) == 4:
            deviation, mean = math.sqrt(2 / (shape[0] * shape[2] * shape[3])), 0.0
        elif name.startswith("fc."):
            deviation, mean = 0.005, 0.0
        elif name.endswith("bias"):
            deviation, mean = 0.1, 2.0
        elif name.endswith("running_mean"):
            deviation, mean = 0.1, 0.0
        else:
            deviation, mean = 0.1, 0.25 if name.startswith("layer") and name.endswith(last_norm) else 1.0
        tensor.copy_(torch.randn(shape) * deviation + mean)


def step(layout, dtype, network="resnet50"):
    model = make(layout, dtype, drawn, network)
    images = torch.randn(2, 3, 64, 64).to(dtype).contiguous(memory_format=LAYOUTS[layout])
    scores = model(images)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor([3, 977]))
    loss.backward()
    with torch.no_grad():
        evaluated = model.eval()(images)
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    return {
        "loss": loss.item(),
        "scores": scores[:, [0, 3, 500, 977, 999]].tolist(),
        "evaluated": evaluated[:, [0, 3, 500, 977]].tolist(),  # one of 999 is near 0
        "gradient_norms": {name: norm(parameters[name].grad) for name in GRADIENTS[network]},
        "running_norms": {name: norm(buffers[name]) for name in STATISTICS[network]},
    }


def norm(tensor):
    return tensor.double().norm().item()  # fp32 would add up two million squares to 4 digits


# --- ten steps --------------------------------------------------------------------------------------------------------


def hashed(model, last_norm):
    """Element number n of all parameters together: mean + bound x u(n), where u is 24 bits of a hash of n in -1 to 1.

    Integers and one rounding of fp32 after the other, so that a program without torch makes the same bits.
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
            bound, mean = 1 / 8, 0.25 if name.startswith("layer") and name.endswith(last_norm) else 1.0
        unit = splitmix(first, count) * numpy.float32(2**-23) - numpy.float32(1)
        tensor.copy_(torch.from_numpy(numpy.float32(mean) + numpy.float32(bound) * unit).view(shape))
        first += count


def splitmix(first, count):
    """The upper 24 bits of splitmix64."""
    value = numpy.arange(first + 1, first + 1 + count, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return ((value ^ (value >> numpy.uint64(31))) >> numpy.uint64(40)).astype(numpy.float32)


SEED, BATCH, SIZE = 3, 4, 64
RATE, WARMUP, MOMENTUM, DECAY = 3e-5, 5, 0.875, 0.5
# The same to ringmark-worker. The decay is large, or ten steps at this rate would not show it.
OPTIONS = (
    f"--seed {SEED} --batch-size {BATCH} --image-size {SIZE} --iters 10 --warmup 0 "
    f"--lr {RATE:.5f} --lr-warmup-iters {WARMUP} --momentum {MOMENTUM} --weight-decay {DECAY}"
)


def ten_steps(layout, dtype=torch.float32):
    model = make(layout, dtype, hashed)
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
    """Largest relative difference of two results of the same shape."""
    if isinstance(one, dict):
        return max(far_apart(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return max(map(far_apart, one, other))
    return abs(one - other) / abs(other)


def names(network):
    """A name a line, with its shape."""
    state = getattr(torchvision.models, network)().state_dict()
    return "[\n" + ",\n".join(f'  ["{name}", {list(tensor.shape)}]' for name, tensor in state.items()) + "\n ]"


def main():
    torch.set_num_threads(1)
    references = {network: step("nchw", torch.float64, network) for network in LAST_NORM}
    losses = {layout: ten_steps(layout) for layout in LAYOUTS}
    exact = ten_steps("nchw", torch.float64)
    for layout in LAYOUTS:
        for network, reference in references.items():
            apart = far_apart(step(layout, torch.float32, network), reference)
            print(f"{network}, {layout}: fp32 and fp64 differ by {apart:.1e} in the step", file=sys.stderr)
        print(f"{layout}: fp32 and fp64 differ by {far_apart(losses[layout], exact):.1e} in the losses", file=sys.stderr)
    result = {
        "made_by": f"model_reference.py, torch {torch.__version__}, torchvision {torchvision.__version__}",
        "step": references["resnet50"],
        "ten_steps": {"options": OPTIONS, "losses": losses},
        "resnet18": {"step": references["resnet18"], "names": "NAMES"},
    }
    text = json.dumps(result, indent=1)[:-2].replace('"NAMES"', names("resnet18"))
    print(text + ',\n "names": ' + names("resnet50") + "\n}")


if __name__ == "__main__":
    main()
