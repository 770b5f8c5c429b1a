#!/usr/bin/env python3
"""Our plans beside those of TorchRec itself (real_planner.py), under TorchRec's cost and its rule of one column width a table.

    compare_real.py --bin build/release/bin --plans plans.json

Every plan of TorchRec is checked and priced by EvaluatePlan; the cheapest of its settings counts. Ours comes with
`constraints: {column_rule: torchrec}` and everything else as it comes. Exits 1 where one of ours is dearer.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import make_requests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from server_process import PlannerProcess  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--plans", type=pathlib.Path, required=True, help="what real_planner.py wrote")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()
    theirs = {}
    for entry in json.loads(options.plans.read_text()):
        theirs.setdefault((entry["size"], entry["seed"]), []).append(entry)

    results = []
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as planner:
        folder = pathlib.Path(name)

        def cli(*arguments):
            command = [options.bin / "neuroshard", *arguments, "--planner", planner.address, "--format", "json"]
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            if not done.stdout:
                raise SystemExit(done.stderr)
            return json.loads(done.stdout)

        print("| tables x ranks | seed | TorchRec's best, ms (setting) | its time, s | ours, ms | ours / TorchRec | ours / bound | our search, s |")
        print("|---|---|---|---|---|---|---|---|")
        for (size, seed), entries in theirs.items():
            tables, ranks = (int(n) for n in size.split("x"))
            request = make_requests.request(tables, ranks, seed) | {"constraints": {"column_rule": "torchrec"}}
            (folder / "request.json").write_text(json.dumps(request))
            costs = {}
            for entry in entries:
                if "plan" not in entry:
                    continue
                (folder / "plan.json").write_text(json.dumps(entry["plan"]))
                priced = cli("evaluate", folder / "request.json", folder / "plan.json")
                if not priced["legal"]:
                    raise SystemExit(f"{size}, seed {seed}: TorchRec's plan breaks rules: {priced['violations'][:3]}")
                costs[entry["setting"]] = (priced["cost"]["embedding_cost_ms"], entry["seconds"])
            if not costs:
                print(f"| {size} | {seed} | no plan: {entries[0]['error'][:80]} |")
                continue
            setting, (cost, seconds) = min(costs.items(), key=lambda item: item[1])
            answer = cli("plan", folder / "request.json")
            ours = answer["cost"]["embedding_cost_ms"]
            bound = answer["lower_bound"]["cost_ms"]
            search_s = answer["search"]["search_ms"] / 1000
            results.append({"size": size, "seed": seed, "torchrec": costs, "ours_ms": ours, "bound_ms": bound, "search_s": search_s})
            print(f"| {size} | {seed} | {cost:.3f} ({setting}) | {seconds:.1f} | {ours:.3f} | {ours / cost:.4f} | {ours / bound:.3f} "
                  f"| {search_s:.2f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(r["ours_ms"] < min(cost for cost, _ in r["torchrec"].values()) for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
