#!/usr/bin/env python3
"""What plans cost, and how they differ, where a measured model plans and where TorchRec's formulas do.

    plans_by_model.py --bin build/release/bin
    plans_by_model.py --bin build/release/bin --model h100-sxm --device h100-sxm --tasks 10

The shipped workloads that name the device, and NeuroShard's tasks of 4 devices (batch 65,536, row-wise Adagrad, 8 GiB a device, links of the device).
Each is planned by `refine` with either, and both plans are priced by both.
"""

import argparse
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from provenance import ROOT
from server_process import PlannerProcess

WORKLOADS = ROOT / "configs/workloads"


def task_requests(device, count):
    with open(WORKLOADS / "dlrm_2021_tables856.csv", newline="") as file:
        rows = {int(row["index"]): row for row in csv.DictReader(file)}
    for number, line in enumerate((WORKLOADS / "tasks_4gpu_maxdim128.txt").read_text().splitlines()[:count]):
        tables = []
        for position, (index, dim) in enumerate(zip(*([int(x) for x in part.split(",")] for part in line.split()))):
            row = rows[index]
            tables.append({"name": f"{position}_table_{index}", "num_embeddings": int(row["row"]), "embedding_dim": dim, "pooling_factor": float(row["pooling_factor"]),
                           "reuse_histogram": [float(row[f"bin_{b}"]) for b in range(17)]})
        yield f"task {number}", {"global_batch_size": 65536, "optimizer": "rowwise_adagrad", "tables": tables,
                                 "topology": {"hosts": [{"num_devices": 4, "device": device, "memory_bytes": 8 << 30}]}}


class Case:
    """One request with the plans and prices of both: `plans` and `cost_ms[planned by][priced by]`."""

    def __init__(self, call, name, request, models):
        self.name, self.plans, self.cost_ms = name, {}, {}
        for by in models:
            self.plans[by] = call("plan", request, "--model", by, "--strategy", "refine")["plan"]
        for by, plan in self.plans.items():
            file = request.with_suffix(f".{by}.json")
            file.write_text(json.dumps(plan))
            self.cost_ms[by] = {of: call("evaluate", request, file, "--model", of)["cost"]["embedding_cost_ms"] for of in models}

    def cut(self, by):
        """Tables that are in several shards: how they are cut."""
        return {t["name"]: (t["sharding_type"], len(t["shards"])) for t in self.plans[by]["tables"] if len(t["shards"]) > 1}

    def cut_otherwise(self):
        first, second = (self.cut(by) for by in self.plans)
        return sum(first.get(name) != second.get(name) for name in first.keys() | second.keys())


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "configs/models")
    parser.add_argument("--model", default="h100-sxm")
    parser.add_argument("--device", default="h100-sxm")
    parser.add_argument("--tasks", type=int, default=100)
    options = parser.parse_args()
    model, formulas = options.model, "analytic"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with PlannerProcess(options.bin, folder, options.models) as planner:

            def call(*arguments):
                command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
                done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(done.stderr)
                return json.loads(done.stdout)

            def cases(requests):
                for name, request in requests:
                    file = folder / (name.replace(" ", "_") + ".yaml")
                    file.write_text(request if isinstance(request, str) else json.dumps(request))
                    yield Case(call, name, file, (model, formulas))

            print(f"| request | planned by | cost by {model}, ms | by the formulas, ms | tables in several shards | cut otherwise |\n|---|---|---|---|---|---|")
            workloads = [(p.stem, p.read_text()) for p in sorted(WORKLOADS.glob("*.yaml")) if f"device: {options.device}" in p.read_text()]
            for case in cases(workloads):
                for by in (model, formulas):
                    print(f"| {case.name} | {by} | {case.cost_ms[by][model]:.3f} | {case.cost_ms[by][formulas]:.3f} "
                          f"| {len(case.cut(by))} of {len(case.plans[by]['tables'])} | {case.cut_otherwise()} |", flush=True)
            tasks = list(cases(task_requests(options.device, options.tasks)))
    dearer = [case.cost_ms[formulas][model] / case.cost_ms[model][model] for case in tasks]
    other_way = [case.cost_ms[model][formulas] / case.cost_ms[formulas][formulas] for case in tasks]
    scale = [case.cost_ms[model][model] / case.cost_ms[model][formulas] for case in tasks]
    tables = sum(len(case.plans[model]["tables"]) for case in tasks)
    print(f"\n| {len(tasks)} tasks | |\n|---|---|")
    print(f"| plans by the formulas to plans by {model}, priced by {model} | {geometric_mean(dearer):.3f} (worst {max(dearer):.3f}; dearer in {sum(x > 1 for x in dearer)}) |")
    print(f"| plans by {model} to plans by the formulas, priced by the formulas | {geometric_mean(other_way):.3f} (worst {max(other_way):.3f}; dearer in {sum(x > 1 for x in other_way)}) |")
    print(f"| price by {model} to price by the formulas, of {model}'s plans | {geometric_mean(scale):.2f} ({min(scale):.2f} to {max(scale):.2f}) |")
    print(f"| tables in several shards: {model}, formulas; cut otherwise | {sum(len(c.cut(model)) for c in tasks)}, {sum(len(c.cut(formulas)) for c in tasks)} "
          f"of {tables}; {sum(c.cut_otherwise() for c in tasks)} |")


if __name__ == "__main__":
    main()
