#!/usr/bin/env python3
"""Plans NeuroShard's 100 tasks on 4 to 128 devices with several strategies: how many are solved, how much they cost beside
`neuroshard`, how long a search takes.

    eval_devices.py --bin build/release/bin
    eval_devices.py --bin build/release/bin --devices 4,8 --strategies neuroshard,refine --time-budget-ms 100 --limit 20

Starts a planner of its own, which serves a cost model with the compute network of the shipped one (or of --base) and made-up
communication networks for every device count (tests/support/make_synthetic_model.py): nobody has measured 128 devices.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from planner_process import PlannerProcess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "many-devices"
# Strategies besides `neuroshard` must not find fewer plans; these never cut columns and may.
MAY_MISS = {"random", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--devices", default="4,8,16,32,64,128")
    parser.add_argument("--strategies", default="neuroshard,refine")
    parser.add_argument("--base", type=pathlib.Path, default=ROOT / "configs/models/cpu-amd-epyc/1", help="ROOT/NAME/VERSION")
    parser.add_argument("--max-dim", type=int, default=128, choices=(16, 128))
    parser.add_argument("--memory-gib", default="4")
    parser.add_argument("--time-budget-ms", help="of every search; default: the strategy's own")
    parser.add_argument("--limit", help="only the first so many tasks")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    strategies = options.strategies.split(",")
    workloads = ROOT / "configs/workloads"
    results, missed = [], False
    with tempfile.TemporaryDirectory() as name:
        models = pathlib.Path(name) / "models"
        make = ROOT / "tests/support/make_synthetic_model.py"
        subprocess.run(
            [sys.executable, make, "--out", models / MODEL / "1", "--devices", options.devices, "--base", options.base],
            check=True,
        )
        with PlannerProcess(options.bin, pathlib.Path(name), models) as planner:
            print("| devices | strategy | solved | mean cost, ms | to neuroshard | mean search, ms | p50 | max |")
            print("|---|---|---|---|---|---|---|---|")
            for devices in options.devices.split(","):
                command = [options.bin / "neuroshard", "eval-tasks", "--planner", planner.address, "--model", MODEL]
                command += ["--tables", workloads / "dlrm_2021_tables856.csv", "--format", "json"]
                command += ["--tasks", workloads / f"tasks_4gpu_maxdim{options.max_dim}.txt"]
                command += ["--devices", devices, "--memory-gib", options.memory_gib, "--strategy", options.strategies]
                for flag in ("time_budget_ms", "limit"):
                    if getattr(options, flag):
                        command += ["--" + flag.replace("_", "-"), getattr(options, flag)]
                done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
                if done.returncode != 0:
                    raise SystemExit(done.stderr)
                by_strategy = {r["strategy"]: r for r in json.loads(done.stdout)["results"]}
                base = {t["task"]: t["cost_ms"] for t in by_strategy.get("neuroshard", {"tasks": []})["tasks"] if t["solved"]}
                for strategy in strategies:
                    r = by_strategy[strategy]
                    ratios = [t["cost_ms"] / base[t["task"]] for t in r["tasks"] if t["solved"] and t["task"] in base]
                    r.update(devices=int(devices), mean_ratio=sum(ratios) / len(ratios) if ratios else None,
                             max_ratio=max(ratios, default=None))
                    results.append(r)
                    missed = missed or (r["solved"] < len(r["tasks"]) and strategy not in MAY_MISS)
                    ratio = f"{r['mean_ratio']:.4f}" if ratios else "-"
                    print(f"| {devices} | {strategy} | {r['solved']}/{len(r['tasks'])} | {r['mean_cost_ms']:.3f} | {ratio} "
                          f"| {r['mean_search_ms']:.2f} | {r['p50_search_ms']:.2f} | {r['max_search_ms']:.2f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
