#!/usr/bin/env python3
"""Plans the same requests with TorchRec's default planner (re-implemented, see torchrec_planner.py) and with ours, both
under TorchRec's cost, and says which is cheaper and how long each took.

    compare.py --bin build/release/bin                         100 x 8, 200 x 8, 26 x 128 and 100 x 128, seed 1
    compare.py --bin build/release/bin --sizes 26x128 --seeds 1,2,3 --also grid_shard

Starts a planner of its own. Both plans are checked and priced by its EvaluatePlan; a TorchRec plan that it finds illegal, or
prices otherwise than the re-implementation does, ends the comparison with an error.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import make_requests
import torchrec_costs as costs
import torchrec_planner

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from planner_process import PlannerProcess  # noqa: E402


def baseline(request, label):
    tables = [
        costs.Table(t["name"], t["num_embeddings"], t["embedding_dim"], pooling_factor=t["pooling_factor"])
        for t in request["tables"]
    ]
    ranks = sum(h["count"] * h["num_devices"] for h in request["topology"]["hosts"])
    local = request["topology"]["hosts"][0]["num_devices"]
    usable = int((1 - request["memory"]["reserve_fraction"]) * make_requests.DEVICE_BYTES)
    topology = costs.Topology(ranks, local, make_requests.DEVICE_BYTES)
    result = torchrec_planner.plan(tables, topology, request["global_batch_size"] / ranks, usable, progress=label if sys.stderr.isatty() else None)
    return result, torchrec_planner.as_plan(result, topology)


def our_constraints(options):
    types = torchrec_planner.DEFAULT_TYPES + tuple(options.also.split(",")) if options.also else ()
    return {"constraints": {"sharding_types": types}} if types else {}


def compare(size, seed, options, cli, folder):
    tables, ranks = (int(n) for n in size.split("x"))
    request = make_requests.request(tables, ranks, seed)
    request_file = folder / "request.json"
    request_file.write_text(json.dumps(request | our_constraints(options)))
    theirs, their_plan = baseline(request, f"{size}, seed {seed}")
    plan_file = folder / "torchrec_plan.json"
    plan_file.write_text(json.dumps(their_plan))
    priced = cli("evaluate", request_file, plan_file)
    if not priced["legal"]:
        raise SystemExit(f"{size}: TorchRec's plan breaks rules: {priced['violations'][:3]}")
    their_cost = priced["cost"]["embedding_cost_ms"]
    if not math.isclose(their_cost, theirs.rating_ms, rel_tol=1e-5):
        raise SystemExit(f"{size}: TorchRec's plan is rated {theirs.rating_ms} and priced {their_cost}")
    began = time.monotonic()
    ours = cli("plan", request_file, "--strategy", options.strategy)
    wall = time.monotonic() - began
    ours_file = folder / "our_plan.json"
    ours_file.write_text(json.dumps(ours))
    checked = cli("evaluate", request_file, ours_file)
    if not checked["legal"]:
        raise SystemExit(f"{size}: our plan breaks rules: {checked['violations'][:3]}")
    return {
        "tables": tables,
        "ranks": ranks,
        "seed": seed,
        "torchrec_ms": their_cost,
        "torchrec_proposer": theirs.proposer,
        "torchrec_proposals": theirs.proposals,
        "torchrec_plan_s": theirs.seconds,
        "ours_ms": ours["cost"]["embedding_cost_ms"],
        "ours_search_s": ours["search"]["search_ms"] / 1000,
        "ours_call_s": wall,
        "ratio": ours["cost"]["embedding_cost_ms"] / their_cost,
        "bound_ms": ours.get("lower_bound", {}).get("cost_ms"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--sizes", default="100x8,200x8,26x128,100x128", help="TABLESxRANKS,...")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--strategy", default="refine")
    parser.add_argument("--also", help="sharding types for ours besides TorchRec's defaults, e.g. grid_shard")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    results = []
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:

        def cli(*arguments):
            command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if not done.stdout:
                raise SystemExit(done.stderr)
            return json.loads(done.stdout)

        print("| tables x ranks | seed | TorchRec, ms (proposer) | ours, ms | ours / TorchRec | ours / bound "
              "| TorchRec's search, s | ours, s |")
        print("|---|---|---|---|---|---|---|---|")
        for size in options.sizes.split(","):
            for seed in options.seeds.split(","):
                r = compare(size, int(seed), options, cli, pathlib.Path(name))
                results.append(r)
                bound = f"{r['ours_ms'] / r['bound_ms']:.3f}" if r["bound_ms"] else "-"
                print(f"| {size} | {seed} | {r['torchrec_ms']:.3f} ({r['torchrec_proposer']}) | {r['ours_ms']:.3f} "
                      f"| {r['ratio']:.3f} | {bound} | {r['torchrec_plan_s']:.1f} | {r['ours_search_s']:.3f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(r["ratio"] < 1 and r["ours_search_s"] < 1 for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
