#!/usr/bin/env python3
"""Times the kernels of src/worker/kernels and the library calls around them on one GPU, using only PyTorch.

    scripts/dev/gpu_kernels.py [--parts ceiling,batch_norm,...] [--limit SECONDS] [--out FILE]

Prints one JSON line per result; --out also appends the lines to FILE. If a part fails, its error is printed and the next part
starts. Needs a Python with PyTorch for CUDA. Times are medians over replays of a CUDA graph, which do not depend on the host.
"""

import argparse
import concurrent.futures
import ctypes
import glob
import json
import os
import pathlib
import statistics
import time
import traceback

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src/worker/kernels"
ELEMENTS = {torch.float16: "HALF", torch.bfloat16: "BFLOAT16", torch.float32: "FLOAT"}
PIXELS_AND_CHANNELS = [
    (112, 64), (56, 64), (56, 256), (56, 128), (28, 128), (28, 512), (28, 256), (14, 256), (14, 1024), (14, 512), (7, 512), (7, 2048),
]  # fmt: skip


class Module:
    """Kernels of one .cu file, compiled with NVRTC and loaded with the driver API."""

    driver = None

    def __init__(self, name, kind, changes=(), image=None):
        image = image or self.image(name, kind, changes)
        if Module.driver is None:
            Module.driver = ctypes.CDLL("libcuda.so.1")
        self.module, self.functions = ctypes.c_void_p(), {}
        status = self.driver.cuModuleLoadData(ctypes.byref(self.module), image)
        assert status == 0, f"cuModuleLoadData: {status}"

    @staticmethod
    def image(name, kind, changes=()):
        """Returns the cubin. Thread-safe, so that several files can be compiled at the same time."""
        source = (KERNELS / "prelude.cuh").read_text() + (KERNELS / name).read_text()
        for old, new in changes:
            assert old in source, f"{old!r} is not in {name}"
            source = source.replace(old, new)
        packages = pathlib.Path(torch.__file__).parent.parent
        folders = [str(packages / "nvidia/*/lib"), os.environ.get("NVRTC_FOLDER", "")]
        files = sorted(file for folder in folders for file in glob.glob(f"{folder}/libnvrtc*.so*") if "alt" not in file)
        for file in sorted(files, key=lambda file: "builtins" not in file):
            library = ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
        program = ctypes.c_void_p()
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        capability = "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else "90"
        options = [f"--gpu-architecture=sm_{capability}", "--std=c++17", "-default-device", f"-DELEMENT_{ELEMENTS[kind]}"]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options)))
        if status:
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode())
        size = ctypes.c_size_t()
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, image)
        return image

    def launch(self, name, grid, block, *arguments, shared=0):
        """Launches a kernel. Arguments are tensors or None (passed by address), lists of int (a structure), int or float (32 bits)."""
        function = self.functions.get(name)
        if function is None:
            function = self.functions[name] = ctypes.c_void_p()
            status = self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode())
            assert status == 0, f"{name}: {status}"
            # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            status = self.driver.cuFuncSetAttribute(function, 8, shared)
            assert status == 0, f"{name}: cuFuncSetAttribute: {status}"
        values = []
        for argument in arguments:
            if argument is None or isinstance(argument, torch.Tensor):
                values.append(ctypes.c_void_p(None if argument is None else argument.data_ptr()))
            elif isinstance(argument, list):
                values.append((ctypes.c_int * len(argument))(*argument))
            else:
                values.append((ctypes.c_float if isinstance(argument, float) else ctypes.c_int)(argument))
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status = self.driver.cuLaunchKernel(function, *grid, 1, *block, 1, shared, stream, addresses, None)
        assert status == 0, f"{name}: cuLaunchKernel: {status}"


