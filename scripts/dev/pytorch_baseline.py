#!/usr/bin/env python3
"""Measures PyTorch: training with DLPerf's recipe, or inference, of a torchvision network; with --sequence-length, training of
a language model with AdamW. For compare_pytorch.py, and with --lines for `ringmark run`, which starts a process
for each rank.

The input is synthetic. With several ranks, DistributedDataParallel runs over NCCL with one GPU per rank, or over gloo on CPUs.
Rank 0 prints one JSON line: {"seconds": [one per iteration], "losses": [...]}. With --lines, it prints a line for each iteration
instead, or on a GPU for ten. With --matrix-product, the line contains the rate of
torch.mm, the best of five: {"gigaflops_per_second": ...}. With --resident, the script compiles, prints {"ready": true}, and
then measures and prints a line for each line on standard input.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
import time

import decoder_baseline
import torch
import torchvision


class WallClock:
    """Time stamps on the CPU, where operations are synchronous."""

    def __init__(self):
        self.marks = []

    def mark(self):
        self.marks.append(time.perf_counter())

    def seconds(self):
        return [end - start for start, end in zip(self.marks, self.marks[1:])]


class DeviceClock:
    """Time stamps on the GPU, which are read after the loop so that the loop never waits."""

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


def print_results(measure, prepare, is_resident):
    """Prints the result of `measure`: once or, if resident, after `prepare` and for each line on standard input."""
    if not is_resident:
        print(json.dumps(measure()), flush=True)
        return
    prepare()
    for line in itertools.chain([None], sys.stdin):
        print(json.dumps(measure() if line else {"ready": True}), flush=True)
        if torch.cuda.is_initialized():
            # Free the GPU's memory for other processes that are measured before the next line.
            torch.cuda.empty_cache()


def matrix_product(device, kind, rows=4096, tries=5):
    """Returns GFLOP/s of the fastest of several products of square matrices, after one warm-up product."""
    clock = clock_of(device)
    a, b = (torch.randn(rows, rows, device=device).to(kind) for _ in range(2))
    torch.mm(a, b)
    for _ in range(tries):
        clock.mark()
        torch.mm(a, b)
    clock.mark()
    return 2 * rows**3 / min(clock.seconds()) / 1e9


# Names of ringmark that differ from torchvision's.
TORCHVISION = {"resnet50_v1b": "resnet50"}

SHARDED = ["zero2", "fsdp"]
STRATEGIES = ["all-reduce", "zero1", *SHARDED]


def distributed(model, device, strategy):
    """Returns the model with DistributedDataParallel, or with FSDP2, which keeps the weights gathered between forward and
    backward for zero2."""
    if strategy not in SHARDED:
        on_gpu = [device.index] if device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=on_gpu)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    gathers_again = strategy == "fsdp"
    blocks = [module for module in model.modules() if type(module).__name__ in ["Gpt2Block", "LlamaBlock", "BasicBlock", "Bottleneck"]]
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=gathers_again)
    return fully_shard(model, mesh=mesh, reshard_after_forward=gathers_again)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", default="resnet50", help="name of the network in torchvision or ringmark")
    options.add_argument("--score", action="store_true", help="inference; waits for each pass")
    options.add_argument("--matrix-product", action="store_true", help="measure torch.mm instead of a network")
    options.add_argument("--batch-size", type=int)
    options.add_argument("--accumulate", type=int, default=1, help="passes per step; gradients are exchanged after the last")
    options.add_argument("--dtype", choices=["fp32", "tf32", "fp16", "bf16"], default="fp32")
    options.add_argument("--device", default="cpu")
    options.add_argument("--layout", choices=["nhwc", "nchw"], default="nhwc")
    options.add_argument("--iters", type=int)
    options.add_argument("--image-size", type=int, default=224)
    options.add_argument("--sequence-length", type=int, help="tokens of a sequence, for a language model")
    options.add_argument("--threads", type=int, required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--init", help="safetensors file with the initial weights")
    options.add_argument(
        "--compile", nargs="?", const="default", choices=["default", "max-autotune"], help="use torch.compile with this mode"
    )
    options.add_argument("--freezing", action=argparse.BooleanOptionalAction, help="freeze weights in torch.compile [default: with --score]")
    options.add_argument("--strategy", choices=STRATEGIES, default="all-reduce", help="division of the state among ranks")
    options.add_argument("--lines", action="store_true", help="print a line for each iteration: `step 3: 41.52 ms, loss 6.9`")
    options.add_argument("--resident", action="store_true", help="measure once for each line on standard input; only without torchrun")
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
        print_results(lambda: {"gigaflops_per_second": matrix_product(device, kind or torch.float32)}, lambda: None, options.resident)
        return

    layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    is_decoder = options.sequence_length is not None
    without_head = {"aux_logits": False, "init_weights": False} if options.model == "inception_v3" else {}
    if is_decoder:
        model = decoder_baseline.Decoder(**decoder_baseline.SHAPES[options.model])
    else:
        model = torchvision.models.get_model(TORCHVISION.get(options.model, options.model), **without_head)
    if options.init:
        import safetensors.torch

        model.load_state_dict(safetensors.torch.load_file(options.init))
    # FSDP2 needs contiguous parameters.
    is_sharded = ranks > 1 and options.strategy in SHARDED
    weight_layout = torch.contiguous_format if is_sharded else layout
    model = model.to(device, memory_format=weight_layout).train(not options.score)
    parallel = distributed(model, device, options.strategy) if ranks > 1 else model
    if options.compile:
        from torch._inductor import config as inductor

        # Freezing folds batch normalization and packs weights, as ringmark's inference does.
        inductor.freezing = options.score if options.freezing is None else options.freezing
        parallel = torch.compile(parallel, mode=options.compile)

    torch.manual_seed(options.seed + rank)
    size = options.image_size
    if is_decoder:
        tokens = torch.randint(model.embedding.num_embeddings, (options.batch_size, options.sequence_length + 1), device=device)
        images, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    else:
        images = torch.randn(options.batch_size, 3, size, size, device=device).contiguous(memory_format=layout)
        labels = torch.randint(1000, (options.batch_size,), device=device)

    rate = 0.001 * ranks
    warmup = -(-(1281167 // ranks) // options.batch_size)
    # fused=True is PyTorch's fastest implementation.
    rule = torch.optim.AdamW if is_decoder else torch.optim.SGD
    constants = {"lr": rate, "weight_decay": 3.0518e-5, "fused": True} | ({} if is_decoder else {"momentum": 0.875, "nesterov": True})
    if is_sharded and not is_decoder:
        # Fused SGD does not support FSDP2's tensors.
        constants = constants | {"fused": False, "foreach": True}
    if options.strategy == "zero1" and ranks > 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=rule, **constants)
    else:
        optimizer = rule(model.parameters(), **constants)
    scaler = torch.amp.GradScaler(device.type, enabled=kind is torch.float16)

    def cast():
        return torch.autocast(device.type, dtype=kind) if kind else contextlib.nullcontext()

    def passes(count, clock):
        for _ in range(count):
            clock.mark()
            torch.compiler.cudagraph_mark_step_begin()
            with torch.inference_mode(), cast():
                if is_decoder:
                    parallel(images, labels, reduction="none").neg().exp()
                else:
                    torch.softmax(parallel(images), -1)
            if device.type == "cuda":
                torch.cuda.synchronize()
        return []

    def loss_of(inputs, targets):
        return parallel(inputs, targets) if is_decoder else torch.nn.functional.cross_entropy(parallel(inputs), targets)

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
            for number, (part_images, part_labels) in enumerate(parts, 1):
                is_exchanged = ranks == 1 or number == options.accumulate
                with contextlib.nullcontext() if is_exchanged else parallel.no_sync():
                    with cast():
                        loss = loss_of(part_images, part_labels) / options.accumulate
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

    def print_lines(block=10 if device.type == "cuda" else 1):
        for number in range(block, options.iters + 1, block):
            result = measure(block)
            milliseconds = 1000 * sum(result["seconds"]) / block
            if rank == 0:
                print(f"step {number}: {milliseconds:.3f} ms, loss {result['losses'][-1]:.6f}", flush=True)

    if options.lines:
        print_lines()
    elif rank == 0:
        # Compilation is complete after three steps: the second captures a CUDA graph and the third replays it.
        print_results(measure, lambda: measure(3), options.resident)
    else:
        measure()
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
