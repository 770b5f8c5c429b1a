#!/usr/bin/env python3
"""Plans the same requests with TorchRec's default planner (re-implemented, see torchrec_planner.py) and with ours, both
under TorchRec's cost, and says which is cheaper and how long each took. TorchRec leaves grid_shard out unless it is listed and
ours does not, so that each plans twice: TorchRec also with it, ours also without. Exits 1 where ours is not cheaper than TorchRec's
with or without grid_shard, or took a second.

    compare.py --bin build/release/bin                         100 x 8, 200 x 8, 26 x 128 and 100 x 128, seed 1
    compare.py --bin build/release/bin --sizes 26x128 --seeds 1,2,3

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
from server_process import PlannerProcess  # noqa: E402


def baseline(request, types, label):
    tables = [
        costs.Table(t["name"], t["num_embeddings"], t["embedding_dim"], pooling_factor=t["pooling_factor"])
        for t in request["tables"]
    ]
    ranks = sum(h["count"] * h["num_devices"] for h in request["topology"]["hosts"])
    local = request["topology"]["hosts"][0]["num_devices"]
    usable = int((1 - request["memory"]["reserve_fraction"]) * make_requests.DEVICE_BYTES)
    topology = costs.Topology(ranks, local, make_requests.DEVICE_BYTES)
    shown = label if sys.stderr.isatty() else None
    result = torchrec_planner.plan(tables, topology, request["global_batch_size"] / ranks, usable, types, progress=shown)
    return result, torchrec_planner.as_plan(result, topology)


class Comparison:
    """One request, planned by both with one list of types after the other."""

    def __init__(self, tables, ranks, seed, cli, folder):
        self.request = make_requests.request(tables, ranks, seed)
        self.label = f"{tables}x{ranks}, seed {seed}"
        self.cli, self.folder = cli, folder

    def file(self, content):
        path = self.folder / "message.json"
        path.write_text(json.dumps(content))
        return path

    def cost_of(self, whose, plan):
        """What the service says that a plan costs; a request that names no types checks against all rules but those."""
        (self.folder / "plan.json").write_text(json.dumps(plan))
        priced = self.cli("evaluate", self.file(self.request), self.folder / "plan.json")
        if not priced["legal"]:
            raise SystemExit(f"{self.label}: {whose} plan breaks rules: {priced['violations'][:3]}")
        return priced["cost"]["embedding_cost_ms"]

    def theirs(self, types):
        result, plan = baseline(self.request, types, self.label)
        cost = self.cost_of("TorchRec's", plan)
        if not math.isclose(cost, result.rating_ms, rel_tol=1e-5):
            raise SystemExit(f"{self.label}: TorchRec's plan is rated {result.rating_ms} and priced {cost}")
        return {"cost_ms": cost, "proposer": result.proposer, "proposals": result.proposals, "plan_s": result.seconds}

    def ours(self, strategy, types=()):
        constraints = {"constraints": {"sharding_types": types}} if types else {}
        began = time.monotonic()
        answer = self.cli("plan", self.file(self.request | constraints), "--strategy", strategy)
        call_s = time.monotonic() - began
        cost = self.cost_of("our", answer)
        bound = answer.get("lower_bound", {}).get("cost_ms")
        return {"cost_ms": cost, "bound_ms": bound, "search_s": answer["search"]["search_ms"] / 1000, "call_s": call_s}


def compare(size, seed, options, cli, folder):
    tables, ranks = (int(n) for n in size.split("x"))
    comparison = Comparison(tables, ranks, seed, cli, folder)
    default = torchrec_planner.DEFAULT_TYPES
    return {
        "tables": tables,
        "ranks": ranks,
        "seed": seed,
        "torchrec": comparison.theirs(default),
        "torchrec_grid": comparison.theirs((*default, "grid_shard")),
        "ours": comparison.ours(options.strategy),
        "ours_six_types": comparison.ours(options.strategy, default),
    }


def ratios(result):
    """Ours to TorchRec's; the first two are to be below 1, of the last the optimum may be TorchRec's plan."""
    ours, six = result["ours"]["cost_ms"], result["ours_six_types"]["cost_ms"]
    theirs, grid = result["torchrec"]["cost_ms"], result["torchrec_grid"]["cost_ms"]
    return {"default": ours / theirs, "grid_listed": ours / grid, "six_types": six / theirs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--sizes", default="100x8,200x8,26x128,100x128", help="TABLESxRANKS,...")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--strategy", default="refine")
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

        print("| tables x ranks | seed | TorchRec, ms (proposer) | ours, ms | ours / TorchRec | with `grid_shard` listed to it "
              "| both without | ours / bound | TorchRec's search, s | ours, s |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for size in options.sizes.split(","):
            for seed in options.seeds.split(","):
                r = compare(size, int(seed), options, cli, pathlib.Path(name))
                r["ratios"] = ratios(r)
                results.append(r)
                ours, theirs = r["ours"], r["torchrec"]
                bound = f"{ours['cost_ms'] / ours['bound_ms']:.3f}" if ours["bound_ms"] else "-"
                print(f"| {size} | {seed} | {theirs['cost_ms']:.3f} ({theirs['proposer']}) | {ours['cost_ms']:.3f} "
                      f"| {r['ratios']['default']:.4f} | {r['ratios']['grid_listed']:.4f} | {r['ratios']['six_types']:.4f} "
                      f"| {bound} | {theirs['plan_s']:.1f} | {ours['search_s']:.3f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    good = all(max(r["ratios"]["default"], r["ratios"]["grid_listed"]) < 1 and r["ours"]["search_s"] < 1 for r in results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