def milliseconds(calls, repeats=5):
    """Returns the median time of one CUDA graph that contains all `calls` in order."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


class Results:
    def __init__(self, file, limit):
        self.file, self.end = file, time.monotonic() + limit

    def add(self, part, **values):
        line = json.dumps({"part": part, **{k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}})
        print(line, flush=True)
        if self.file:
            self.file.write(line + "\n")
            self.file.flush()

    def is_late(self):
        return time.monotonic() > self.end


def ceiling(results):
    a, b = torch.randn(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    ms = milliseconds([lambda: b.copy_(a)] * 5) / 5
    m = [torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2)]
    product = milliseconds([lambda: torch.mm(*m)] * 5) / 5
    results.add("ceiling", card=torch.cuda.get_device_name(), copy_gb_s=2 * a.numel() * 4 / ms / 1e6, fp16_tflops=2 * 8192**3 / product / 1e9)


class Norm:
    """Tensors and kernel launches of one batch normalization over `rows` pixels."""

    def __init__(self, module, kind, rows, channels, packets, threads, blocks):
        self.module, self.shape = module, [rows, channels]
        width = 16 // torch.empty(0, dtype=kind).element_size()
        packets = min(packets, channels // width)
        height = 1
        while height * 2 * packets <= threads:
            height *= 2
        slices = -(-channels // (packets * width))
        most = -(-rows // height)
        parts = max(1, min(most, blocks * torch.cuda.get_device_properties(0).multi_processor_count // slices))
        self.grid, self.block = (slices, parts, 1)[:2], (packets, height)
        new = lambda: torch.randn(rows, channels, device="cuda", dtype=torch.float32).to(kind)
        self.x, self.shortcut, self.dy, self.dy2 = new(), new(), new(), new()
        self.y, self.dz, self.dx = torch.empty_like(self.x), torch.empty_like(self.x), torch.empty_like(self.x)
        self.mask = torch.empty(rows * channels // width, dtype=torch.uint8, device="cuda")
        vector = lambda value: torch.full((channels,), value, device="cuda")
        self.weight, self.bias, self.mean, self.variance = vector(1.5), vector(0.25), vector(0.0), vector(1.0)
        self.dweight, self.dbias = vector(0.0), vector(0.0)
        self.statistics, self.coefficients = torch.empty(4, channels, device="cuda"), torch.empty(3, channels, device="cuda")
        self.partial = torch.empty(parts * 2 * channels, device="cuda")
        self.tickets = torch.zeros(slices, dtype=torch.int32, device="cuda")

    def run(self, name, *arguments):
        self.module.launch(f"batch_norm_{name}", (*self.grid, ), self.block, *arguments, self.shape)

    def forward(self, after):
        sums = (self.partial, self.tickets)
        self.module.launch(
            "batch_norm_statistics", self.grid, self.block, self.x, self.weight, self.bias, self.mean, self.variance, self.statistics,
            *sums, self.shape, 0.1, 1e-5,
        )  # fmt: skip
        if after == "sum_relu":
            self.run("apply_sum_relu", self.x, self.shortcut, self.statistics, self.y, self.mask)
        else:
            self.run("apply" + ("_relu" if after == "relu" else ""), self.x, self.statistics, self.y)

    def backward(self, after, two):
        rest = (self.dweight, self.dbias, self.coefficients, self.partial, self.tickets)
        if after == "sum_relu":
            second = [self.dy2] if two else []
            self.run("gradients_sum_relu" + ("_two" if two else ""), self.dy, *second, self.mask, self.x, self.weight, self.statistics, self.dz, *rest)
            self.run("input_gradient", self.dz, self.x, self.statistics, self.coefficients, self.dx)
        else:
            suffix = "_relu" if after == "relu" else ""
            self.run("gradients" + suffix, self.dy, self.x, self.weight, self.statistics, *rest)
            self.run("input_gradient" + suffix, self.dy, self.x, self.statistics, self.coefficients, self.dx)

    def reference(self, after, two):
        x = self.x.double().requires_grad_()
        shortcut = self.shortcut.double().requires_grad_()
        weight, bias = self.weight.double().requires_grad_(), self.bias.double().requires_grad_()
        y = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-5)
        if after == "sum_relu":
            y = y + shortcut
        if after:
            y = torch.relu(y)
        y.backward(self.dy.double() + (self.dy2.double() if two else 0))
        return {"y": y, "dx": x.grad, "dweight": weight.grad, "dbias": bias.grad}

    def bytes(self, after, two):
        tensor = self.x.numel() * self.x.element_size()
        mask = self.mask.numel() if after == "sum_relu" else 0
        forward = 3 * tensor + (tensor + mask if after == "sum_relu" else 0)
        backward = (5 * tensor) + ((1 + two) * tensor + mask if after == "sum_relu" else 0)
        return forward, backward


NORM_VARIANTS = [("relu", False), ("sum_relu", True), ("", False)]


def batch_norm_is_right(results):
    for kind in ELEMENTS:
        module = Module("batch_norm.cu", kind)
        for rows, channels in [(4099, 64), (1000, 320), (777, 2048), (2, 8)]:
            for after, two in NORM_VARIANTS:
                norm = Norm(module, kind, rows, channels, 8, 256, 2)
                norm.forward(after)
                norm.backward(after, two)
                far = {}
                for name, expected in norm.reference(after, two).items():
                    ours = getattr(norm, name).double()
                    far[name] = ((ours - expected).norm() / expected.norm()).item()
                bits = [tensor.clone() for tensor in (norm.y, norm.dx, norm.dweight)]
                norm.forward(after)
                norm.backward(after, two)
                same = all(torch.equal(a, b) for a, b in zip(bits, (norm.y, norm.dx, norm.dweight)))
                results.add("batch_norm_is_right", kind=str(kind), rows=rows, channels=channels, after=after, same_bits=same, **far)


def batch_norm(results, kinds=(torch.float16,), batch=128):
    best = {}
    for kind in kinds:
        for at_once, least in [(4, 1), (2, 1), (2, 4), (4, 2)]:
            changes = [
                ("constexpr int AT_ONCE = 4;", f"constexpr int AT_ONCE = {at_once};"),
                ("SUM_AND_RELU ? 2 : 4", f"SUM_AND_RELU ? {max(1, at_once // 2)} : {at_once}"),
                ("__launch_bounds__(256)", f"__launch_bounds__(256, {least})"),
            ]
            module = Module("batch_norm.cu", kind, changes)
            for size, channels in PIXELS_AND_CHANNELS:
                rows = batch * size * size
                count = max(1, min(6, int(4e8 / (rows * channels * 2 * 4))))
                for packets in (8, 32) if channels > 64 else (8,):
                    if results.is_late():
                        return
                    for blocks in (1, 2, 4):
                        # All variants share these tensors.
                        norms = [Norm(module, kind, rows, channels, packets, 256, blocks) for _ in range(count)]
                        for after, two in NORM_VARIANTS if channels >= 256 else NORM_VARIANTS[:1]:
                            forward_bytes, backward_bytes = norms[0].bytes(after, two)
                            for name, amount, calls in [
                                ("forward", forward_bytes, [lambda n=n: n.forward(after) for n in norms]),
                                ("backward", backward_bytes, [lambda n=n: n.backward(after, two) for n in norms]),
                            ]:
                                ms = milliseconds(calls, 3) / count
                                key = (str(kind), size, channels, after, name)
                                choice = (ms, amount / ms / 1e6, at_once, least, packets, blocks)
                                best.setdefault(key, []).append(choice)
                        del norms
    for key, choices in best.items():
        choices.sort()
        results.add("batch_norm", shape=list(key), best=[[round(v, 4) for v in choice] for choice in choices[:4]], worst=round(choices[-1][0], 4))
    # Rank the launch configurations by their mean slowdown over all shapes.
    for name in ("forward", "backward"):
        sums = {}
        for key, choices in best.items():
            if key[4] == name:
                for ms, _, *how in choices:
                    sums.setdefault(tuple(how), []).append(ms / choices[0][0])
        ranked = sorted((statistics.mean(ratios), how) for how, ratios in sums.items())
        results.add("batch_norm_choice", direction=name, columns="at_once least packets blocks", ranked=[[round(r, 3), *how] for r, how in ranked[:8]])


def convolution(results, kinds=(torch.float16,), batches=(128,)):
    """Times forward and both gradients of every convolution in ResNet-50; totals are weighted by its number of occurrences."""
    torch.backends.cudnn.benchmark = True
    layers = [(224, 3, 64, 7, 2, 1), (56, 64, 64, 1, 1, 1), (56, 256, 64, 1, 1, 2), (56, 64, 64, 3, 1, 3), (56, 64, 256, 1, 1, 4)]
    for size, inner in [(28, 128), (14, 256), (7, 512)]:
        count = {128: 4, 256: 6, 512: 3}[inner]
        layers += [
            (2 * size, 2 * inner, inner, 1, 1, 1), (2 * size, inner, inner, 3, 2, 1), (2 * size, 2 * inner, 4 * inner, 1, 2, 1),
            (size, 4 * inner, inner, 1, 1, count - 1), (size, inner, inner, 3, 1, count - 1), (size, inner, 4 * inner, 1, 1, count),
        ]  # fmt: skip
    for kind in kinds:
        for batch in batches:
            total = {"forward": 0.0, "input": 0.0, "weight": 0.0}
            for size, inputs, outputs, kernel, stride, count in layers:
                if results.is_late():
                    return
                last = torch.channels_last
                x = torch.randn(batch, inputs, size, size, device="cuda", dtype=kind).contiguous(memory_format=last)
                w = torch.randn(outputs, inputs, kernel, kernel, device="cuda", dtype=kind).contiguous(memory_format=last)
                forward = lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=kernel // 2)
                dy = torch.randn_like(forward())
                back = lambda mask: torch.ops.aten.convolution_backward(
                    dy, x, w, None, [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1, mask)  # fmt: skip
                times = {"forward": milliseconds([forward] * 5) / 5, "weight": milliseconds([lambda: back([False, True, False])] * 5) / 5}
                times["input"] = milliseconds([lambda: back([True, False, False])] * 5) / 5 if inputs > 3 else 0.0
                flops = 2 * dy.numel() * inputs * kernel * kernel
                for name in total:
                    total[name] += count * times[name]
                results.add("convolution", kind=str(kind), batch=batch, layer=[size, inputs, outputs, kernel, stride], count=count,
                            tflops=flops / times["forward"] / 1e9, **times)  # fmt: skip
            results.add("convolution_total", kind=str(kind), batch=batch, **total)


def first_convolution(results):
    """Times the first convolution: 7x7 with stride 2 on three channels, with added zero channels, and with folded pixels."""
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    batch, last = 128, torch.channels_last
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        for channels in (3, 4, 12, 16):
            size, kernel, stride, padding = (224, 7, 2, 3) if channels < 12 else (115, 4, 1, 0)
            x = torch.randn(batch, channels, size, size, device="cuda", dtype=kind).contiguous(memory_format=last)
            w = torch.randn(64, channels, kernel, kernel, device="cuda", dtype=kind).contiguous(memory_format=last)
            forward = lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
            dy = torch.randn_like(forward())
            weight = lambda: torch.ops.aten.convolution_backward(
                dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [False, True, False])  # fmt: skip
            results.add("first_convolution", batch=batch, channels=channels, kind=str(kind),
                        forward=milliseconds([forward] * 5) / 5, weight=milliseconds([weight] * 5) / 5)  # fmt: skip


def linear_algebra(results):
    """Times the library calls of batch normalization after a 1x1 convolution, computed from the Gram matrix of its input."""
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    for batch, kind in [(128, torch.float16), (256, torch.float16), (128, torch.bfloat16), (128, torch.float32)]:
        out = {} if kind is torch.float32 else {"out_dtype": torch.float32}
        for size, k in [(56, 64), (28, 128), (14, 256), (7, 512)]:
            for kind in [kind] if k == 64 or (batch == 128 and kind is torch.float16) else []:
                if results.is_late():
                    return
                m, n = 4 * k, batch * size * size
                x, dz = (torch.randn(n, c, device="cuda", dtype=kind) for c in (k, m))
                image = lambda t: t.view(batch, size, size, -1).permute(0, 3, 1, 2)
                w = torch.randn(m, k, device="cuda", dtype=kind) / k**0.5
                z, bias = torch.randn(n, m, device="cuda", dtype=kind), torch.randn(m, device="cuda", dtype=kind)
                w4 = w.view(m, k, 1, 1).contiguous(memory_format=torch.channels_last)
                correction = torch.randn(k, k, device="cuda", dtype=kind)
                row = torch.randn(k, device="cuda", dtype=kind)
                calls = {
                    "conv": lambda: torch.nn.functional.conv2d(image(x), w4),
                    "conv_add_relu": lambda: torch.cudnn_convolution_add_relu(image(x), w4, image(z), 1.0, bias, [1, 1], [0, 0], [1, 1], 1),
                    "conv_relu": lambda: torch.cudnn_convolution_relu(image(x), w4, bias, [1, 1], [0, 0], [1, 1], 1),
                    "mm_bias": lambda: torch.addmm(bias, x, w.t()),
                    "dgrad_conv": lambda: torch.ops.aten.convolution_backward(image(dz), image(x), w4, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False]),
                    "wgrad_conv": lambda: torch.ops.aten.convolution_backward(image(dz), image(x), w4, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]),
                    "dgrad_mm": lambda: torch.mm(dz, w),
                    "dx_two": lambda: torch.addmm(torch.addmm(row, x, correction), dz, w),
                    "gram_mm": lambda: torch.mm(x.t(), x, **out),
                    "weight_mm": lambda: torch.mm(dz.t(), x, **out),
                    "sums": lambda: x.sum(0, dtype=torch.float32),
                    "sums_dz": lambda: dz.sum(0, dtype=torch.float32),
                }  # fmt: skip
                for blocks in (49, 98, 196):
                    if n % blocks == 0:
                        calls[f"gram_{blocks}"] = lambda b=blocks: torch.bmm(x.view(b, -1, k).transpose(1, 2), x.view(b, -1, k), **out).sum(0)
                        calls[f"weight_{blocks}"] = lambda b=blocks: torch.bmm(dz.view(b, -1, m).transpose(1, 2), x.view(b, -1, k), **out).sum(0)
                times = {}
                for name, call in calls.items():
                    try:
                        times[name] = milliseconds([call] * 4, 3) / 4
                    except Exception as error:
                        times[name] = str(error)[:80]
                results.add("linear_algebra", kind=str(kind), batch=batch, k=k, tensor_ms_at_3tb=n * m * 2 / 3e9, **times)
                del x, dz, z


def training_step(results, kinds=(torch.float16,), batches=(256,), compiled=False):
    """Times PyTorch's step: eager, launched by the host and in a CUDA graph, or with torch.compile."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    for kind in kinds:
        for batch in batches:
            if results.is_late():
                return
            model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
            images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
            labels = torch.randint(1000, (batch,), device="cuda")
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.875, weight_decay=3e-5, nesterov=True, fused=True)
            runner = torch.compile(model) if compiled else model

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", dtype=kind, cache_enabled=compiled):
                    loss = torch.nn.functional.cross_entropy(runner(images), labels)
                (loss * 128.0).backward()
                optimizer.step()

            start = time.monotonic()
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(5):
                    step()
                stream.synchronize()
                warm = time.monotonic() - start
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(31)]
                for mark in marks[:-1]:
                    mark.record()
                    step()
                marks[-1].record()
                stream.synchronize()
            eager = statistics.median(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
            graph = 0.0
            if not compiled:
                graph = milliseconds([step] * 2, 8) / 2
            results.add("training_step", kind=str(kind), batch=batch, compiled=compiled, warm_s=warm, ms=eager, images_s=batch / eager * 1e3,
                        graph_ms=graph, graph_images_s=batch / graph * 1e3 if graph else 0.0)  # fmt: skip
            del model, optimizer, images, step
            torch.cuda.empty_cache()


def compiled_step(results):
    training_step(results, kinds=(torch.float16,), batches=(256, 128), compiled=True)


class Pointwise:
    """Tensors and kernel launches of a 1x1 convolution with batch normalization (pointwise.cu)."""

    INPUTS = 64

    def __init__(self, module, kind, rows, channels, after="sum_relu", two=True, blocks=2):
        inputs = self.INPUTS
        self.module, self.rows, self.channels, self.after, self.two = module, rows, channels, after, two
        self.shape, self.blocks = [rows, inputs, channels], blocks * torch.cuda.get_device_properties(0).multi_processor_count
        new = lambda width: torch.randn(rows, width, device="cuda", dtype=kind)
        self.x = (new(inputs) + 0.3).relu_()
        self.w = torch.randn(channels, inputs, device="cuda").div_(inputs**0.5).to(kind)
        self.z, self.dy, self.dy2 = new(channels), new(channels), new(channels)
        self.y, self.dz = torch.empty_like(self.z), torch.empty_like(self.z)
        self.d1, self.dx = torch.empty_like(self.x), torch.empty_like(self.x)
        self.mask = torch.empty(rows * channels // 8, dtype=torch.uint8, device="cuda")
        floats = lambda *sizes: torch.empty(*sizes, device="cuda")
        vector = lambda value: torch.full((channels,), value, device="cuda") + torch.randn(channels, device="cuda") * 0.1
        self.gamma, self.beta, self.running_mean, self.running_variance = vector(1.5), vector(0.25), vector(0.0), vector(1.0)
        self.totals, self.weight_gram = floats(inputs + 1, inputs), floats(channels, inputs)
        self.statistics, self.coefficients = floats(4, channels), floats(3, channels)
        self.dgamma, self.dbeta, self.dw, self.row = floats(channels), floats(channels), torch.empty_like(self.w), floats(inputs)
        self.matrix = torch.empty(inputs, inputs, device="cuda", dtype=kind)
        self.partial = floats(self.blocks * (inputs + 1) * max(inputs, channels))

    def launch(self, name, grid, *arguments, shared=0):
        self.module.launch(f"pointwise_{name}", grid, (256, 1), *arguments, shared=shared)

    def parts(self, tile):
        return min(-(-self.rows // tile), self.blocks)

    def statistics_sums(self):
        parts = self.parts(128)
        self.launch("statistics_64", (parts, 1), self.x, self.partial, self.shape, shared=49152)
        return parts

    def statistics_finish(self, parts):
        length = self.totals.numel()
        self.launch("sum", (-(-length // 64), 1), self.partial, self.totals, parts, length)
        self.launch("statistics_finish", (self.channels // 8, 1), self.totals, self.totals[self.INPUTS], self.w, self.gamma, self.beta,
                    self.running_mean, self.running_variance, self.statistics, self.weight_gram, self.shape, 0.1, 1e-5)  # fmt: skip

    def apply(self):
        added, mask = ([self.z], [self.mask]) if self.after == "sum_relu" else ([], [])
        self.launch(f"apply_{self.after}_64", (1, self.parts(32)), self.x, self.w, *added, self.statistics, self.y, *mask, self.shape,
                    shared=98304)  # fmt: skip

    def gradients(self):
        parts = self.parts(32)
        has_sum = self.after == "sum_relu"
        name = "gradients" + ("_relu" if has_sum else "") + ("_two" if self.two else "")
        self.launch(name, (parts, 1), self.dy, self.dy2 if self.two else None, self.mask if has_sum else None, self.x, self.w,
                    self.statistics, self.dz if has_sum else None, self.d1, self.partial, self.shape, shared=92160)  # fmt: skip
        return parts

    def gradient_finish(self, parts):
        self.launch("gradient_finish", (self.channels // 2, 1), self.partial, parts, self.w, self.statistics, self.weight_gram,
                    self.totals[self.INPUTS], self.dw, self.dgamma, self.dbeta, self.coefficients, self.shape)  # fmt: skip
        self.launch("gradient_matrix", (self.INPUTS, 1), self.w, self.coefficients, self.matrix, self.row, self.shape)

    def input_gradient(self):
        self.launch("input_gradient", (1, self.parts(64)), self.d1, self.x, self.matrix, self.row, self.dx, self.shape, shared=58880)

    def forward(self):
        self.statistics_finish(self.statistics_sums())
        self.apply()

    def backward(self):
        self.gradient_finish(self.gradients())
        self.input_gradient()

    def outputs(self):
        names = ["statistics", "running_mean", "running_variance", "weight_gram", "y", "d1", "dgamma", "dbeta", "dw", "dx"]
        names += ["mask", "dz"] if self.after == "sum_relu" else []
        return {name: getattr(self, name) for name in names}

    def reference(self):
        """Computes the results in fp64 from the same inputs. `wrong_bits` counts wrong bits of the mask, except for values near 0."""
        x, w = self.x.double(), self.w.double()
        raw = x @ w.t()
        mean, variance = raw.mean(0), raw.var(0, unbiased=False)
        inverse_sigma = (variance + 1e-5).rsqrt()
        slope = inverse_sigma * self.gamma
        normal = (raw - mean) * inverse_sigma
        y = normal * self.gamma + self.beta
        if self.after == "sum_relu":
            y += self.z
        result = {
            "gram": x.t() @ x, "statistics": torch.stack([mean, inverse_sigma, slope, self.beta - mean * slope]),
            "weight_gram": w @ (x.t() @ x), "y": y if self.after == "linear" else y.relu(),
        }  # fmt: skip
        is_on = torch.ones_like(y, dtype=torch.bool)
        if self.after != "linear":
            bits = self.mask.view(self.rows, -1, 1) >> torch.arange(8, device="cuda", dtype=torch.uint8) & 1
            is_on = bits.view(self.rows, self.channels).bool()
            result["wrong_bits"] = ((is_on != (y > 0)) & (y.abs() > 1e-3)).sum().item()
        dz = (self.dy.float() + (self.dy2.float() if self.two else 0)).mul(is_on).to(self.dy.dtype).double()
        dbeta, dgamma = dz.sum(0), (dz * normal).sum(0)
        of_raw = slope * (dz - (dbeta + normal * dgamma) / self.rows)
        result |= {"dz": dz, "dbeta": dbeta, "dgamma": dgamma, "d1": dz @ (w * slope[:, None]), "dx": of_raw @ w, "dw": of_raw.t() @ x}
        return result


# Rows, channels, following operation, True for two gradients.
POINTWISE_SHAPES = [
    (4099, 256, "sum_relu", True), (128 * 56 * 56 + 5, 256, "sum_relu", True), (1000, 192, "linear", False),
    (1001, 128, "sum_relu", False), (515, 256, "linear", True),
]  # fmt: skip


def pointwise_is_right(results, module, kind):
    for rows, channels, after, two in POINTWISE_SHAPES:
        shape = dict(kind=str(kind), rows=rows, channels=channels, after=after, two=two)
        try:
            unit = Pointwise(module, kind, rows, channels, after, two)
            running = [unit.running_mean.clone(), unit.running_variance.clone()]

            def run():
                unit.running_mean.copy_(running[0]), unit.running_variance.copy_(running[1])
                unit.forward()
                unit.backward()
                return {name: tensor.clone() for name, tensor in unit.outputs().items()}

            first, second = run(), run()
            expected = unit.reference()
            different = [name for name in first if not torch.equal(first[name].view(torch.uint8), second[name].view(torch.uint8))]
            means, inverse_sigma = expected["statistics"][:2]
            variance = (1 / inverse_sigma**2 - 1e-5) * rows / (rows - 1)
            expected["running_mean"] = running[0] + 0.1 * (means - running[0])
            expected["running_variance"] = running[1] + 0.1 * (variance - running[1])
            far = {"gram": unit.totals[: unit.INPUTS], **first}
            far = {name: ((far[name].double() - value).norm() / value.norm()).item() for name, value in expected.items() if name in far}
            far = {name: float(f"{value:.2e}") for name, value in far.items()}
            limit = 5e-4 if kind is torch.float16 else 4e-3
            half = {"y", "d1", "dx", "dw", "dz"}
            wrong = [name for name, value in far.items() if not value < (2 * limit if name in half else 2e-5)]
            if expected.get("wrong_bits", 0):
                wrong.append("mask")
            results.add("pointwise_is_right", **shape, wrong=wrong, different_bits=different, far=far)
        except Exception:
            results.add("pointwise_is_right", **shape, error=traceback.format_exc()[-600:])


def pointwise(results):
    """Compares the results of pointwise.cu's kernels with fp64, and times the kernels for ResNet-50's shape."""
    kinds = (torch.float16, torch.bfloat16)
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:
        images = list(pool.map(lambda kind: Module.image("pointwise.cu", kind), kinds))
    results.add("pointwise_module", count=len(images), seconds=time.monotonic() - start)
    modules = {kind: Module("pointwise.cu", kind, image=image) for kind, image in zip(kinds, images)}
    for kind, module in modules.items():
        pointwise_is_right(results, module, kind)
    for kind, batch in [(torch.float16, 128), (torch.float16, 256), (torch.bfloat16, 128)]:
        for blocks in (2, 1):
            if results.is_late():
                return
            try:
                time_pointwise(results, modules[kind], kind, blocks, batch)
            except Exception:
                results.add("pointwise", kind=str(kind), error=traceback.format_exc()[-600:])
            torch.cuda.empty_cache()


def time_pointwise(results, module, kind, blocks, batch):
    rows, inputs, channels = batch * 56 * 56, Pointwise.INPUTS, 256
    count = max(1, min(3, int(5e8 / (rows * channels * 6))))
    units = [Pointwise(module, kind, rows, channels, blocks=blocks) for _ in range(count)]
    x, y, mask = rows * inputs * 2, rows * channels * 2, rows * channels // 8
    statistics_parts, gradient_parts = units[0].parts(128), units[0].parts(32)
    times = {}

    def add(name, amount, call):
        # Repeat short calls to reduce the error of event timing.
        repeats = 4 if amount < 2e8 else 1
        ms = milliseconds([lambda unit=unit: call(unit) for unit in units] * repeats, 3) / count / repeats
        times[name] = [round(ms, 5), round(amount / ms / 1e6)]

    add("statistics", x, lambda unit: unit.statistics_sums())
    add("statistics_finish", 0, lambda unit: unit.statistics_finish(statistics_parts))
    add("apply_sum_relu", x + 2 * y + mask, lambda unit: unit.apply())
    add("gradients_relu_two", 2 * x + 3 * y + mask, lambda unit: unit.gradients())
    add("gradient_finish", 0, lambda unit: unit.gradient_finish(gradient_parts))
    add("input_gradient", 3 * x, lambda unit: unit.input_gradient())
    add("forward", 2 * x + 2 * y + mask, lambda unit: unit.forward())
    add("backward", 5 * x + 3 * y + mask, lambda unit: unit.backward())
    # The convolution of the shortcut: no mask, no second gradient, no residual input.
    for unit in units:
        unit.after, unit.two = "linear", False
    add("apply_linear", x + y, lambda unit: unit.apply())
    add("gradients", 2 * x + y, lambda unit: unit.gradients())
    results.add("pointwise", kind=str(kind), batch=batch, inputs=inputs, blocks=blocks, columns="ms GB/s", **times)


PARTS = [ceiling, batch_norm_is_right, batch_norm, pointwise, linear_algebra, training_step, first_convolution, compiled_step, convolution]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--parts", default=",".join(part.__name__ for part in PARTS))
    options.add_argument("--limit", type=float, default=240.0, help="seconds after which no part starts")
    options.add_argument("--out", help="file to which the JSON lines are appended")
    options = options.parse_args()
    wanted = options.parts.split(",")
    with open(options.out, "a") if options.out else open(os.devnull, "w") as file:
        results = Results(file, options.limit)
        torch.cuda.init()
        torch.empty(1, device="cuda")
        for part in PARTS:
            if part.__name__ in wanted and not results.is_late():
                start = time.monotonic()
                try:
                    part(results)
                except Exception:
                    results.add(part.__name__, error=traceback.format_exc()[-1500:])
                results.add("part", name=part.__name__, seconds=time.monotonic() - start)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
