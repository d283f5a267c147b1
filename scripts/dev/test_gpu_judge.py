#!/usr/bin/env python3
"""Evaluates the files that scripts/dev/test_gpu.sh has written to the current folder.

    test_gpu_judge.py CHECK ARGUMENTS...

Exits with 1 if an expectation is not met; the last line of output is the reason. Needs only Python's standard library. If
PyTorch is installed, it computes the reference gradients.
"""

import array
import json
import math
import statistics
import struct
import sys


def load(name):
    lines = [json.loads(line) for line in open(f"{name}.jsonl")]
    run, end = lines[0], lines[-1]
    if end["kind"] != "end" or end["failure"]:
        sys.exit(f"{name} failed: {end.get('failure', 'the record has no end')}")
    return run, [line for line in lines if line["kind"] == "iteration"], end


def expect(condition, message):
    if not condition:
        sys.exit(message)


def losses(other, reference, tolerance, *backend):
    (_, ours, _), (_, theirs, _) = load(other), load(reference)
    expect(not backend or load(other)[0]["backend"] == backend[0], f"backend is {load(other)[0]['backend']}")
    pairs = [(a["loss"][0], b["loss"][0]) for a, b in zip(ours, theirs)]
    expect(len(ours) == len(theirs) > 0, f"{len(ours)} and {len(theirs)} iterations")
    expect(pairs[-1][1] < 0.9 * pairs[0][1], f"the losses of {reference} do not decrease, so the comparison is meaningless")
    worst = max(abs(a - b) / abs(b) for a, b in pairs)
    text = f"largest relative difference of {len(pairs)} losses {worst:.1e}, limit {tolerance}"
    expect(worst <= float(tolerance), f"{text}: {pairs}")
    print(text)


def expect_difference(one, other):
    pairs = [(a["loss"][0], b["loss"][0]) for a, b in zip(load(one)[1], load(other)[1])]
    expect(any(a != b for a, b in pairs), f"the losses of {one} and {other} are bitwise identical")


def differ(one, other):
    """Checks that each precision changes the result; otherwise it was not used."""
    expect_difference(one, other)
    print("the rounding shows")


def device(name, kind):
    run, _, end = load(name)
    expect(all(rank["device"] == kind for rank in run["ranks"]), f"ranks trained on {[rank['device'] for rank in run['ranks']]}")
    expect(end["peak_memory"][0] > 300e6, f"peak memory {end['peak_memory']}, but weights, gradients and momenta take 307 MB")
    print(f"{run['ranks'][0]['device_name']}, NCCL {run['environment']['nccl_version']}, driver {run['environment']['driver_version']}")


def times(name):
    """Checks that the phases are positive and add up to the step."""
    _, iterations, _ = load(name)
    shares = []
    for iteration in iterations:
        parts = [iteration[part][0] for part in ["forward", "backward", "exposed_allreduce", "optimizer"]]
        step = iteration["step"][0]
        expect(all(part >= 0 for part in parts) and parts[0] > 0 and parts[1] > 0, f"phases {parts}")
        expect(sum(parts) <= step * 1.001, f"phases {parts} exceed the step {step}")
        shares.append(sum(parts) / step)
    expect(statistics.median(shares) > 0.5, f"phases are only {statistics.median(shares):.0%} of the step")
    print(f"phases are {statistics.median(shares):.0%} of the step")


def skips(name, iteration, scale):
    _, iterations, end = load(name)
    found = [line["iteration"] for line in iterations if line["skipped"]]
    expect(found == [int(iteration)] and end["skipped_steps"] == 1, f"skipped {found}, {end['skipped_steps']} in the record's last line")
    after = [line["loss_scale"] for line in iterations]
    expected = [float(scale)] * int(iteration) + [float(scale) / 2] * (len(after) - int(iteration))
    expect(after == expected, f"loss scales {after}")
    print(f"only iteration {iteration} was skipped, loss scales {after}")


def equal_ranks(name, count, backend):
    run, _, end = load(name)
    sums = end["parameter_checksums"]
    expect(run["backend"] == backend, f"backend is {run['backend']}")
    expect(len(sums) == int(count) and len(set(sums)) == 1, f"checksums {sums}")
    print(f"{count} ranks end with the same weights {sums[0]}")


