#!/usr/bin/env python3
"""What does StepRecorder cost a step?

    build/pytorch/bin/python bench/pytorch/recorder_overhead.py --bin build/release/bin     about ten minutes on 2 cores; nothing else should run meanwhile

Jobs of steps.py of a module and of three, without a pipeline: a model trains --steps steps, then a StepRecorder watches it and it trains as many again. A step
takes its median on rank 0, the cost is how much larger that of the watched steps is; the median of --models models counts. The same where no recorder comes says
what such a figure is worth.
"""

import argparse
import pathlib
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

JOBS = ((1000, 1), (1000, 3))  # seed, modules


def run_rank(rank, ranks, port, request, plan_file, plan, num_steps, num_models, watched, results):
    dmp_steps.join(rank, ranks, port)

    def median_ms(step, recorder):
        took = []
        for _ in range(dmp_steps.WARMUP + num_steps):
            begin = time.perf_counter()
            step()
            if recorder is not None:
                recorder.step()
            took.append(1e3 * (time.perf_counter() - begin))
        return statistics.median(took[dmp_steps.WARMUP:])

    medians = []
    for _ in range(num_models):
        model, dense = dmp_steps.sharded_model(request, plan_file, ranks)
        step = dmp_steps.step_of(model, dense, dmp_steps.batches_of(request, ranks, rank), "none")
        before_ms = median_ms(step, None)
        medians.append((before_ms, median_ms(step, StepRecorder(model) if watched else None)))
    if rank == 0:
        results.put(medians)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--models", type=int, default=15)
    options = parser.parse_args()
    print("| modules | step | watched | not watched either |\n|---|---|---|---|")
    for seed, modules in JOBS:
        request = steps.request_of(seed, options.ranks, modules)
        request["search"] = {"strategy": "refine", "refine_steps": 10}
        with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder), ROOT / "configs/models") as planner:
            with PlannerClient(planner.address) as client:
                plan = steps.planned(client, request, "cpu-fbgemm")
        request, plan = dmp_steps.modules_renamed(request), dmp_steps.modules_renamed(plan)
        more = []
        for watched in (True, False):
            medians = dmp_steps.run_ranks(run_rank, request, plan, options.steps, options.models, watched)
            more.append(statistics.median(after_ms / before_ms - 1 for before_ms, after_ms in medians))
        step_ms = statistics.median(before_ms for before_ms, _ in medians)
        print(f"| {modules} | {step_ms:.2f} ms | {more[0]:+.2%} | {more[1]:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
