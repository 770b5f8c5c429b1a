#!/usr/bin/env python3
"""torch.nn.functional.embedding_bag on the shapes of gpu_kernels_bench, table by table as a model without a fused operator runs them.

    torch_embedding_bag.py --kernels kernels.json --json peers.json [--seconds 60]

Forward, and forward with backward and a step of SGD on sparse gradients. Device time without gaps between launches (gated_clock.py), caches flushed
before each pass, two batches rotated, median. Prints a table in Markdown; the file is written anew after every case.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from gated_clock import GatedClock
from peers_file import keep

TABLE_BYTES = 2 << 30  # of fp32 numbers, as in gpu_kernels_bench
CASES = {"dim32_uniform": [32] * 8, "dim64_uniform": [64] * 8, "dim128_uniform": [128] * 8,
         "mixed4..256_uniform": [4, 8, 16, 32, 64, 96, 128, 256]}


def measure(cols, batch, pooling, device, iterations):
    tables = [torch.rand(min(TABLE_BYTES // 4 // c, 1 << 24), c, device=device).mul_(0.1).requires_grad_() for c in cols]
    offsets = torch.arange(0, batch * pooling, pooling, device=device)
    batches = [[torch.randint(len(t), (batch * pooling,), device=device) for t in tables] for _ in range(2)]
    gradients = [torch.rand(batch, c, device=device) for c in cols]
    clock = GatedClock(torch.device(device))
    forward, step = [], []

    def pool(ids):
        return [F.embedding_bag(i, t, offsets, mode="sum", sparse=True) for i, t in zip(ids, tables)]

    def train(ids):
        torch.autograd.backward(pool(ids), gradients)
        with torch.no_grad():
            for t in tables:
                t.add_(t.grad, alpha=-0.01)  # sparse: adds to the rows that occurred
                t.grad = None

    for i in range(3 + iterations):
        ids = batches[i % 2]
        with torch.no_grad():
            clock.flush_cache()
            f = clock.time_ms(lambda: pool(ids))
        clock.flush_cache()
        s = clock.time_ms(lambda: train(ids))
        if i >= 3:
            forward.append(f)
            step.append(s)
    return statistics.median(forward), statistics.median(step), clock.not_held


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", help="what gpu_kernels_bench wrote, to compare with")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=60, help="no new case after that")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    ours = {}
    if arguments.kernels and os.path.exists(arguments.kernels):
        with open(arguments.kernels) as file:
            ours = {case["name"]: case for case in json.load(file)["cases"] if "error" not in case}
    ends = time.monotonic() + arguments.seconds
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cases": []}
    print(f"torch {torch.__version__}, `embedding_bag` a table; times of torch to those of the fused kernels\n")
    print("| case | batch | forward ms | to ours | forward, backward, SGD ms |\n|---|---|---|---|---|")
    for name, cols in CASES.items():
        if time.monotonic() > ends:
            break
        batch = ours.get(name, {}).get("batch_size", 8192)
        forward, step, not_held = measure(cols, batch, 20, "cuda", 10)
        torch.cuda.empty_cache()
        case = {"name": name, "batch_size": batch, "pooling_factor": 20, "forward_ms": forward, "forward_backward_sgd_ms": step, "passes_not_held": not_held}
        ratio = "-"
        if name in ours:
            case["forward_to_ours"] = forward / ours[name]["forward"]["median_ms"]
            ratio = f"{case['forward_to_ours']:.2f}"
        result["cases"].append(case)
        keep(arguments.json, "embedding_bag", result)
        print(f"| {name} | {batch} | {forward:.3f} | {ratio} | {step:.3f} |", flush=True)


if __name__ == "__main__":
    main()
