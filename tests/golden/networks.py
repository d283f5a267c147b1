#!/usr/bin/env python3
"""Computes the reference values in networks.json for the tests of ringmark-worker.

Regenerate them with torch 2.11.0 and torchvision 0.26.0 (any machine with 16 GB, some minutes):

    .libtorch/venv/bin/python tests/golden/networks.py > tests/golden/networks.json

Arguments restrict the output to the named networks. torchvision's networks are built without auxiliary classifiers;
MXNet's are in mxnet_networks.py. For each network:

`image`       number of channels and size of the images of `step`
`counted`     number of arrays and values that MXNet's measure.py counts: weights and biases, without those of
              normalization layers
`gmacs`       multiply-adds for one image of the network's default size, in 1e9
`parameters`  name, shape, standard deviation and mean of each, in order; `buffers` likewise
`step`        one forward and backward pass in train mode, in fp64; `evaluated`: scores after it, computed with the
              running statistics

The weights and images of a step are drawn in fp32 after manual_seed(8): first each parameter and each buffer in order,
randn(shape) x deviation + mean, then the images, randn(2, ..). LABELS contains the labels, and CLASSES the classes
whose scores are stored. A gradient is stored as its norm and its projection: the sum of g(i) cos(i) divided by the
square root of the number of elements, with i from 0 in contiguous order. Multiplied by that root, a projection has the
same tolerance as the norm. [0, 0] denotes a zero gradient: that of an unused gamma, or (up to rounding) that of a bias
that the next normalization cancels.

Compare in fp64. In fp32, rounding occasionally flips a ReLU whose input is near 0, or a maximum of two nearly equal
values. With millions of values some flip on one machine and not on another, and gradients change by 1e-3. Scores, loss
and running statistics are not affected. The weights make flips rare (`of_batch_norm` shifts most ReLU inputs away from
0) and keep residual branches small, because batch normalization over few images amplifies rounding in each. They also
keep the inputs of normalizations so small (of response normalization, so large) that a wrong eps or alpha is detected.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context

import mxnet_networks as mxnet
import torch
import torchvision
from torch import nn

LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
CLASSES = {1000: [0, 3, 500, 977, 999], 10: [0, 3, 5, 7, 9]}
LABELS = {1000: [3, 977], 10: [3, 7]}


@dataclass
class Network:
    """A network: `size` is the image size of a step, `own_size` the network's default image size."""

    make: Callable
    size: int
    own_size: int
    channels: int
    classes: int
    published: "Published"


@dataclass
class Published:
    """Published figures; None if a figure is not published."""

    arrays: int | None
    values: int
    counted_arrays: int | None
    counted_mb: float | None
    gmacs: float | None


def torchvision_network(name, size, own_size=224, values=None, **options):
    """Describes a torchvision network; `values` overrides its published number of values if that includes layers not built here."""
    meta = torchvision.models.get_model_weights(name).DEFAULT.meta
    published = Published(None, values or meta["num_params"], None, None, meta["_ops"])
    return Network(lambda: torchvision.models.get_model(name, weights=None, **options), size, own_size, 3, 1000, published)


def mxnet_s(make, size, *published, own_size=224, channels=3, classes=1000):
    return Network(make, size, own_size, channels, classes, Published(*published))


