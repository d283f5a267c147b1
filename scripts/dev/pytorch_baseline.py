#!/usr/bin/env python3
"""The same step in PyTorch: a network of torchvision, synthetic input; training with DLPerf's recipe, or inference (--score).

Started by compare_pytorch.py, alone or by torchrun: DistributedDataParallel over NCCL with a GPU for each rank, over gloo
on the CPU. Prints one JSON line on rank 0: {"seconds": [one per iteration], "losses": [...]}; with --matrix-product the rate of
torch.mm instead, {"gigaflops_per_second": the best of five}. With --resident it compiles, prints {"ready": true}, and then
measures once and prints a line for each line on its standard input.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
import time

import torch
import torchvision


class WallClock:
    """Time stamps on the CPU: earlier work is complete when a stamp is taken."""

    def __init__(self):
        self.marks = []

    def mark(self):
        self.marks.append(time.perf_counter())

    def seconds(self):
        return [end - start for start, end in zip(self.marks, self.marks[1:])]


class DeviceClock:
    """Time stamps on the GPU, read after the loop: the loop never waits."""

    def __init__(self):
        self.marks = []

    def mark(self):
        self.marks.append(torch.cuda.Event(enable_timing=True))
        self.marks[-1].record()

    def seconds(self):
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in zip(self.marks, self.marks[1:])]


def clock_of(device):
    return DeviceClock() if device.type == "cuda" else WallClock()


def answer(measure, prepare, is_resident):
    """Prints the result of `measure`: once, or after `prepare` for each line on standard input."""
    if not is_resident:
        print(json.dumps(measure()), flush=True)
        return
    prepare()
    for line in itertools.chain([None], sys.stdin):
        print(json.dumps(measure() if line else {"ready": True}), flush=True)
        if torch.cuda.is_initialized():
            # Frees the GPU for the processes that are measured until the next line.
            torch.cuda.empty_cache()


def matrix_product(device, kind, rows=4096, tries=5):
    """Returns GFLOP/s of the best product of two square matrices, after one unmeasured product."""
    clock = clock_of(device)
    a, b = (torch.randn(rows, rows, device=device).to(kind) for _ in range(2))
    torch.mm(a, b)
    for _ in range(tries):
        clock.mark()
        torch.mm(a, b)
    clock.mark()
    return 2 * rows**3 / min(clock.seconds()) / 1e9


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", default="resnet50", help="name in torchvision")
    options.add_argument("--score", action="store_true", help="inference alone: passes, each waited for")
    options.add_argument("--matrix-product", action="store_true", help="no network: the rate of torch.mm")
    options.add_argument("--batch-size", type=int)
    options.add_argument("--accumulate", type=int, default=1, help="passes of a step; the gradients are exchanged after the last")
    options.add_argument("--dtype", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32")
    options.add_argument("--device", default="cpu")
    options.add_argument("--layout", choices=["nhwc", "nchw"], default="nhwc")
    options.add_argument("--iters", type=int)
    options.add_argument("--image-size", type=int, default=224)
    options.add_argument("--threads", type=int, required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--init", help="safetensors with the first weights")
    options.add_argument(
        "--compile", nargs="?", const="default", choices=["default", "max-autotune"], help="torch.compile the network, in this mode"
    )
    options.add_argument("--freezing", action=argparse.BooleanOptionalAction, help="in torch.compile [default: with --score]")
    options.add_argument("--resident", action="store_true", help="one process alone: measure for each line on the standard input")
    options = options.parse_args()

    torch.set_num_threads(options.threads)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    tf32 = options.dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True

    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.dtype)
    if options.matrix_product:
        answer(lambda: {"gigaflops_per_second": matrix_product(device, kind or torch.float32)}, lambda: None, options.resident)
        return

    layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    without_head = {"aux_logits": False, "init_weights": False} if options.model == "inception_v3" else {}
    model = torchvision.models.get_model(options.model, **without_head)
    if options.init:
        import safetensors.torch

        model.load_state_dict(safetensors.torch.load_file(options.init))
    model = model.to(device, memory_format=layout).train(not options.score)
    on_gpu = [device.index] if device.type == "cuda" else None
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=on_gpu) if ranks > 1 else model
    if options.compile:
        from torch._inductor import config as inductor

        # Folded batch normalization and packed weights, like ringmark's inference.
        inductor.freezing = options.score if options.freezing is None else options.freezing
        parallel = torch.compile(parallel, mode=options.compile)

    torch.manual_seed(options.seed + rank)
    size = options.image_size
    images = torch.randn(options.batch_size, 3, size, size, device=device).contiguous(memory_format=layout)
    labels = torch.randint(1000, (options.batch_size,), device=device)

    rate = 0.001 * ranks
    warmup = -(-(1281167 // ranks) // options.batch_size)
    # fused: PyTorch's fastest optimizer.
    optimizer = torch.optim.SGD(
        model.parameters(), lr=rate, momentum=0.875, weight_decay=3.0518e-5, nesterov=True, fused=True
    )
    scaler = torch.amp.GradScaler(device.type, enabled=kind is torch.float16)

    def cast():
        return torch.autocast(device.type, dtype=kind) if kind else contextlib.nullcontext()

    def passes(count, clock):
        for _ in range(count):
            clock.mark()
            torch.compiler.cudagraph_mark_step_begin()
            with torch.inference_mode(), cast():
                torch.softmax(parallel(images), -1)
            if device.type == "cuda":
                torch.cuda.synchronize()
        return []

    iterations = itertools.count(1)

    def steps(count, clock):
        losses = []
        for _ in range(count):
            clock.mark()
            torch.compiler.cudagraph_mark_step_begin()
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, next(iterations) / warmup)
            optimizer.zero_grad(set_to_none=True)
            parts = zip(images.chunk(options.accumulate), labels.chunk(options.accumulate))
            total = 0
            for number, (some, their_labels) in enumerate(parts, 1):
                is_exchanged = ranks == 1 or number == options.accumulate
                with contextlib.nullcontext() if is_exchanged else parallel.no_sync():
                    with cast():
                        loss = torch.nn.functional.cross_entropy(parallel(some), their_labels) / options.accumulate
                    scaler.scale(loss).backward()
                total += loss.detach()
            scaler.step(optimizer)
            scaler.update()
            losses.append(total)
        return losses

    def measure(count=options.iters):
        clock = clock_of(device)
        losses = (passes if options.score else steps)(count, clock)
        clock.mark()
        return {"seconds": clock.seconds(), "losses": [loss.item() for loss in losses]}

    if rank == 0:
        # Compilation is complete after three steps: the second captures a CUDA graph, the third replays it.
        answer(measure, lambda: measure(3), options.resident)
    else:
        measure()
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
