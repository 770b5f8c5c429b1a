#!/usr/bin/env python3
"""Is the sharder whose plan a model calls the fastest the one whose plan trains the fastest? The protocol of Lin et al. (2404.12674), on CPUs.

    build/pytorch/bin/python bench/pytorch/fastest_sharder.py --bin build/release/bin --folder FOLDER    two hours on 2 cores

Priced by the shipped model cpu-fbgemm; on other processors --models FOLDER/models, which steps.py leaves in its folder. Tasks of twelve heavy tables (public trace, pooling of 20 and more), whole tables on ranks. Seven sharders place them: naive (equally many tables in
the order of the request), chunked (in the order of the request, equal bytes a rank), random, and greedy by bytes, by lookups, by lookups to rows and by
bytes times lookups. Each plan trains under DistributedModelParallel (dmp_steps.py), and those of `refine` and `neuroshard` beside them; runs of a task take turns.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys

import steps
from server_process import PlannerProcess  # in a folder that steps adds

from neuroshard import PlannerClient


def naive(tables, ranks, _draw):
    return [i * ranks // len(tables) for i in range(len(tables))]


def chunked(tables, ranks, _draw):
    total, before, result = sum(map(bytes_of, tables)), 0, []
    for table in tables:
        result.append(min(ranks - 1, int(ranks * before / total)))
        before += bytes_of(table)
    return result


def at_random(tables, ranks, draw):
    return [draw.randrange(ranks) for _ in tables]


def greedy(load):
    def sharder(tables, ranks, _draw):
        loads, result = [0.0] * ranks, [0] * len(tables)
        for i in sorted(range(len(tables)), key=lambda i: -load(tables[i])):
            result[i] = min(range(ranks), key=loads.__getitem__)
            loads[result[i]] += load(tables[i])
        return result

    return sharder


def bytes_of(table):
    return 4 * table["num_embeddings"] * table["embedding_dim"]


def lookups_of(table):
    return table["pooling_factor"]


SHARDERS = {
    "naive": naive, "chunked": chunked, "random": at_random, "size": greedy(bytes_of), "lookups": greedy(lookups_of),
    "lookups to rows": greedy(lambda table: lookups_of(table) / table["num_embeddings"]), "size x lookups": greedy(lambda table: bytes_of(table) * lookups_of(table)),
}


def plan_of(tables, placement, ranks):
    return {"world_size": ranks, "local_world_size": ranks, "tables": [
        {"name": t["name"], "module": t["module"], "sharding_type": "table_wise", "compute_kernel": "fused",
         "shards": [{"rows": t["num_embeddings"], "cols": t["embedding_dim"], "rank": rank}]} for t, rank in zip(tables, placement)]}


def measured_task(seed, client, options):
    request = steps.request_of(seed, options.ranks, 1, [row for row in steps.table_rows(1_000_000) if float(row["pooling_factor"]) >= 20])
    request.update(pipeline_type="train_sparse_dist", cost_model={"name": steps.WITH})
    draw = random.Random(seed)
    plans = {name: plan_of(request["tables"], sharder(request["tables"], options.ranks, draw), options.ranks) for name, sharder in SHARDERS.items()}
    plans["refine"] = steps.planned(client, request, steps.WITH)
    # It obeys no constraints, and has none of these here.
    plans["neuroshard"] = steps.planned(client, {**request, "constraints": {}, "search": {"strategy": "neuroshard"}}, steps.WITH)
    runs = {name: [] for name in plans}
    for _ in range(options.rounds):
        for name, plan in plans.items():
            runs[name].append(steps.measured_ms(steps.dmp_steps.measure(request, plan, options.steps, "train_sparse_dist")))
    return {"forecast_ms": {name: client.evaluate(request, plan).cost.embedding_cost_ms for name, plan in plans.items()},
            "measured_ms": {name: statistics.median(ms) for name, ms in runs.items()}}


def markdown(tasks):
    picked, lost, won, errors, gains = 0, [], [], [], []
    for task in tasks:
        forecast, measured = ({name: task[which][name] for name in SHARDERS} for which in ("forecast_ms", "measured_ms"))
        choice, fastest = min(forecast, key=forecast.get), min(measured, key=measured.get)
        picked += choice == fastest
        lost.append(measured[choice] / measured[fastest] - 1)
        won.append(task["measured_ms"]["refine"] / measured[fastest])
        gains.append([task[which]["refine"] / task[which]["neuroshard"] for which in ("forecast_ms", "measured_ms")])
        errors += [abs(forecast[name] / measured[name] - 1) for name in SHARDERS]
    yield "| tasks | fastest of seven picked | picked or within 3 % | lost by the pick, mean and worst | refine faster than the best of seven | refine to the best of seven | error of forecasts, mean; geometric |"
    yield "|---|---|---|---|---|---|---|"
    yield (f"| {len(tasks)} | {picked} | {sum(loss <= 0.03 for loss in lost)} | {statistics.mean(lost):.1%}, {max(lost):.1%} | {sum(ratio < 1 for ratio in won)} | "
           f"{statistics.mean(won):.3f} | {statistics.mean(errors):.1%}; {statistics.geometric_mean(max(e, 1e-3) for e in errors):.1%} |")
    forecast, measured = (statistics.mean(ratios) for ratios in zip(*gains))
    yield f"\n`refine` to `neuroshard`: forecast {forecast:.3f}, measured {measured:.3f}, faster on {sum(ratio < 1 for _, ratio in gains)} of {len(tasks)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--folder", type=lambda p: pathlib.Path(p).resolve(), required=True, help="keeps what was measured: tasks that are in it are not measured again")
    parser.add_argument("--models", type=lambda p: pathlib.Path(p).resolve(), default=pathlib.Path(__file__).resolve().parents[2] / "configs/models")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"fastest_sharder_{options.ranks}.jsonl"
    tasks = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with PlannerProcess(options.bin, options.folder, options.models) as planner, PlannerClient(planner.address) as client:
        for seed in range(len(tasks), options.tasks):
            tasks.append(measured_task(seed, client, options))
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(tasks[-1]) + "\n")
            print(f"{len(tasks)} of {options.tasks} tasks", file=sys.stderr, flush=True)
    print("\n".join(markdown(tasks)))


if __name__ == "__main__":
    sys.exit(main())
