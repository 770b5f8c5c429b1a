#!/usr/bin/env python3
"""FBGEMM's table-batched embedding on the shapes of gpu_kernels_bench.

    fbgemm_cases.py --kernels kernels.json --json peers.json [--seconds 60]

Every case of kernels.json with uniform ids that FBGEMM has kernels for: the same tables, batch, pooling and optimizer, ids of our own law. Forward, and
backward with the optimizer's update, device time without gaps between launches (gated_clock.py), caches flushed before each pass, two batches rotated,
median. Prints a table in Markdown; the file is written anew after every case.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys
import time
import types

WORKER = pathlib.Path(__file__).resolve().parents[2] / "client/python/neuroshard"
# Without the package's own __init__, which needs gRPC.
sys.modules["neuroshard"] = types.ModuleType("neuroshard")
sys.modules["neuroshard"].__path__ = [str(WORKER)]

import torch  # noqa: E402
from gated_clock import GatedClock  # noqa: E402
from neuroshard.worker.fbgemm_lookup import FbgemmLookup  # noqa: E402
from peers_file import keep  # noqa: E402

TABLE_BYTES = 2 << 30  # of fp32 numbers, as in gpu_kernels_bench


def make_ids(rows, batch, pooling, device):
    """Ids and lengths of one table: bags of floor(pooling) or one more."""
    shortest = int(pooling)
    lengths = torch.full((batch,), shortest, dtype=torch.int64, device=device)
    lengths += torch.rand(batch, device=device) < pooling - shortest
    return torch.randint(rows, (int(lengths.sum()),), device=device), lengths


def measure(case, device, clock, iterations):
    pooled = case["pooling_mode"] != "none"
    cols, batch = case["cols"], case["batch_size"]
    table_bytes = min(TABLE_BYTES, 32 * TABLE_BYTES // len(cols))
    rows = [min(table_bytes // 4 // c, 1 << 24) for c in cols]
    lookup = FbgemmLookup(list(zip(rows, cols)), case["optimizer"], case["weight_dtype"], case["pooling_mode"], device)
    for weights in lookup.weights:
        weights.uniform_(-0.01, 0.01)
    batches = []
    for _ in range(2):
        ids, lengths = zip(*(make_ids(r, batch, case["pooling_factor"], device) for r in rows))
        ids, lengths = torch.cat(ids), torch.cat(lengths)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), lengths.cumsum(0)])
        vectors = (batch, sum(cols)) if pooled else (len(ids), cols[0])
        batches.append((ids, offsets, torch.rand(len(ids), device=device) if case["weighted"] else None, torch.rand(vectors, device=device).mul_(1e-3)))
    forward, backward = [], []
    for i in range(3 + iterations):
        lookup._ids, lookup._offsets, lookup._weights_of_ids, gradient = batches[i % 2]
        clock.flush_cache()
        f = clock.time_ms(lookup.forward)
        clock.flush_cache()
        b = clock.time_ms(lambda: lookup.backward(gradient))
        if i >= 3:
            forward.append(f)
            backward.append(b)
    return statistics.median(forward), statistics.median(backward)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", required=True, help="what gpu_kernels_bench wrote")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=60, help="no new case after that")
    parser.add_argument("--only", help="cases, with commas")
    parser.add_argument("--optimizers", default="sgd,rowwise_adagrad", help="with commas; others are left out")
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds
    device = torch.device("cuda", 0)
    clock = GatedClock(device)
    with open(arguments.kernels) as file:
        cases = [case for case in json.load(file)["cases"] if "error" not in case]
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "cases": []}
    print("| case | FBGEMM forward ms | to ours | FBGEMM backward ms | to ours |\n|---|---|---|---|---|")
    for case in cases:
        if time.monotonic() > ends:
            break
        if case["zipf_exponent"] != 0 or case["optimizer"] not in arguments.optimizers.split(",") or (arguments.only and case["name"] not in arguments.only.split(",")):
            continue
        try:
            forward, backward = measure(case, device, clock, 10)
        except (RuntimeError, AssertionError) as fault:  # a kernel or type that this build of FBGEMM lacks
            print(f"| {case['name']} | {str(fault).splitlines()[0]} |", flush=True)
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        result["cases"].append({"name": case["name"], "forward_ms": forward, "backward_ms": backward, "forward_to_ours": forward / case["forward"]["median_ms"],
                                "backward_to_ours": backward / case["backward"]["median_ms"]})
        result["passes_not_held"] = clock.not_held
        keep(arguments.json, "fbgemm_cases", result)
        of = result["cases"][-1]
        print(f"| {case['name']} | {forward:.3f} | {of['forward_to_ours']:.2f} | {backward:.3f} | {of['backward_to_ours']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
