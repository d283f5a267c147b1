#!/usr/bin/env python3
"""Trains a language model with plain PyTorch, and prints its losses as JSON, for comparisons with ringmark-worker.

Used by the tests of ringmark-worker, which keep its losses in learning.json; by hand:

    .libtorch/venv/bin/python tests/golden/learning.py gpt2-tiny INIT.safetensors text.bin 64 8 1000 0.003

The arguments are the network, the initial weights, the tokens, the sequence length, the batch size, the number of
iterations, and the learning rate. The networks are those of decoders.py, the update is torch.optim.AdamW with
`weight_decay`=0.1 and `betas`=(0.9, 0.95). The tokens are a file of uint16, whose windows are used in storage order, as
with `--shuffle off`; the last batch of an epoch is filled up with its first windows. `synthetic:SEED` is one random
batch for all iterations instead.
"""

import json
import math
import sys

import decoders
import torch


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        values = torch.frombuffer(bytearray(content[end + first : end + last]), dtype=torch.float32)
        yield name, values.view(tensor["shape"])


def windows(data, vocabulary, length, batch):
    """Yields the batches, `[batch, length + 1]`."""
    if data.startswith("synthetic:"):
        torch.manual_seed(int(data.removeprefix("synthetic:")))
        tokens = torch.randint(vocabulary, (batch, length + 1))
        while True:
            yield tokens
    with open(data, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.int16).long() & 0xFFFF
    count = (len(tokens) - 1) // length
    while True:
        for step in range(math.ceil(count / batch)):
            starts = [(step * batch + slot) % count * length for slot in range(batch)]
            yield torch.stack([tokens[start : start + length + 1] for start in starts])


def main():
    model, init, data, *numbers = sys.argv[1:]
    length, batch, iterations = map(int, numbers[:3])
    torch.set_num_threads(1)
    shape = decoders.SHAPES[model]
    weights = {name: value.requires_grad_() for name, value in read_safetensors(init)}
    optimizer = torch.optim.AdamW(weights.values(), lr=float(numbers[3]), betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for _, tokens in zip(range(iterations), windows(data, shape["vocabulary"], length, batch)):
        optimizer.zero_grad()
        loss = decoders.loss(model, weights, tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
