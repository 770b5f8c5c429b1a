#!/usr/bin/env python3
"""What does StepRecorder cost a step?

    build/pytorch/bin/python bench/pytorch/recorder_overhead.py --bin build/release/bin     about seven minutes on 2 cores; nothing else should run meanwhile

Jobs of steps.py of a module and of three, without a pipeline. Blocks of 20 steps come in pairs, one with a recorder and one without, in an order that is drawn,
on one model in one process. A recorder's cost is how much longer the first takes, in wall and in CPU time of rank 0: the median of --pairs pairs, with its
standard error. Pairs in which no block has a recorder say what such a figure is worth.
"""

import argparse
import pathlib
import random
import statistics
import sys
import tempfile
import time

import dmp_steps
import steps
import torch.distributed as dist
from provenance import ROOT
from server_process import PlannerProcess

from neuroshard import PlannerClient
from neuroshard.torchrec import StepRecorder
from neuroshard.torchrec.step_recorder import _LOOKUPS

JOBS = ((1000, 1), (1000, 3))  # seed, modules
BLOCK = 20
EVERY = (None, 1, BLOCK)  # None: no recorder
CLOCKS = (time.perf_counter, time.process_time)


def forget_recorder(recorder, model):
    for handle in recorder._handles if recorder is not None else ():
        handle.remove()
    for module in model.modules():
        for name in ("input_dist", "compute_and_output_dist", "_create_input_dist"):
            module.__dict__.pop(name, None)
        for exchange in [*getattr(module, "_input_dists", ()), *getattr(module, "_output_dists", ())]:
            exchange.__dict__.pop("forward", None)
        for lookup in getattr(module, "_lookups", ()):  # which modules() of TorchRec's sharded modules leaves out
            for kernel in lookup.modules():
                if isinstance(kernel, _LOOKUPS):
                    kernel._forward_pre_hooks.clear()
                    kernel._forward_hooks.clear()


def run_rank(rank, ranks, port, request, plan_file, plan, pairs, results):
    dmp_steps.join(rank, ranks, port)
    model, dense = dmp_steps.sharded_model(request, plan_file, ranks)
    step = dmp_steps.step_of(model, dense, dmp_steps.batches_of(request, ranks, rank), "none")

    def block_seconds(every):
        recorder = StepRecorder(model, warmup_steps=0, every=every) if every else None
        dist.barrier()
        begin = [clock() for clock in CLOCKS]
        for _ in range(BLOCK):
            step()
            if recorder is not None:
                recorder.step()
        took = [clock() - at for clock, at in zip(CLOCKS, begin)]
        forget_recorder(recorder, model)
        return took

    block_seconds(None)
    more, plain, draw = {every: [] for every in EVERY}, [], random.Random(1)  # ranks draw the same
    for _ in range(pairs):
        for every in EVERY:
            first = draw.random() < 0.5
            took = [block_seconds(every if watched else None) for watched in (first, not first)]
            watched, other = took if first else reversed(took)
            more[every].append([a / b - 1 for a, b in zip(watched, other)])
            plain.append(1e3 * other[0] / BLOCK)
    if rank == 0:
        results.put((statistics.median(plain), more))
    dist.barrier()
    dist.destroy_process_group()


def with_error(values):
    low, middle, high = statistics.quantiles(values, n=4)
    # Of a median, as if values were normal with these quartiles.
    return f"{middle:+.2%} ± {1.2533 * (high - low) / 1.349 / len(values) ** 0.5:.2%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=100)
    options = parser.parse_args()
    print("| modules | step | recorded | wall time | CPU time |\n|---|---|---|---|---|")
    for seed, modules in JOBS:
        request = steps.request_of(seed, options.ranks, modules)
        request["search"] = {"strategy": "refine", "refine_steps": 10}
        with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder), ROOT / "configs/models") as planner:
            with PlannerClient(planner.address) as client:
                plan = steps.planned(client, request, "cpu-fbgemm")
        request, plan = dmp_steps.modules_renamed(request), dmp_steps.modules_renamed(plan)
        step_ms, more = dmp_steps.run_ranks(run_rank, request, plan, options.pairs)
        for every, pairs in more.items():
            wall, cpu = map(with_error, zip(*pairs))
            recorded = f"1 of {every}" if every else "none"
            print(f"| {modules} | {step_ms:.2f} ms | {recorded} | {wall} | {cpu} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
