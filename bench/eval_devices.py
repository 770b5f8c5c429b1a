#!/usr/bin/env python3
"""Plans NeuroShard's 100 tasks on 4 to 128 devices with several strategies: how many are solved, how much they cost beside
`neuroshard`, how long a search takes.

    eval_devices.py --bin build/release/bin
    eval_devices.py --bin build/release/bin --devices 4,8 --strategies neuroshard,refine --time-budget-ms 100 --limit 20
    eval_devices.py --bin build/release/bin --devices 4 --model cpu-amd-epyc

Starts a planner of its own, which serves a cost model with the compute network of the shipped one (or of --base) and made-up
communication networks for every device count (tests/support/make_synthetic_model.py): nobody has measured 128 devices. With
--model it serves the shipped models instead; a universal one prices every device count, those beyond its samples by what it learnt.
Exits 1 when a strategy that takes any split for memory's sake misses a plan, or when `refine` is dearer than `neuroshard` on any task.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from provenance import ROOT
from server_process import PlannerProcess

MADE_UP = "many-devices"
WORKLOADS = ROOT / "configs/workloads"
MUST_SOLVE = {"neuroshard", "refine"}


def make_models(folder, options):
    make = ROOT / "tests/support/make_synthetic_model.py"
    command = [sys.executable, make, "--out", folder / MADE_UP / "1", "--devices", options.devices, "--base", options.base]
    subprocess.run(command, check=True)
    return folder


def eval_tasks(options, planner, devices, strategies, *more):
    """{strategy: its results}, as the client prints them."""
    command = [options.bin / "neuroshard", "eval-tasks", "--planner", planner.address, "--model", options.model or MADE_UP]
    command += ["--tables", WORKLOADS / "dlrm_2021_tables856.csv", "--format", "json"]
    command += ["--tasks", WORKLOADS / f"tasks_4gpu_maxdim{options.max_dim}.txt"]
    command += ["--devices", devices, "--memory-gib", options.memory_gib, "--effort", options.effort]
    command += ["--strategy", strategies, *more]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return {r["strategy"]: r for r in json.loads(done.stdout)["results"]}


def costs(result):
    return {t["task"]: t["cost_ms"] for t in result["tasks"] if t["solved"]} if result else {}


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else None


def row_of(devices, result, base):
    """`base`: what `neuroshard` made of the tasks. Ratios are over the tasks that both solved."""
    ratios = [cost / base[task] for task, cost in costs(result).items() if task in base]
    kept = ("strategy", "solved", "mean_cost_ms", "mean_search_ms", "p50_search_ms", "max_search_ms")
    summary = {"devices": int(devices), "tasks": len(result["tasks"]), "mean_ratio": mean(ratios), "max_ratio": max(ratios, default=None)}
    return summary | {key: result[key] for key in kept}


def long_row(options, planner, devices, short, base):
    """The first tasks again, `refine` for --long-ms: what more time would have brought."""
    limit = ["--limit", options.long_tasks, "--time-budget-ms", options.long_ms]
    long = costs(eval_tasks(options, planner, devices, "refine", *limit)["refine"])
    return {
        "devices": int(devices),
        "tasks": len(long),
        "long_ms": int(options.long_ms),
        "short_ratio": mean(short[task] / base[task] for task in long),
        "long_ratio": mean(cost / base[task] for task, cost in long.items()),
    }


def shown(ratio):
    return "-" if ratio is None else f"{ratio:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--devices", default="4,8,16,32,64,128")
    parser.add_argument("--strategies", default="neuroshard,refine,basic,memory_balanced,memory_optimized,hugectr_auto")
    parser.add_argument("--base", type=pathlib.Path, default=ROOT / "configs/models/cpu-amd-epyc/1", help="ROOT/NAME/VERSION")
    parser.add_argument("--model", help="a shipped model, instead of the made-up one")
    parser.add_argument("--max-dim", type=int, default=128, choices=(16, 128))
    parser.add_argument("--memory-gib", default="4")
    parser.add_argument("--time-budget-ms", help="of every search; default: the strategy's own")
    parser.add_argument("--effort", default="quick", choices=("quick", "default", "thorough"), help="of refine")
    parser.add_argument("--limit", help="only the first so many tasks")
    parser.add_argument("--long-tasks", help="so many tasks also with `refine` for --long-ms; needs neuroshard and refine")
    parser.add_argument("--long-ms", default="10000")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()
    more = []
    for flag in ("time_budget_ms", "limit"):
        if getattr(options, flag):
            more += ["--" + flag.replace("_", "-"), getattr(options, flag)]

    rows, long_rows = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = ROOT / "configs/models" if options.model else make_models(folder / "models", options)
        with PlannerProcess(options.bin, folder, models) as planner:
            print("| devices | strategy | solved | mean cost, ms | to neuroshard: mean | worst | mean search, ms | p50 | max |")
            print("|---|---|---|---|---|---|---|---|---|")
            for devices in options.devices.split(","):
                results = eval_tasks(options, planner, devices, options.strategies, *more)
                base = costs(results.get("neuroshard"))
                for strategy in options.strategies.split(","):
                    r = row_of(devices, results[strategy], base)
                    rows.append(r)
                    print(f"| {devices} | {strategy} | {r['solved']}/{r['tasks']} | {r['mean_cost_ms']:.3f} "
                          f"| {shown(r['mean_ratio'])} | {shown(r['max_ratio'])} | {r['mean_search_ms']:.2f} "
                          f"| {r['p50_search_ms']:.2f} | {r['max_search_ms']:.2f} |", flush=True)
                if options.long_tasks:
                    long_rows.append(long_row(options, planner, devices, costs(results["refine"]), base))
    if long_rows:
        print(f"\nThe first {long_rows[0]['tasks']} tasks, `refine` to `neuroshard`:\n")
        print(f"| devices | as it comes | for {options.long_ms} ms |\n|---|---|---|")
        for r in long_rows:
            print(f"| {r['devices']} | {r['short_ratio']:.4f} | {r['long_ratio']:.4f} |")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "long": long_rows}, indent=1) + "\n")
    missed = any(r["solved"] < r["tasks"] for r in rows if r["strategy"] in MUST_SOLVE)
    dearer = any((r["max_ratio"] or 0) > 1 for r in rows if r["strategy"] == "refine")
    return 1 if missed or dearer else 0


if __name__ == "__main__":
    sys.exit(main())
