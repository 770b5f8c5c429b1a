#!/usr/bin/env python3
"""What the objective mean_of_max is worth: plans for the costliest rank of each batch on average, against plans for the average batch.

    bench/mean_of_max.py --bin build/release/bin                     ten requests of 26 tables on 8 ranks, 16 batches each; about a minute

Lookups of a batch are those of the average times a log-normal factor: one that tables of a group have in common (--common: its standard
deviation; users come in waves, and features of one kind come with them) and one of a table's own (--own). Both plans are priced on the
batches that the request shows and on --fresh others of the same law, which no search has seen: what a trainer would wait for. Prices are
the built-in formulas'. The same arguments give the same batches on any machine.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from server_process import PlannerProcess

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "torchrec"))
import make_requests  # noqa: E402


def with_batches(request, draw, options, count):
    """The request, whose tables have pooling factors of `count` batches; the mean over all batches of the law stays pooling_factor."""

    def factor(deviation):
        return math.exp(draw.gauss(0, deviation) - deviation * deviation / 2)

    waves = [[factor(options.common) for _ in range(count)] for _ in range(options.groups)]
    tables = []
    for i, table in enumerate(request["tables"]):
        wave = waves[i % options.groups]
        tables.append({**table, "batch_pooling_factors": [table["pooling_factor"] * wave[b] * factor(options.own) for b in range(count)]})
    return {**request, "tables": tables}


class Planner:
    def __init__(self, options, address, folder):
        self.command, self.address, self.folder = [str(options.bin / "neuroshard")], address, folder

    def write(self, name, content):
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def call(self, *arguments):
        done = subprocess.run([*self.command, *arguments, "--planner", self.address, "--format", "json"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def mean_of_max(self, request, plan):
        return self.call("evaluate", request, plan)["cost"]["mean_of_max_ms"]


def compare(planner, seed, options):
    draw = random.Random(f"batches {seed}")
    base = make_requests.request(options.tables, options.ranks, seed)
    shown = planner.write("shown.json", with_batches(base, draw, options, options.batches))
    fresh = planner.write("fresh.json", with_batches(base, draw, options, options.fresh))
    plans = {name: planner.call("plan", shown, *extra) for name, extra in (("default", ()), ("mean", ("--objective", "mean_of_max")))}
    row = {"seed": seed}
    for name, answer in plans.items():
        plan = planner.write(f"{name}.json", answer)
        row[name] = {
            "average_batch_ms": answer["cost"]["embedding_cost_ms"],
            "shown_ms": answer["cost"]["mean_of_max_ms"],
            "fresh_ms": planner.mean_of_max(fresh, plan),
        }
    return row


def ratios(rows, of):
    values = [row["mean"][of] / row["default"][of] for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, values)))
    return {"mean": round(mean, 4), "least": round(min(values), 4), "greatest": round(max(values), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of neuroshard and neuroshard-planner")
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--batches", type=int, default=16, help="that the request shows, at most 256")
    parser.add_argument("--fresh", type=int, default=256, help="of the same law, at most 256")
    parser.add_argument("--groups", type=int, default=4, help="of tables whose lookups vary together")
    parser.add_argument("--common", type=float, default=0.4)
    parser.add_argument("--own", type=float, default=0.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, PlannerProcess(options.bin, pathlib.Path(folder)) as server:
        planner = Planner(options, server.address, pathlib.Path(folder))
        rows = [compare(planner, seed, options) for seed in range(1, options.requests + 1)]
    print(f"{options.requests} requests, {options.tables} tables on {options.ranks} ranks, {options.batches} batches shown, {options.fresh} fresh")
    print("mean_of_max / default, geometric mean (least, greatest)")
    for of, title in (("average_batch_ms", "cost of the average batch"), ("shown_ms", "mean of maxima, shown batches"),
                      ("fresh_ms", "mean of maxima, fresh batches")):
        ratio = ratios(rows, of)
        print(f"  {title}: {ratio['mean']:.4f} ({ratio['least']:.4f}, {ratio['greatest']:.4f})")
    above = statistics.fmean(row["default"]["fresh_ms"] / row["default"]["average_batch_ms"] for row in rows)
    print(f"default plans: mean of maxima of fresh batches / cost of the average batch: {above:.3f}")


if __name__ == "__main__":
    main()
