#!/usr/bin/env python3
"""Measures PyTorch's in-place all-reduce over gloo in the same way as `ringmark-worker bandwidth`: refill, barrier, time.

    torchrun gloo_baseline.py BYTES ITERATIONS WARMUP

compare_allreduce.py starts this script. Rank 0 prints one JSON line: {"seconds": [mean over ranks, for each iteration]}.
"""

import json
import sys
import time

import torch
import torch.distributed as distributed


def main():
    size, iterations, warmup = (int(word) for word in sys.argv[1:])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    values = torch.ones(size // 4)
    array = torch.empty_like(values)
    seconds = []
    for _ in range(warmup + iterations):
        array.copy_(values)
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(array)
        seconds.append(time.perf_counter() - start)
        assert array[0] == distributed.get_world_size() == array[-1]
    mean = torch.tensor(seconds[warmup:], dtype=torch.float64)
    distributed.all_reduce(mean)
    mean /= distributed.get_world_size()
    if distributed.get_rank() == 0:
        print(json.dumps({"seconds": mean.tolist()}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
