#!/usr/bin/env python3
"""Which cost model leads to better plans, measured: plans the same tasks with each of several models and runs every plan for real,
over two workers of one device each on this machine.

    compare_models.py --bin build/release/bin --root configs/models --models cpu-amd-epyc,universal

A task is 10 to 30 tables of the DLRM 2021 trace with random dims, like NeuroShard's benchmark, but for two devices. All plans of a
task are measured in turn, --runs times, and a plan's cost is the median, so that the machine's drift touches all alike.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from provenance import ROOT
from server_process import PlannerProcess, ServerProcess

TABLES = ROOT / "configs/workloads/dlrm_2021_tables856.csv"
DIMS = (4, 8, 16, 32, 64, 128)
DEVICE_BYTES = 2 << 30
TASK_BYTES = 2 << 30  # of weights: three quarters of both devices stay free for ids, outputs and another way to place them


def make_task(rows, rng, batch_size):
    tables, weights = [], 0
    for index in rng.sample(range(len(rows)), rng.randint(10, 30)):
        row, dim = rows[index], rng.choice(DIMS)
        size = int(row["row"]) * dim * 4
        if weights + size > TASK_BYTES or size > DEVICE_BYTES // 2:
            continue
        weights += size
        tables.append({
            "name": f"table_{row['index']}",
            "num_embeddings": int(row["row"]),
            "embedding_dim": dim,
            "pooling_factor": float(row["pooling_factor"]),
            "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)],
        })
    return {
        "tables": tables,
        "topology": {"hosts": [{"num_devices": 2, "memory_bytes": DEVICE_BYTES}]},
        "global_batch_size": batch_size,
        "optimizer": "sgd",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT / "configs/models", help="model repository")
    parser.add_argument("--models", required=True, help="NAME,... ; the first is what the others are compared with")
    parser.add_argument("--strategy", default="refine")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3, help="how often every plan is measured")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()
    models = options.models.split(",")

    def cli(*arguments):
        command = [str(c) for c in (options.bin / "neuroshard", *arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    with open(TABLES) as file:
        rows = list(csv.DictReader(file))
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def worker(core):
            config = folder / f"worker-{core}.yaml"
            config.write_text(f"cpu: {{devices: 1, pin_threads: true, first_core: {core}}}\n")
            return ServerProcess(options.bin / "neuroshard-worker", folder, "--config", config)

        with PlannerProcess(options.bin, folder, options.root) as planner, worker(0) as one, worker(1) as two:
            for task in range(options.tasks):
                request = folder / "request.json"
                request.write_text(json.dumps(make_task(rows, random.Random(f"{options.seed} {task}"), options.batch_size)))
                predicted = {}
                for model in models:
                    plan = ("plan", request, "--planner", planner.address, "--model", model, "--strategy", options.strategy)
                    answer = cli(*plan, "--format", "json")
                    (folder / f"{model}.json").write_text(json.dumps(answer))
                    predicted[model] = answer["cost"]["embedding_cost_ms"]
                measured = {model: [] for model in models}
                for run in range(options.runs):
                    for model in models if run % 2 == 0 else reversed(models):
                        workers = ("--workers", f"{one.address},{two.address}")
                        report = cli("validate", request, folder / f"{model}.json", *workers, "--format", "json")
                        measured[model].append(report["embedding_cost"]["measured_ms"])
                costs = {model: statistics.median(values) for model, values in measured.items()}
                results.append({"task": task, "predicted_ms": predicted, "measured_ms": measured})
                print(f"task {task}: " + ", ".join(f"{m} {costs[m]:.3f} ms" for m in models), file=sys.stderr, flush=True)

    print(f"| model | measured cost to `{models[0]}`: mean | tasks cheaper, dearer | predicted / measured: median |")
    print("|---|---|---|---|")
    for model in models:
        pairs = [(statistics.median(r["measured_ms"][model]), statistics.median(r["measured_ms"][models[0]])) for r in results]
        ratios = [own / base for own, base in pairs]
        forecast = statistics.median(r["predicted_ms"][model] / own for r, (own, _) in zip(results, pairs))
        cheaper, dearer = sum(r < 1 for r in ratios), sum(r > 1 for r in ratios)
        print(f"| `{model}` | {statistics.mean(ratios):.4f} | {cheaper}, {dearer} | {forecast:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
