#!/usr/bin/env python3
"""Time to the first plan, time of the whole search and memory, from 100 tables on 8 ranks to 10,000 on 1,024.

    scale/measure.py --bin build/release/bin --json scale.json && scale/scale_plot.py scale.json > scale.svg

Every size gets a planner of its own, so that its peak memory is that size's, and is asked over ShardPlanStream by
planner_load: all times are what a caller sees. The requests are those of torchrec/make_requests.py.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "torchrec"))
import make_requests  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

# Of 10,000 tables' inputs and outputs at 4,096 a rank, TorchRec's memory rule takes more than a device has.
HOST_MEMORY_SAMPLES_PER_RANK = 1024
SIZES = "100x8,100x128,300x8,300x32,1000x8,1000x32,1000x128,3000x128,3000x256,10000x256,10000x1024"


def measure(size, options, folder):
    tables, ranks = (int(n) for n in size.split("x"))
    request = folder / "request.json"
    made = make_requests.request(tables, ranks, 1, options.host_memory)
    if options.host_memory:
        made["global_batch_size"] = HOST_MEMORY_SAMPLES_PER_RANK * ranks
    request.write_text(json.dumps(made))
    result_file = folder / "load.json"
    with PlannerProcess(options.bin, folder) as planner:
        command = [options.bin / "planner_load", request, "--planner", planner.address, "--stream", "--in-flight", "1"]
        command += ["--calls", options.calls, "--strategy", options.strategy, "--json", result_file]
        if options.time_budget_ms:
            command += ["--time-budget-ms", options.time_budget_ms]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        peak = planner.peak_rss_bytes()
    if done.returncode != 0:
        raise SystemExit(f"{size}: {done.stderr}")
    calls = json.loads(result_file.read_text())["runs"][0]["calls"]
    failed = [call["error"] for call in calls if "error" in call]
    if failed:
        raise SystemExit(f"{size}: {failed[0]}")

    def middle(value):
        return sorted(map(value, calls))[len(calls) // 2]

    return {
        "tables": tables,
        "ranks": ranks,
        "first_plan_ms": middle(lambda c: c["improvements"][0][0]),
        "first_cost_ms": middle(lambda c: c["improvements"][0][1]),
        "total_ms": middle(lambda c: c["total_ms"]),
        "search_ms": middle(lambda c: c["search_ms"]),
        "cost_ms": middle(lambda c: c["cost_ms"]),
        "peak_rss_bytes": peak,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--sizes", default=SIZES, help="TABLESxRANKS,...")
    parser.add_argument("--strategy", default="refine")
    parser.add_argument("--host-memory", action="store_true", help="device memory is 30 % of the weights, the rest is in host memory")
    parser.add_argument("--time-budget-ms", help="default: the strategy's own")
    parser.add_argument("--calls", default=3, type=int, help="per size; the middle one counts")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    rows = []
    print("| tables x ranks | first plan, ms | of it per table and rank, us | search, ms | call, ms | peak memory, MiB "
          "| cost, ms: first plan -> answer |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for size in options.sizes.split(","):
            r = measure(size, options, pathlib.Path(name))
            rows.append(r)
            per_cell = 1000 * r["first_plan_ms"] / (r["tables"] * r["ranks"])
            print(
                f"| {size} | {r['first_plan_ms']:.1f} | {per_cell:.2f} | {r['search_ms']:.0f} | {r['total_ms']:.0f} "
                f"| {r['peak_rss_bytes'] / 2**20:.0f} | {r['first_cost_ms']:.3f} -> {r['cost_ms']:.3f} |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
