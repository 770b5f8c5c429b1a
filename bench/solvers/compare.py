#!/usr/bin/env python3
"""HiGHS, the open solver of mixed-integer programs, and ours plan the same requests under TorchRec's cost (model "analytic").

    python3 -m venv build/solvers && build/solvers/bin/pip install highspy==1.16.0
    build/solvers/bin/python bench/solvers/compare.py --bin build/release/bin [--sizes 26x8,100x8,26x16,100x32] [--seeds 1,2] [--limit-s 60]

Requests are those of bench/torchrec/make_requests.py. The program that HiGHS gets has, for each table, the layouts table_wise, row_wise, table_row_wise and
column_wise in 2, 4 and 8 equal blocks; whole numbers say how many blocks are on which rank; the costliest rank is minimised within the memory of every rank.
With --host-memory each of these is on the device, in host memory, or there behind a cache of a fifth of the rows (kernels fused, fused_uvm, fused_uvm_caching),
of ours, too, and columns are cut into 16 and 32 blocks as well; the last column is our default where the search chooses the sizes of caches.
What a shard costs and takes is asked of EvaluatePlan, a table and layout at a time: under this cost shares of a rank add up. HiGHS has one thread, no start and
--limit-s seconds; its plan is priced by EvaluatePlan, and the comparison ends with an error where that is not its own figure. Its lower bound is of this program,
which has fewer layouts than plans may have. Ours plans once by default and once with --effort thorough. Exits 1 where HiGHS's plan is cheaper than our default.

With --tolerance 0.02 the plan comes first that is cheapest by our default, and then both make the fullest rank as empty as they can with plans that cost 2 % more at
most: ours by search.goals, HiGHS with these costs as a constraint. Exits 1 where HiGHS's fullest rank is emptier by more than 0.5 %.

With --budget 0.05 the plan of `size_greedy` is in place (whole tables), and 5 % of all weights may move, which HiGHS has as a constraint.
"""

import itertools
import json
import math
import pathlib
import sys
import tempfile
import time
from dataclasses import dataclass

import highspy

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parent.parent / "torchrec")]
import make_requests  # noqa: E402
from planner_calls import CACHE_LOAD_FACTOR, TOLERANCE, Planner, entry, parser  # noqa: E402
from server_process import PlannerProcess  # noqa: E402

BLOCKS = (2, 4, 8)
MORE_BLOCKS = (16, 32)  # of wide tables of which little fits on a device
GRANULE = 4  # columns


@dataclass(frozen=True)
class Layout:
    """Of one table. Shards are alike but for the last row blocks, which count as the largest."""

    kind: str
    blocks: int  # units that are placed on their own
    ranks_a_unit: int  # 1, those of a host, or all
    kernel: str
    cost_ms: float  # of a shard
    bytes: int
    host_bytes: int