DIGITS = {"own_size": 28, "channels": 1, "classes": 10}
NETWORKS = {
    "resnet18": torchvision_network("resnet18", 40),
    "resnet34": torchvision_network("resnet34", 40),
    "resnet50_v1b": torchvision_network("resnet50", 40),
    "resnet101": torchvision_network("resnet101", 40),
    "resnet152": torchvision_network("resnet152", 40),
    "resnext50_32x4d": torchvision_network("resnext50_32x4d", 40),
    "resnext101_32x8d": torchvision_network("resnext101_32x8d", 40),
    "vgg11": torchvision_network("vgg11", 64),
    "vgg11_bn": torchvision_network("vgg11_bn", 64),
    "vgg16": torchvision_network("vgg16", 64),
    "vgg16_bn": torchvision_network("vgg16_bn", 64),
    "alexnet": torchvision_network("alexnet", 96),
    "inception_v3": torchvision_network("inception_v3", 139, 299, 23_834_568, aux_logits=False, init_weights=False),
    "vit_b_16": torchvision_network("vit_b_16", 224),
    "mxnet-resnet-50": mxnet_s(mxnet.resnet50, 40, 157, 25_549_486, 55, 102.015648, 4.089),
    "mxnet-resnet-101": mxnet_s(mxnet.resnet101, 40, 310, 44_541_614, 106, 177.775264, 7.801),
    "mxnet-resnet-152": mxnet_s(mxnet.resnet152, 40, 463, 60_185_262, 157, 240.165536, 11.514),
    "mxnet-resnet-200": mxnet_s(mxnet.resnet200, 40, 607, 64_666_286, 205, 257.991328, 15.007),
    "mxnet-alexnet": mxnet_s(mxnet.alexnet, 224, 16, 50_844_008, 16, 203.376032, 1.010),
    "mxnet-inception-bn": mxnet_s(mxnet.inception_bn, 224, 278, 11_295_240, 140, 45.100832, 1.987),
    "mxnet-inception-v3": mxnet_s(mxnet.inception_v3, 299, 284, 23_834_568, 96, 95.200544, 5.713, own_size=299),
    "mxnet-lenet": mxnet_s(mxnet.lenet, 28, 8, 431_080, 8, 1.724320, None, **DIGITS),
    "mxnet-mlp": mxnet_s(mxnet.Perceptron, 28, 6, 109_386, 6, 0.437544, None, **DIGITS),
}


# --- weights ----------------------------------------------------------------------------------------------------------

BATCH_NORMS = (nn.BatchNorm2d, mxnet.BatchNorm)
# Only max pooling separates these from the next normalization.
BEFORE_POOL = (
    *("bn1", "bn0", "bn_1", "bn_2", "conv_2_batchnorm", "conv_4_batchnorm"),
    *("Conv2d_2b_3x3.bn", "Conv2d_4a_3x3.bn"),
)
# These normalize so few pixels that no value can be more than 2 standard deviations from the mean.
FEW_PIXELS = ("Mixed_7", "mixed_9", "mixed_10")
PARTS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_var": "running_var"}


def deviation_and_mean(keyword, model, name):
    """Returns the standard deviation and mean of a parameter or buffer."""
    layer_name, _, part = name.rpartition(".")
    layer = model.get_submodule(layer_name)
    if isinstance(layer, BATCH_NORMS):
        return of_batch_norm(keyword, layer_name, PARTS.get(part, part))
    if isinstance(layer, nn.LayerNorm):
        return 0.1, 1.0 if part == "weight" else 0.0
    if part in ("class_token", "pos_embedding"):
        return 0.1, 0.0
    is_last = list(model.modules())[-1] is layer
    if part.endswith("bias"):
        return 0.1, 4.0 if is_last else 0.0  # keeps scores away from 0
    unit = 1 / math.sqrt(math.prod(getattr(layer, part).shape[1:]))  # preserves the scale of inputs with mean 0
    factor = 0.3 if is_last else factor_of_weight(keyword, layer_name, is_normalized(model, layer))
    return float(f"{factor * unit:.3e}"), 0.0


def is_normalized(model, layer):
    return isinstance(layer, nn.Conv2d) and any(isinstance(module, BATCH_NORMS) for module in model.modules())


def factor_of_weight(keyword, layer_name, normalized):
    if keyword == "vit_b_16":
        return 0.1 if layer_name.endswith(("conv_proj", "out_proj", "mlp.3")) else 1.0
    if normalized:
        return 0.025 if keyword.startswith("mxnet-resnet") and layer_name.endswith("conv3") else 0.1
    if keyword == "mxnet-lenet":
        return 1.0
    response = {"convolution0": 60.0, "convolution2": 1 / 60} if keyword == "mxnet-alexnet" else {}
    return response.get(layer_name, 1.0) * math.sqrt(2)  # compensates for ReLU, which halves the mean square


def of_batch_norm(keyword, layer_name, part):
    residual_end = {"resnet18": ".bn2", "resnet34": ".bn2"}.get(keyword, ".bn3")
    if keyword.startswith("resne") and layer_name.endswith(residual_end):
        weight, shift = (0.05, 0.25), 0.0
    else:
        weight, shift = (0.1, 1.0), 2.2 if keyword.startswith(("mxnet-resnet", "resnext101")) else 2.0
    if layer_name in BEFORE_POOL:
        shift = 0.0
    if layer_name.startswith(FEW_PIXELS):
        shift = 1.0
    variance = 1.0 if layer_name == "bn_data" else 0.01
    return {
        "weight": weight,
        "bias": (0.1, shift),
        "running_mean": (0.02, 0.0),
        "running_var": (0.1 * variance, variance),
    }[part]


