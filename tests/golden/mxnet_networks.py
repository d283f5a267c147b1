"""Networks of MXNet's image-classification example (end of 2016) in PyTorch, after its symbol files and the papers.

Names are MXNet's: `mxnet_name` converts a parameter's name to that of the argument, and a buffer's to that of the
auxiliary state. Both are in the order of list_arguments() and list_auxiliary_states(). Differences from torchvision's
networks:

- Batch normalization has eps 1e-3 by default. With fix_gamma, the layer ignores the argument gamma and multiplies by 1;
  the gradient of gamma is 0.
- Pooling rounds sizes down, and average pooling includes padding as zeros.
- Dropout is omitted, so that the networks draw no random numbers.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


def mxnet_name(name):
    return name.replace(".", "_")


class BatchNorm(nn.Module):
    def __init__(self, channels, eps=1e-3, fix_gamma=True):
        super().__init__()
        self.eps, self.fix_gamma = eps, fix_gamma
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.register_buffer("moving_mean", torch.zeros(channels))
        self.register_buffer("moving_var", torch.ones(channels))

    def forward(self, images):
        gamma = torch.ones_like(self.gamma) if self.fix_gamma else self.gamma
        # MXNet's momentum of 0.9 weights the old value; PyTorch's 0.1 weights the new one.
        statistics = (self.moving_mean, self.moving_var)
        return functional.batch_norm(images, *statistics, gamma, self.beta, self.training, 0.1, self.eps)


def max_pool(kernel, stride, padding=0):
    return nn.MaxPool2d(kernel, stride, padding, ceil_mode=False)


def average_pool(kernel, stride, padding=0):
    return nn.AvgPool2d(kernel, stride, padding, ceil_mode=False, count_include_pad=True)


# --- ResNet -----------------------------------------------------------------------------------------------------------


class ResidualUnit(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, each after normalization and ReLU; no layer follows the addition.

    The first unit of a stage has a convolution of the first ReLU's output as its shortcut.
    """

    def __init__(self, input, output, stride, first):
        super().__init__()
        inner = output // 4
        self.bn1 = BatchNorm(input, 2e-5, fix_gamma=False)
        self.conv1 = nn.Conv2d(input, inner, 1, bias=False)
        self.bn2 = BatchNorm(inner, 2e-5, fix_gamma=False)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn3 = BatchNorm(inner, 2e-5, fix_gamma=False)
        self.conv3 = nn.Conv2d(inner, output, 1, bias=False)
        self.sc = nn.Conv2d(input, output, 1, stride, bias=False) if first else None

    def forward(self, images):
        active = functional.relu(self.bn1(images))
        inside = self.conv1(active)
        inside = self.conv2(functional.relu(self.bn2(inside)))
        inside = self.conv3(functional.relu(self.bn3(inside)))
        return inside + (images if self.sc is None else self.sc(active))


class ResNet(nn.Module):
    """Identity Mappings in Deep Residual Networks (He et al., 2016); symbol/resnet.py, 50 layers or more.

    The first layer normalizes the images, without gamma.
    """

    def __init__(self, units, classes=1000):
        super().__init__()
        self.bn_data = BatchNorm(3, 2e-5)
        self.conv0 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn0 = BatchNorm(64, 2e-5, fix_gamma=False)
        self.pool0 = max_pool(3, 2, 1)
        self.units = []
        input = 64
        for stage, (count, output) in enumerate(zip(units, [256, 512, 1024, 2048]), 1):
            for number in range(1, count + 1):
                stride = 2 if stage > 1 and number == 1 else 1
                unit = ResidualUnit(input, output, stride, first=number == 1)
                self.add_module(f"stage{stage}_unit{number}", unit)
                self.units.append(unit)
                input = output
        self.bn1 = BatchNorm(input, 2e-5, fix_gamma=False)
        self.fc1 = nn.Linear(input, classes)

    def forward(self, images):
        images = self.conv0(self.bn_data(images))
        images = self.pool0(functional.relu(self.bn0(images)))
        for unit in self.units:
            images = unit(images)
        images = functional.relu(self.bn1(images))
        return self.fc1(images.mean((2, 3)))


def resnet50():
    return ResNet([3, 4, 6, 3])


def resnet101():
    return ResNet([3, 4, 23, 3])


def resnet152():
    return ResNet([3, 8, 36, 3])


def resnet200():
    return ResNet([3, 24, 36, 3])


# --- Inception --------------------------------------------------------------------------------------------------------


@dataclass
class Unit:
    """A convolution, its normalization and ReLU. Unless it is `valid`, padding preserves the size at stride 1."""

    name: str
    output: int
    kernel: int | tuple
    stride: int = 1
    valid: bool = False


class Fork(list):
    """Chains with the same input; their channels are concatenated in order."""


