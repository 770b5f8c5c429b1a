#!/usr/bin/env python3
"""One plan for several cards, of the plans for each: how much dearer is it than each card's own plan?

    bench/torchrec/one_plan.py --bin build/dev/bin [--requests 30]

Requests of make_requests.py with 26 to 200 tables on 8 to 32 ranks, by published figures in TorchRec's formulas; `quick` searches. What
`neuroshard plan --what-if` does with `one_plan`.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import make_requests  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

CARDS = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm")


def worst_ratio(cli, address, folder, seed):
    """Of the one plan; None: there is none."""
    tables, ranks = (26, 50, 100, 200)[seed % 4], (8, 16, 32)[seed % 3]
    request, what_if = folder / "request.json", folder / "cards.json"
    request.write_text(json.dumps({**make_requests.request(tables, ranks, seed), "search": {"effort": "quick"}}))
    hosts = {"count": ranks // make_requests.RANKS_PER_HOST, "num_devices": make_requests.RANKS_PER_HOST}
    what_if.write_text(json.dumps({"one_plan": True, "topologies": [{"name": card, "topology": {"hosts": [{**hosts, "device": card}]}} for card in CARDS]}))
    done = subprocess.run([cli, "plan", request, "--what-if", what_if, "--planner", address, "--format", "json"], capture_output=True, text=True, check=True)
    one = json.loads(done.stdout)["one_plan"]
    print(f"{tables} x {ranks}, seed {seed}: {one.get('failure') or '%.3f, made for %s' % (one['worst_ratio'], one['made_for'])}", flush=True)
    return one.get("worst_ratio")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder)) as planner:
        ratios = [worst_ratio(options.bin / "neuroshard", planner.address, pathlib.Path(folder), seed) for seed in range(1, options.requests + 1)]
    found = [ratio for ratio in ratios if ratio is not None]
    print(f"{len(found)} of {len(ratios)} have one plan; worst ratio {statistics.mean(found):.3f} on average, {max(found):.3f} at most")


if __name__ == "__main__":
    main()