def rules(keyword, model, tensors):
    """Returns the name, shape, standard deviation and mean of each of these parameters or buffers."""
    return [(name, list(tensor.shape), *deviation_and_mean(keyword, model, name)) for name, tensor in tensors]


def parameters(model):
    return list(model.named_parameters())


def buffers(model):
    return [(name, buffer) for name, buffer in model.named_buffers() if buffer.dim() == 1]


# --- one step ---------------------------------------------------------------------------------------------------------


def built(keyword):
    """Builds a network on the meta device, with dropout disabled because it draws random numbers."""
    with torch.device("meta"):
        model = NETWORKS[keyword].make()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def step(keyword, layout, dtype):
    network, model = NETWORKS[keyword], built(keyword).to_empty(device="cpu")
    torch.manual_seed(8)
    tensors = model.state_dict()
    for name, shape, deviation, mean in rules(keyword, model, parameters(model) + buffers(model)):
        tensors[name].copy_(torch.randn(shape) * deviation + mean)
    images = torch.randn(2, network.channels, network.size, network.size)
    model.to(dtype).to(memory_format=LAYOUTS[layout]).train()
    images = images.to(dtype).contiguous(memory_format=LAYOUTS[layout])
    scores = model(images)
    loss = nn.functional.cross_entropy(scores, torch.tensor(LABELS[network.classes]))
    loss.backward()
    with torch.no_grad():
        evaluated = model.eval()(images)
    kept = CLASSES[network.classes]
    return {
        "loss": loss.item(),
        "scores": scores[:, kept].tolist(),
        "evaluated": evaluated[:, kept].tolist(),
        "gradients": [norm_and_projection(tensor.grad) for tensor in model.parameters()],
        "running": [norm(buffer) for _, buffer in buffers(model)],
    }


def norm(tensor):
    return tensor.double().norm().item()  # in fp32, a sum of two million squares has only 4 correct digits


WAVE = torch.empty(0, dtype=torch.float64)


def norm_and_projection(gradient):
    global WAVE
    if gradient is None:
        return [0.0, 0.0]
    values = gradient.contiguous().flatten().double()
    if len(WAVE) < len(values):
        WAVE = torch.arange(len(values), dtype=torch.float64).cos_()
    return [norm(values), torch.dot(values, WAVE[: len(values)]).item() / math.sqrt(len(values))]


def write_zeros(model, gradients):
    """Replaces gradients that are 0 in exact arithmetic by [0, 0], and checks that no other gradient is 0."""
    before = 1.0
    for number, (name, _) in enumerate(parameters(model)):
        layer_name, _, part = name.rpartition(".")
        layer = model.get_submodule(layer_name)
        unused = part == "gamma" and layer.fix_gamma
        subtracted = part == "bias" and is_normalized(model, layer)
        if unused or subtracted:
            assert gradients[number][0] <= (0.0 if unused else 1e-9 * before), f"{name} has a nonzero gradient"
            gradients[number] = [0.0, 0.0]
        else:
            assert gradients[number][0] > 1e-4, f"{name}: gradient {gradients[number][0]} is a rounding error"
            before = gradients[number][0]


def difference(model, one, exact):
    """Returns the largest relative difference from the exact values, and the name of the value.

    The difference of a zero gradient is relative to the last nonzero gradient before it.
    """
    found = [(abs(one["loss"] - exact["loss"]) / exact["loss"], "loss")]
    for key in ("scores", "evaluated"):
        for row, exact_row in zip(one[key], exact[key]):
            found += [(abs(value - true) / abs(true), key) for value, true in zip(row, exact_row)]
    before = 1.0
    for (name, tensor), values, true in zip(parameters(model), one["gradients"], exact["gradients"]):
        before = true[0] or before
        found.append((abs(values[0] - true[0]) / before, name))
        found.append((abs(values[1] - true[1]) * math.sqrt(tensor.numel()) / before, f"direction of {name}"))
    for (name, _), value, true in zip(buffers(model), one["running"], exact["running"]):
        found.append((abs(value - true) / true, name))
    return max(found)


# --- published values -------------------------------------------------------------------------------------------------