def shards_of(table, kind, blocks, ranks):
    """On the first ranks."""
    rows, cols = table["num_embeddings"], table["embedding_dim"]
    if kind in ("row_wise", "table_row_wise"):
        block = -(-rows // ranks)
        return [dict(row_offset=min(rows, r * block), rows=max(0, min(block, rows - r * block)), col_offset=0, cols=cols, rank=r) for r in range(ranks)]
    width = cols // blocks
    return [dict(row_offset=0, rows=rows, col_offset=b * width, cols=width, rank=b % ranks) for b in range(blocks)]


def layouts_of(planner, request, table, ranks, local):
    kinds = [("table_wise", 1, 1), ("row_wise", 1, ranks)] + ([("table_row_wise", 1, local)] if ranks > local else [])
    blocks_tried = BLOCKS + MORE_BLOCKS if host_limit_of(request) else [b for b in BLOCKS if b <= ranks]
    kinds += [("column_wise", b, 1) for b in blocks_tried if table["embedding_dim"] % (GRANULE * b) == 0]
    kernels = ("fused", "fused_uvm", "fused_uvm_caching") if host_limit_of(request) else ("fused",)
    for (kind, blocks, ranks_a_unit), kernel in itertools.product(kinds, kernels):
        shards = shards_of(table, kind, blocks, max(blocks, ranks_a_unit))
        for shard in shards:
            shard["rank"] %= ranks
        on_first = -(-blocks // ranks)  # shards that the first rank has
        answer = planner.evaluate({**request, "tables": [table], "constraints": {}}, [entry(table, kind, shards, kernel)])
        first = answer["cost"]["ranks"][0]
        memory = first["memory"]
        on_device, on_host = (memory["total_bytes"] - memory["reserve_bytes"]) // on_first, memory.get("host_total_bytes", 0) // on_first
        if on_device <= memory["capacity_bytes"] - memory["reserve_bytes"] and on_host <= host_limit_of(request):
            yield Layout(kind, blocks, ranks_a_unit, kernel, first["total_ms"] / on_first, on_device, on_host)


def host_limit_of(request):
    """Of each rank; those of a host together have as much as the host."""
    return request["topology"]["hosts"][0].get("max_host_memory_bytes_per_device", 0)


def solve(layouts, capacities, host_limit, local, limit_s, cost_limit_ms=None, home=None, budget=None):
    """(entries by table as (layout, places), objective, bound, seconds); places: of each unit, its rank or host. With a limit on the cost the objective is
    the largest share of its capacity that a rank has. home: by table its rank and the bytes of its weights; units elsewhere take of the budget."""
    ranks = len(capacities)
    h = highspy.Highs()
    for name, value in (("output_flag", False), ("threads", 1), ("time_limit", float(limit_s)), ("mip_rel_gap", 1e-5)):
        h.setOptionValue(name, value)
    largest = h.addVariable(lb=0)
    cost, memory, host_memory = ([[] for _ in range(ranks)] for _ in range(3))
    variables, moved = [], []
    for t, of_table in enumerate(layouts):
        chosen = []
        for layout in of_table:
            use = h.addBinary()
            if layout.ranks_a_unit == ranks:
                units = [(use, range(ranks))]
            else:
                places = range(ranks) if layout.ranks_a_unit == 1 else range(ranks // local)
                units = []
                for place in places:
                    count = h.addIntegral(lb=0, ub=layout.blocks)
                    units.append((count, range(place * layout.ranks_a_unit, (place + 1) * layout.ranks_a_unit)))
                h.addConstr(h.qsum([count for count, _ in units]) == layout.blocks * use)
            for count, on in units:
                if home:
                    parts = layout.blocks * len(on)  # that the table is in
                    moved.append(home[t][1] / 2**30 * sum(1 for rank in on if rank != home[t][0]) / parts * count)
                for rank in on:
                    cost[rank].append(layout.cost_ms * count)
                    memory[rank].append(layout.bytes / 2**30 * count)
                    host_memory[rank].append(layout.host_bytes / 2**30 * count)
            chosen.append((layout, use, [count for count, _ in units]))
        h.addConstr(h.qsum([use for _, use, _ in chosen]) == 1)
        variables.append(chosen)
    for rank in range(ranks):
        h.addConstr(h.qsum(cost[rank]) <= (largest if cost_limit_ms is None else cost_limit_ms))
        h.addConstr(h.qsum(memory[rank]) <= capacities[rank] / 2**30 * (1 if cost_limit_ms is None else largest))
        if host_limit:
            h.addConstr(h.qsum(host_memory[rank]) <= 0.99999 * host_limit / 2**30)
    if home:
        h.addConstr(h.qsum(moved) <= 0.99999 * budget / 2**30)  # its tolerance is of this order
    began = time.monotonic()
    h.minimize(largest)
    seconds, info = time.monotonic() - began, h.getInfo()
    if info.primal_solution_status != 2:
        return None, math.inf, info.mip_dual_bound, seconds
    entries = []
    for chosen in variables:
        layout, _, counts = max(chosen, key=lambda of: h.val(of[1]))
        entries.append((layout, [place for place, count in enumerate(counts) for _ in range(round(h.val(count)))]))
    return entries, info.objective_function_value, info.mip_dual_bound, seconds


def plan_of(request, found, ranks, local):
    entries = []
    for table, (layout, places) in zip(request["tables"], found):
        shards = shards_of(table, layout.kind, layout.blocks, max(layout.blocks, layout.ranks_a_unit))
        for i, shard in enumerate(shards):
            shard["rank"] = i if layout.ranks_a_unit == ranks else i + places[0] * local if layout.ranks_a_unit > 1 else places[i]
        entries.append(entry(table, layout.kind, shards, layout.kernel))
    return entries


def problem_of(planner, tables, ranks, seed, host_memory=False):
    request = make_requests.request(tables, ranks, seed, host_memory)
    if host_memory:
        request["constraints"] = {"tables": [{"tables": [table["name"] for table in request["tables"]], "cache_load_factor": CACHE_LOAD_FACTOR}]}
    local = request["topology"]["hosts"][0]["num_devices"]
    layouts = [list(layouts_of(planner, request, table, ranks, local)) for table in request["tables"]]
    return request, local, layouts, int(request["topology"]["hosts"][0]["memory_bytes"] * (1 - make_requests.RESERVED_SHARE))


def compare_memory(planner, tables, ranks, seed, limit_s, tolerance):
    request, local, layouts, capacity = problem_of(planner, tables, ranks, seed)
    points, ours_s = planner.trade(request, tolerance)
    found, _, bound, seconds = solve(layouts, [capacity] * ranks, 0, local, limit_s, points[0]["cost_ms"] * (1 + tolerance))
    theirs = math.inf
    if found:
        answer = planner.evaluate(request, plan_of(request, found, ranks, local))
        if not answer["legal"]:
            raise SystemExit(f"{tables}x{ranks}, seed {seed}: HiGHS's plan breaks rules: {answer['violations'][:3]}")
        theirs = max(rank["memory"]["total_bytes"] / rank["memory"]["capacity_bytes"] for rank in answer["cost"]["ranks"])
    # The planner counts the reserve; HiGHS's shares are of what is left beside it.
    bound = make_requests.RESERVED_SHARE + bound * (1 - make_requests.RESERVED_SHARE)
    values = " | ".join(f"{point['value']:.2%} at {point['cost_ms']:.3f}" for point in points)
    ours = points[-1]["value"]
    of_theirs = (f"{theirs:.2%}", f"{ours / theirs:.4f}") if found else ("none found", "-")
    print(f"| {tables}x{ranks} | {seed} | {values} | {ours_s:.1f} | {of_theirs[0]} | {bound:.2%} | {seconds:.0f} | {of_theirs[1]} |", flush=True)
    return ours <= 1.005 * theirs


def compare(planner, tables, ranks, seed, limit_s, share, host_memory):
    request, local, layouts, capacity = problem_of(planner, tables, ranks, seed, host_memory)
    home, budget = None, None
    if share is not None:
        weights = {table["name"]: 4 * table["num_embeddings"] * table["embedding_dim"] for table in request["tables"]}
        previous, budget = planner.in_place(request), int(share * sum(weights.values()))
        home = [(table["shards"][0]["rank"], weights[table["name"]]) for table in previous["tables"]]
        request["migration"] = {"previous": previous, "budget_bytes": str(budget)}
    found, objective, bound, seconds = solve(layouts, [capacity] * ranks, host_limit_of(request), local, limit_s, home=home, budget=budget)
    theirs = math.inf
    if found:
        answer = planner.evaluate(request, plan_of(request, found, ranks, local))
        if not answer["legal"]:
            raise SystemExit(f"{tables}x{ranks}, seed {seed}: HiGHS's plan breaks rules: {answer['violations'][:3]}")
        theirs = answer["cost"]["embedding_cost_ms"]
        if not math.isclose(theirs, objective, rel_tol=1e-3):
            raise SystemExit(f"{tables}x{ranks}, seed {seed}: EvaluatePlan says {theirs} of HiGHS's plan, HiGHS {objective}")
    ours, ours_s, ours_bound = planner.plan(request, "default")
    thorough, thorough_s, _ = planner.plan(request, "thorough")
    free = f" {planner.plan({**request, 'constraints': {}}, 'default')[0]:.3f} |" if host_memory else ""
    print(f"| {tables}x{ranks} | {seed} | {theirs:.3f} | {seconds:.0f} | {bound:.3f} | {ours:.3f} | {ours_s:.2f} | {thorough:.3f} | {thorough_s:.1f} | {ours_bound:.3f} "
          f"| {ours / theirs:.4f} |{free}", flush=True)
    return ours <= theirs * (1 + TOLERANCE)


def main():
    arguments = parser(__doc__, "HiGHS")
    arguments.add_argument("--tolerance", type=float, help="of the cost, for the fullest rank")
    arguments.add_argument("--budget", type=float, help="share of the weights that may move from a plan in place")
    arguments.add_argument("--host-memory", action="store_true", help="devices hold 30 %% of the weights")
    options = arguments.parse_args()
    if (options.tolerance is not None) + (options.budget is not None) + options.host_memory > 1:
        arguments.error("--tolerance, --budget or --host-memory")
    if options.tolerance is not None:
        print("| tables x ranks | seed | fullest rank at ms: cheapest | half of the tolerance | all of it | s | HiGHS | its bound | s | ours / HiGHS |\n|---|---|---|---|---|---|---|---|---|---|")
    else:
        print("| tables x ranks | seed | HiGHS, ms | s | its bound | ours, ms | s | thorough, ms | s | our bound | ours / HiGHS |"
              + (" any caches, ms |" if options.host_memory else "") + "\n" + "|---" * (11 + options.host_memory) + "|")
    never_dearer = True
    with tempfile.TemporaryDirectory() as name, PlannerProcess(options.bin, pathlib.Path(name)) as server:
        planner = Planner(options.bin, server.address, pathlib.Path(name))
        for size in options.sizes.split(","):
            for seed in options.seeds.split(","):
                of = (planner, *map(int, size.split("x")), int(seed), options.limit_s)
                never_dearer &= compare(*of, options.budget, options.host_memory) if options.tolerance is None else compare_memory(*of, options.tolerance)
    return 0 if never_dearer else 1


if __name__ == "__main__":
    sys.exit(main())