def autotuned(tuned, plain, again):
    """Checks that autotuning does not change the weights. Compares losses if two plain runs already differ in rounding."""
    sums = [load(name)[2]["parameter_checksums"] for name in [tuned, plain, again]]
    trials = load(tuned)[0].get("tuning", {}).get("trials", [])
    expect(len(trials) == 10 and all(trial["step"] > 0 for trial in trials), f"trials {trials}")
    expect(len(set(sums[0])) == 1, f"checksums {sums[0]}")
    if sums[0] != sums[1] != sums[2]:
        print(f"{plain} and {again} are not bitwise identical, so only losses are compared:", end=" ")
        return losses(tuned, plain, "1e-3")
    expect(sums[0] == sums[1], f"checksums {sums[0]}, without autotuning {sums[1]}")
    print(f"{len(trials)} trials, weights {sums[0][0]} as without autotuning")


def exact(name, ranks, backend, wire, report=""):
    """Checks that every bandwidth sample exists and every sum is correct, for gradients within the worker's rounding limits."""
    record = json.load(open(f"{name}.json"))
    config, results, devices = record["config"], record["results"], [rank["device"] for rank in record["ranks"]]
    expect(record["kind"] == "ringmark-bandwidth" and record["failure"] is None, f"failure {record['failure']}")
    expect(record["backend"] == backend and devices == ["cuda"] * int(ranks), f"{record['backend']} on {devices}")
    is_exact = "sizes" in config["messages"]
    element = {"fp32": "float", "fp16": "half", "bf16": "bfloat16"}[wire]
    for result in results:
        sides = [result[side] for side in ["out_of_place", "in_place"] if result[side]]
        expect(result["element"] == element and len(sides) == 1 + is_exact, f"{result['element']}, {len(sides)} sides")
        for side in sides:
            # One rank in place has nothing to do.
            counts = [sum(time > 0 or ranks == "1" for time in times) for times in side["seconds"]]
            expect(counts == [config["iterations"]] * int(ranks), f"{counts} times of {result['bytes']} bytes")
            wrong, error = side["wrong"], side["error"]
            expect(wrong == 0, f"{wrong} wrong elements in {result['bytes']} bytes")
            expect(len(error) == config["iterations"] and None not in error, f"errors {error}")
            expect(not is_exact or max(error) == 0, f"errors {error}")
    is_reported = any(line.startswith(report) for line in record["nccl"])
    expect(results and is_reported == (backend == "nccl"), f"{len(results)} results, NCCL's report is {record['nccl']}")
    print(", ".join([f"{len(results)} result(s) of up to {results[-1]['bytes']} bytes", *record["nccl"][-2:]]))


def exposed(on, off):
    """Checks that overlap reduces exposed all-reduce: median of the slowest rank's times, without two warm-up iterations."""
    time = lambda name: statistics.median(max(line["exposed_allreduce"]) for line in load(name)[1][2:])
    text = f"exposed all-reduce {time(on) * 1e3:.3f} ms with overlap, {time(off) * 1e3:.3f} ms without"
    expect(time(on) < time(off), text)
    print(text)