def counted(keyword, model):
    """Returns the numbers of arrays and values that measure.py counts.

    They are selected by name in MXNet's networks, and by layer type in torchvision's.
    """
    if keyword.startswith("mxnet"):
        lengths = [tensor.numel() for name, tensor in parameters(model) if "weight" in name or "bias" in name]
    else:
        norms = (*BATCH_NORMS, nn.LayerNorm)
        layer = lambda name: model.get_submodule(name.rpartition(".")[0])
        is_counted = lambda name: ("weight" in name or "bias" in name) and not isinstance(layer(name), norms)
        lengths = [tensor.numel() for name, tensor in parameters(model) if is_counted(name)]
    return [len(lengths), sum(lengths)]


def multiplications(keyword, model):
    """Returns the number of multiply-adds of convolutions, linear layers and attention for one image."""
    total = 0

    def convolution(layer, inputs, output):
        nonlocal total
        total += output.numel() * layer.weight[0].numel()

    def attention(layer, inputs, output):
        nonlocal total
        length, width = inputs[0].shape[1:]
        total += length * width * 4 * width + 2 * length * length * width  # four projections, two products

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(convolution)
        if isinstance(module, nn.MultiheadAttention):
            module.register_forward_hook(attention)
    network = NETWORKS[keyword]
    model.eval()(torch.zeros(1, network.channels, network.own_size, network.own_size, device="meta"))
    return total


def check(keyword, model, gmacs):
    """Compares the network with the published figures."""
    published = NETWORKS[keyword].published
    lengths = [tensor.numel() for _, tensor in parameters(model)]
    arrays, values = counted(keyword, model)
    for title, computed, expected in [
        ("arrays", len(lengths), published.arrays),
        ("values", sum(lengths), published.values),
        ("counted arrays", arrays, published.counted_arrays),
        ("counted MB", values * 4 / 1e6, published.counted_mb),
        ("GMACs", round(gmacs, 3), published.gmacs),
    ]:
        assert expected is None or computed == expected, f"{keyword}: {computed} {title}, published: {expected}"


# --- file -------------------------------------------------------------------------------------------------------------


def reference(keyword):
    """Returns the JSON of a network, and prints how far other layouts and fp32 deviate from it."""
    torch.set_num_threads(1)
    model, network = built(keyword), NETWORKS[keyword]
    gmacs = multiplications(keyword, built(keyword)) / 1e9
    check(keyword, model, gmacs)
    exact = step(keyword, "nchw", torch.float64)
    write_zeros(model, exact["gradients"])
    for dtype in (torch.float64, torch.float32):
        for layout in LAYOUTS if dtype == torch.float32 else ["nhwc"]:
            far, name = difference(model, step(keyword, layout, dtype), exact)
            print(f"{keyword}, {dtype}, {layout}: relative difference {far:.1e} ({name})", file=sys.stderr, flush=True)
            assert dtype == torch.float32 or far < 1e-8, f"{keyword}: the layouts differ in fp64"
    named = mxnet.mxnet_name if keyword.startswith("mxnet") else str
    listed = lambda tensors: [[named(name), *rest] for name, *rest in rules(keyword, model, tensors)]
    fields = {
        "image": [network.channels, network.size],
        "classes": network.classes,
        "counted": counted(keyword, model),
        "gmacs": round(gmacs, 4),
        "parameters": listed(parameters(model)),
        "buffers": listed(buffers(model)),
    }
    step_fields = ",\n".join(f'   "{key}": {text(value)}' for key, value in exact.items())
    lines = [f'  "{key}": {text(value)}' for key, value in fields.items()]
    return f' "{keyword}": {{\n' + ",\n".join(lines) + ',\n  "step": {\n' + step_fields + "\n  }\n }"


def text(value):
    """Formats a value as JSON, with 9 significant digits; each element of a long nested list has its own line."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if not isinstance(value, list):
        return json.dumps(value)
    if len(value) > 2 and isinstance(value[0], list):
        return "[\n" + ",\n".join(text(part) for part in value) + "\n]"
    return "[" + ",".join(map(text, value)) + "]"


def main():
    keywords = sys.argv[1:] or list(NETWORKS)
    with get_context("fork").Pool(2) as pool:
        parts = pool.map(reference, keywords, chunksize=1)
    made_by = f"networks.py, torch {torch.__version__}, torchvision {torchvision.__version__}"
    print(f'{{"made_by": "{made_by}", "networks": {{\n' + ",\n".join(parts) + "\n}}")


if __name__ == "__main__":
    main()
