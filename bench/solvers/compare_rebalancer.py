#!/usr/bin/env python3
"""Rebalancer, the assignment solver behind Meta's planner, and ours place the same shards under TorchRec's cost (model "analytic").

    python3.12 -m venv build/rebalancer && build/rebalancer/bin/pip install rebalancer==1.0.4     Python 3.12 or newer, which Debian 12 has not
    build/rebalancer/bin/python bench/solvers/compare_rebalancer.py --bin build/release/bin [--sizes 26x8,100x8,26x16,100x32] [--seeds 1,2] [--limit-s 60]

Rebalancer assigns objects, which it cannot cut, to containers. So it gets two problems of each request of bench/torchrec/make_requests.py: "whole", in which tables
may not be cut (constraints.sharding_types: [table_wise]) for both; and "our shards", those that our plan by default has on single ranks, while row blocks and
replicas stay where our plan has them. The largest rank comes first, the sum of squares after it; memory is a capacity. Local search by single moves, swaps and
triple loops for --limit-s seconds from a greedy start (largest costs first); its plan is priced by EvaluatePlan. Exits 1 where its plan is cheaper than ours.
"""

import math
import pathlib
import sys
import tempfile
import time

from rebalancer import ProblemSolver

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parent.parent / "torchrec")]
import make_requests  # noqa: E402
from planner_calls import TOLERANCE, Planner, parser  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

ON_ONE_RANK = ("table_wise", "column_wise")


def shards_of(planner, request, entries):
    """(table's index, shard's index, rank, ms, bytes, movable) of all shards; shares of a rank add up under this cost."""
    for t, (table, entry) in enumerate(zip(request["tables"], entries)):
        ranks = planner.evaluate({**request, "tables": [table], "constraints": {}}, [entry])["cost"]["ranks"]
        for s, shard in enumerate(entry["shards"]):
            rank = ranks[shard["rank"]]
            yield t, s, shard["rank"], rank["total_ms"], rank["memory"]["total_bytes"] - rank["memory"]["reserve_bytes"], entry["sharding_type"] in ON_ONE_RANK


def solve(shards, num_ranks, capacity, limit_s):
    """Ranks by (table, shard) of those that may move, and seconds."""
    names = {f"{t}/{s}": (t, s) for t, s, *_ in shards}
    of = {f"{t}/{s}": (rank, ms, size, movable) for t, s, rank, ms, size, movable in shards}
    start, total = {f"r{r}": [] for r in range(num_ranks)}, [0.0] * num_ranks
    for name, (rank, ms, _, movable) in sorted(of.items(), key=lambda item: (item[1][3], -item[1][1])):
        place = min(range(num_ranks), key=total.__getitem__) if movable else rank
        total[place] += ms
        start[f"r{place}"].append(name)
    solver = ProblemSolver(service_name="neuroshard", service_scope="bench")
    solver.set_object_name("shard").set_container_name("rank").set_assignment(start)
    solver.add_object_dimension("ms", {name: ms for name, (_, ms, _, _) in of.items()})
    solver.add_object_dimension("gib", {name: size / 2**30 for name, (_, _, size, _) in of.items()})
    solver.add_container_dimension("ms", {}, default_value=1.0)
    solver.add_container_dimension("gib", {}, default_value=capacity / 2**30)
    solver.add_constraint({"capacitySpec": {"name": "memory", "scope": "rank", "dimension": "gib"}})
    stay = [name for name, (_, _, _, movable) in of.items() if not movable]
    if stay:
        solver.add_constraint({"avoidMovingSpec": {"name": "stay", "objects": stay}})
    solver.add_goal({"minimizeNthLargestUtilizationSpec": {"name": "largest", "scope": "rank", "dimension": "ms", "n": 0}}, tuple_pos=0)
    solver.add_goal({"minimizeSquaresSpec": {"name": "even", "scope": "rank", "dimension": "ms"}}, tuple_pos=1)
    moves = [{"singleMoveTypeSpec": {}}, {"swapMoveTypeSpec": {}}, {"tripleLoopMoveTypeSpec": {}}]
    solver.add_solver({"localSearchSolverSpec": {"solveTime": limit_s, "moveTypeList": moves}})
    began = time.monotonic()
    found = solver.solve()["assignment"]
    return {names[name]: int(rank[1:]) for name, rank in found.items() if of[name][3]}, time.monotonic() - began


def compare(planner, size, seed, whole, limit_s):
    tables, ranks = map(int, size.split("x"))
    request = make_requests.request(tables, ranks, seed)
    if whole:
        request["constraints"] = {"sharding_types": ["table_wise"]}
    plan, ours, ours_s = planner.plan_in_full(request)
    shards = list(shards_of(planner, request, plan["tables"]))
    found, seconds = solve(shards, ranks, make_requests.DEVICE_BYTES * (1 - make_requests.RESERVED_SHARE), limit_s)
    entries = [{**entry, "shards": [{**shard, "rank": found.get((t, s), shard["rank"])} for s, shard in enumerate(entry["shards"])]} for t, entry in enumerate(plan["tables"])]
    answer = planner.evaluate(request, entries)
    theirs = answer["cost"]["embedding_cost_ms"] if answer["legal"] else math.inf
    print(f"| {size} | {seed} | {'whole' if whole else 'our shards'} | {len(shards)} | {theirs:.3f} | {seconds:.1f} | {ours:.3f} | {ours_s:.2f} | {ours / theirs:.4f} |", flush=True)
    return ours <= theirs * (1 + TOLERANCE)


def main():
    arguments = parser(__doc__, "Rebalancer")
    options = arguments.parse_args()
    print("| tables x ranks | seed | problem | shards | Rebalancer, ms | s | ours, ms | s | ours / Rebalancer |\n|---|---|---|---|---|---|---|---|---|")
    never_dearer = True
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as server:
        planner = Planner(options.bin, server.address, pathlib.Path(name))
        for size in options.sizes.split(","):
            for seed in map(int, options.seeds.split(",")):
                for whole in (True, False):
                    never_dearer &= compare(planner, size, seed, whole, options.limit_s)
    return 0 if never_dearer else 1


if __name__ == "__main__":
    sys.exit(main())