def digits(folder):
    """Writes 64 images in MNIST's format to an existing folder; the position of a bright band encodes the class."""
    labels = [image % 10 for image in range(64)]
    rows = lambda label: b"".join(bytes([255 if row // 2 == label else row] * 28) for row in range(28))
    for kind, head, values in [
        ("images-idx3", struct.pack(">4i", 0x803, 64, 28, 28), b"".join(map(rows, labels))),
        ("labels-idx1", struct.pack(">2i", 0x801, 64), bytes(labels)),
    ]:
        open(f"{folder}/train-{kind}-ubyte", "wb").write(head + values)


def read(name, threads):
    """Checks that every rank read images, with this number of decode threads."""
    used = load(name)[2]["input"]
    ranks = used["ranks"]
    expect(all(rank["threads"] == int(threads) and rank["images"] > 0 for rank in ranks), f"ranks read {ranks}")
    print(f"{sum(rank['images'] for rank in ranks)} images of {used['what']}")


def prepare(init, data):
    """Adjusts fresh weights for a comparison over five steps, and creates a batch of 8 images of 64 pixels.

    With fresh weights and small batches, batch normalization and ReLU amplify rounding errors to percents of the gradient.
    With small residual branches (bn3.weight) and ReLU inputs away from 0 (biases), fp32 results agree to 1e-6.
    """
    raw = bytearray(open(init, "rb").read())
    length = int.from_bytes(raw[:8], "little")
    for name, tensor in json.loads(raw[8 : 8 + length]).items():
        is_bias = name.endswith(".bias") and name != "fc.bias"
        if is_bias or name.endswith("bn3.weight"):
            start, end = (8 + length + offset for offset in tensor["data_offsets"])
            raw[start:end] = array.array("f", [2.0 if is_bias else 0.25] * ((end - start) // 4)).tobytes()
    open(init, "wb").write(raw)

    state, numbers = 1, array.array("f")
    for _ in range(8 * 3 * 64 * 64):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append((state >> 40) / 2**23 * 1.7 - 1.7)
    images, labels = numbers.tobytes(), array.array("q", [(7 + 251 * image) % 1000 for image in range(8)]).tobytes()
    header = {
        "images": {"dtype": "F32", "shape": [8, 3, 64, 64], "data_offsets": [0, len(images)]},
        "labels": {"dtype": "I64", "shape": [8], "data_offsets": [len(images), len(images) + len(labels)]},
    }
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    open(data, "wb").write(len(header).to_bytes(8, "little") + header + images + labels)


def tensors(name):
    """Yields name, shape and values of each tensor in a safetensors file."""
    raw = open(f"{name}.safetensors", "rb").read()
    length = int.from_bytes(raw[:8], "little")
    for key, tensor in json.loads(raw[8 : 8 + length]).items():
        if key != "__metadata__":
            start, end = (8 + length + offset for offset in tensor["data_offsets"])
            yield key, tensor["shape"], array.array({"F32": "f", "I64": "q"}[tensor["dtype"]], raw[start:end])


# Only every 17th element is compared: Python would take minutes for all of them.
EVERY = 17
# At this learning rate, the update dominates the weights, so rounding errors are those of the gradient.
RATE = 1000


def gradient(saved):
    """Returns the gradient: the change of the weights in one step of plain SGD from init.safetensors / the learning rate."""
    before = {key: values for key, _, values in tensors("init")}
    return {
        key: [(a - b) / RATE for a, b in zip(before[key][::EVERY], after[::EVERY])]
        for key, _, after in tensors(saved)
        if "running_" not in key and "num_batches" not in key
    }


def exact_gradient():
    """Returns the gradient, computed by PyTorch in fp64."""
    import torch
    from torch.nn import functional

    batch = {key: torch.tensor(values).view(shape)[:4] for key, shape, values in tensors("batch")}
    weights = {key: torch.tensor(values, dtype=torch.float64).view(shape) for key, shape, values in tensors("init")}
    leaves = {key: weights[key].requires_grad_() for key in weights if "running_" not in key and "num_batches" not in key}

    def convolution(x, name, stride=1, padding=0):
        return functional.conv2d(x, weights[f"{name}.weight"], stride=stride, padding=padding)

    def norm(x, name):
        return functional.batch_norm(x, None, None, weights[f"{name}.weight"], weights[f"{name}.bias"], training=True)

    def block(x, name, stride):
        out = norm(convolution(x, f"{name}.conv1"), f"{name}.bn1").relu()
        out = norm(convolution(out, f"{name}.conv2", stride, 1), f"{name}.bn2").relu()
        out = norm(convolution(out, f"{name}.conv3"), f"{name}.bn3")
        if f"{name}.downsample.0.weight" in weights:
            x = norm(convolution(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
        return (out + x).relu()

    x = norm(convolution(batch["images"].double(), "conv1", 2, 3), "bn1").relu()
    x = functional.max_pool2d(x, 3, 2, 1)
    for layer, blocks in enumerate([3, 4, 6, 3], 1):
        for index in range(blocks):
            x = block(x, f"layer{layer}.{index}", 2 if layer > 1 and index == 0 else 1)
    x = functional.linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])
    functional.cross_entropy(x, batch["labels"]).backward()
    return {key: leaf.grad.flatten()[::EVERY].tolist() for key, leaf in leaves.items()}


def gradients(cpu, fp32, *steps):
    """Checks that fp32 is IEEE fp32: its error must be far below that of tf32. Losses alone cannot distinguish them.

    The other `steps` use fused kernels and are compared with NAME_libtorch. Fused kernels round the same values or fewer.
    """
    try:
        reference, source = exact_gradient(), "PyTorch in fp64"
    except ImportError:
        reference, source = gradient(cpu), "fp32 on the CPU (PyTorch is not installed)"

    def error(saved):
        other = gradient(saved)
        pairs = [pair for key, values in reference.items() for pair in zip(other[key], values, strict=True)]
        return math.sqrt(sum((a - b) ** 2 for a, b in pairs) / sum(b * b for _, b in pairs))

    errors = {name: error(name) for name in [fp32, *(step + end for step in steps for end in ["", "_libtorch"])]}
    text = ", ".join(f"{name} {value:.1e}" for name, value in errors.items()) + f" from {source}"
    expect(errors[fp32] < 2e-4, f"{text}: the limit for fp32 is 2e-4")
    tf32 = errors.get("tf32_step", math.inf)
    expect(tf32 > 5 * errors[fp32], f"{text}: the error of tf32 must be more than five times that of fp32")
    for step in steps:
        # Rounding errors have the same size but different signs.
        expect(errors[step] < 1.25 * errors[f"{step}_libtorch"], f"{text}: the limit for {step} is 1.25 times the error of libtorch's kernels")
    print(text)


def kernels(fused, libtorch, tolerance):
    """Checks that each run used the requested kernels and that the losses agree."""
    for name, expected in [(fused, "fused"), (libtorch, "libtorch")]:
        found = load(name)[0]["config"].get("kernels", "auto")
        expect(found == expected, f"{name} ran with --kernels {found}: {load(name)[0]['environment'].get('cuda_remarks')}")
    expect_difference(fused, libtorch)
    losses(fused, libtorch, tolerance)


def not_slower(fused, libtorch):
    median = lambda name: statistics.median(line["step"][0] for line in load(name)[1][20:])
    text = f"{1e3 * median(fused):.2f} ms per step, with libtorch's kernels {1e3 * median(libtorch):.2f} ms"
    expect(median(fused) <= median(libtorch), text)
    print(f"{text}: {median(libtorch) / median(fused):.2f}x the speed")


def graphs(replayed, launched):
    """Checks that replayed and launched passes agree. The tolerance is needed because cuDNN may select other kernels."""
    records = [json.load(open(f"{name}.json")) for name in [replayed, launched]]
    for record, expected in zip(records, ["on", "off"]):
        expect(record["failure"] is None, f"failure {record['failure']}")
        found = record["config"].get("graphs", "off")
        expect(found == expected, f"--graphs {expected} ran as {found}: {record.get('no_graph')}")
    (ours,), (theirs,) = (record["confidence"] for record in records)
    tolerance = {"fp32": 1e-4}.get(records[0]["config"]["dtype"], 1e-2)
    text = f"confidence {ours:.6f} and {theirs:.6f}, relative limit {tolerance}"
    expect(theirs > 0 and abs(ours - theirs) <= tolerance * theirs, text)
    times = [1e3 * statistics.median(record["seconds"][0]) for record in records]
    print(f"{text}; {times[0]:.3f} ms per pass, kernel by kernel {times[1]:.3f} ms")


# Minimum images/s of one GPU in fp16 at batch size 128, by compute capability. A lower speed indicates a problem with the
# machine or the choice of kernels. 9.0 is half the speed of an H200; the others are deliberately low estimates.
FLOORS = {7.0: 300, 7.5: 80, 8.0: 400, 8.6: 50, 8.9: 200, 9.0: 2800, 10.0: 2800, 12.0: 100}


def speed(name, capability):
    _, iterations, end = load(name)
    steps = [line["step"][0] for line in iterations]
    floor = FLOORS.get(float(capability or 0), 80)
    images = 128 / statistics.median(steps[20:])
    expect(images > floor, f"{images:.0f} images/s, at least {floor} expected for compute capability {capability}")
    difference = sum(steps) / end["wall"] - 1
    expect(abs(difference) < 0.02, f"the steps add up to {sum(steps):.3f} s, but the wall-clock time is {end['wall']:.3f} s")
    # 4.089 GMAC forward, and twice that backward.
    network, products = images * 6 * 4.089e-3, end["matrix_product"][0]
    expect(network < products, f"the network reaches {network:.1f} TFLOP/s, but matrix products only {products:.1f}")
    share = f"{network:.1f} of {products:.1f} TFLOP/s of matrix products"
    print(f"{images:.0f} images/s (minimum {floor}), {share}, steps - wall-clock time: {difference:+.2%}")


checks = [
    losses, differ, device, times, skips, equal_ranks, autotuned, exact, exposed, digits, read, prepare, gradients, kernels, not_slower,
    graphs, speed,
]  # fmt: skip
by_name = {function.__name__: function for function in checks}
by_name[sys.argv[1]](*sys.argv[2:])