class Inception(nn.Module):
    """A chain of units, pooling layers and forks, followed by the classifier."""

    def __init__(self, chain, names, norm, bias, head, classes=1000):
        """Takes the name patterns of convolutions and normalizations in `names`, with `{}` for the unit's name."""
        super().__init__()
        self.chain, self.names, self.norm, self.bias, self.head = chain, names, norm, bias, head
        output = self.make(chain, 3)
        self.add_module(head, nn.Linear(output, classes))

    def make(self, chain, channels):
        """Creates the layers of a chain, in MXNet's argument order; returns the number of output channels."""
        for part in chain:
            if isinstance(part, Fork):
                channels = sum([self.make(branch, channels) for branch in part])
            elif isinstance(part, Unit):
                kernel = part.kernel if isinstance(part.kernel, tuple) else (part.kernel, part.kernel)
                padding = (0, 0) if part.valid else (kernel[0] // 2, kernel[1] // 2)
                shape = (channels, part.output, kernel, part.stride, padding)
                convolution, norm = (name.format(part.name) for name in self.names)
                self.add_module(convolution, nn.Conv2d(*shape, bias=self.bias))
                self.add_module(norm, self.norm(part.output))
                channels = part.output
        return channels

    def run(self, chain, images):
        for part in chain:
            if isinstance(part, Fork):
                images = torch.cat([self.run(branch, images) for branch in part], 1)
            elif isinstance(part, Unit):
                convolution, norm = (self.get_submodule(name.format(part.name)) for name in self.names)
                images = functional.relu(norm(convolution(images)))
            else:
                images = part(images)
        return images

    def forward(self, images):
        return self.get_submodule(self.head)(self.run(self.chain, images).flatten(1))


def inception_bn():
    """Batch Normalization: Accelerating Deep Network Training (Ioffe and Szegedy, 2015); symbol/inception-bn.py.

    The convolutions have biases although a normalization follows. The classifier has no name, so MXNet numbers it.
    """

    def keeps_size(name, one, three_reduced, three, double_reduced, double, pool, projected):
        return Fork([
            [Unit(f"{name}_1x1", one, 1)],
            [Unit(f"{name}_3x3_reduce", three_reduced, 1), Unit(f"{name}_3x3", three, 3)],
            [
                Unit(f"{name}_double_3x3_reduce", double_reduced, 1),
                Unit(f"{name}_double_3x3_0", double, 3),
                Unit(f"{name}_double_3x3_1", double, 3),
            ],
            [pool(3, 1, 1), Unit(f"{name}_proj", projected, 1)],
        ])

    def halves_size(name, three_reduced, three, double_reduced, double):
        return Fork([
            [Unit(f"{name}_3x3_reduce", three_reduced, 1), Unit(f"{name}_3x3", three, 3, stride=2)],
            [
                Unit(f"{name}_double_3x3_reduce", double_reduced, 1),
                Unit(f"{name}_double_3x3_0", double, 3),
                Unit(f"{name}_double_3x3_1", double, 3, stride=2),
            ],
            [max_pool(3, 2, 1)],
        ])

    chain = [
        Unit("1", 64, 7, stride=2),
        max_pool(3, 2),
        Unit("2_red", 64, 1),
        Unit("2", 192, 3),
        max_pool(3, 2),
        keeps_size("3a", 64, 64, 64, 64, 96, average_pool, 32),
        keeps_size("3b", 64, 64, 96, 64, 96, average_pool, 64),
        halves_size("3c", 128, 160, 64, 96),
        keeps_size("4a", 224, 64, 96, 96, 128, average_pool, 128),
        keeps_size("4b", 192, 96, 128, 96, 128, average_pool, 128),
        keeps_size("4c", 160, 128, 160, 128, 160, average_pool, 128),
        keeps_size("4d", 96, 128, 192, 160, 192, average_pool, 128),
        halves_size("4e", 128, 192, 192, 256),
        keeps_size("5a", 352, 192, 320, 160, 224, average_pool, 128),
        keeps_size("5b", 352, 192, 320, 192, 224, max_pool, 128),
        average_pool(7, 1),
    ]
    norm = lambda channels: BatchNorm(channels, 1e-10 + 1e-5, fix_gamma=False)
    return Inception(chain, ("conv_{}", "bn_{}"), norm, True, "fullyconnected0")


def inception_v3():
    """Rethinking the Inception Architecture for Computer Vision (Szegedy et al., 2015); symbol/inception-v3.py."""

    def five(name, projected):
        return Fork([
            [Unit(f"{name}_conv", 64, 1)],
            [Unit(f"{name}_tower_conv", 48, 1), Unit(f"{name}_tower_conv_1", 64, 5)],
            [
                Unit(f"{name}_tower_1_conv", 64, 1),
                Unit(f"{name}_tower_1_conv_1", 96, 3),
                Unit(f"{name}_tower_1_conv_2", 96, 3),
            ],
            [average_pool(3, 1, 1), Unit(f"{name}_tower_2_conv", projected, 1)],
        ])

    def seven(name, inner):
        return Fork([
            [Unit(f"{name}_conv", 192, 1)],
            [
                Unit(f"{name}_tower_conv", inner, 1),
                Unit(f"{name}_tower_conv_1", inner, (1, 7)),
                Unit(f"{name}_tower_conv_2", 192, (7, 1)),
            ],
            [
                Unit(f"{name}_tower_1_conv", inner, 1),
                Unit(f"{name}_tower_1_conv_1", inner, (7, 1)),
                Unit(f"{name}_tower_1_conv_2", inner, (1, 7)),
                Unit(f"{name}_tower_1_conv_3", inner, (7, 1)),
                Unit(f"{name}_tower_1_conv_4", 192, (1, 7)),
            ],
            [average_pool(3, 1, 1), Unit(f"{name}_tower_2_conv", 192, 1)],
        ])

    def three(name, pool):
        def both(tower):
            return Fork([[Unit(f"{tower}_mixed_conv", 384, (1, 3))], [Unit(f"{tower}_mixed_conv_1", 384, (3, 1))]])

        return Fork([
            [Unit(f"{name}_conv", 320, 1)],
            [Unit(f"{name}_tower_conv", 384, 1), both(f"{name}_tower")],
            [
                Unit(f"{name}_tower_1_conv", 448, 1),
                Unit(f"{name}_tower_1_conv_1", 384, 3),
                both(f"{name}_tower_1"),
            ],
            [pool(3, 1, 1), Unit(f"{name}_tower_2_conv", 192, 1)],
        ])

    chain = [
        Unit("conv", 32, 3, stride=2, valid=True),
        Unit("conv_1", 32, 3, valid=True),
        Unit("conv_2", 64, 3),
        max_pool(3, 2),
        Unit("conv_3", 80, 1),
        Unit("conv_4", 192, 3, valid=True),
        max_pool(3, 2),
        five("mixed", 32),
        five("mixed_1", 64),
        five("mixed_2", 64),
        Fork([
            [Unit("mixed_3_conv", 384, 3, stride=2, valid=True)],
            [
                Unit("mixed_3_tower_conv", 64, 1),
                Unit("mixed_3_tower_conv_1", 96, 3),
                Unit("mixed_3_tower_conv_2", 96, 3, stride=2, valid=True),
            ],
            [max_pool(3, 2)],
        ]),
        seven("mixed_4", 128),
        seven("mixed_5", 160),
        seven("mixed_6", 160),
        seven("mixed_7", 192),
        Fork([
            [Unit("mixed_8_tower_conv", 192, 1), Unit("mixed_8_tower_conv_1", 320, 3, stride=2, valid=True)],
            [
                Unit("mixed_8_tower_1_conv", 192, 1),
                Unit("mixed_8_tower_1_conv_1", 192, (1, 7)),
                Unit("mixed_8_tower_1_conv_2", 192, (7, 1)),
                Unit("mixed_8_tower_1_conv_3", 192, 3, stride=2, valid=True),
            ],
            [max_pool(3, 2)],
        ]),
        three("mixed_9", average_pool),
        three("mixed_10", max_pool),
        average_pool(8, 1),
    ]
    return Inception(chain, ("{}_conv2d", "{}_batchnorm"), BatchNorm, False, "fc1")


# --- sequential networks ----------------------------------------------------------------------------------------------


def in_a_row(*layers):
    """Returns a sequence of layers; convolutions and linear layers have MXNet's default names."""
    counts, named = {}, nn.Sequential()
    for number, layer in enumerate(layers):
        kind = {nn.Conv2d: "convolution", nn.Linear: "fullyconnected"}.get(type(layer))
        place = counts.get(kind, 0)
        counts[kind] = place + 1
        named.add_module(f"{kind}{place}" if kind else f"other{number}", layer)
    return named


def alexnet():
    """ImageNet Classification with Deep Convolutional Neural Networks (Krizhevsky et al., 2012); symbol/alexnet.py.

    The convolutions have no groups. Response normalization follows pooling; in later versions it precedes it.
    """
    return in_a_row(
        *[nn.Conv2d(3, 96, 11, 4), nn.ReLU(), max_pool(3, 2), nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)],
        *[nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(), max_pool(3, 2), nn.LocalResponseNorm(5, 1e-4, 0.75, 1.0)],
        *[nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU()],
        *[nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU()],
        *[nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(), max_pool(3, 2)],
        *[nn.Flatten(), nn.Linear(6400, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)],
    )


def lenet():
    """Gradient-Based Learning Applied to Document Recognition (LeCun et al., 1998); symbol/lenet.py. 28 x 28 digits."""
    return in_a_row(
        *[nn.Conv2d(1, 20, 5), nn.Tanh(), max_pool(2, 2)],
        *[nn.Conv2d(20, 50, 5), nn.Tanh(), max_pool(2, 2)],
        *[nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10)],
    )


class Perceptron(nn.Module):
    """Three linear layers; symbol/mlp.py. 28 x 28 digits."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, 10)

    def forward(self, images):
        inside = functional.relu(self.fc1(images.flatten(1)))
        return self.fc3(functional.relu(self.fc2(inside)))
