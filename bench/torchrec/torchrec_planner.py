"""TorchRec 1.4's default planner, re-implemented from its documented behaviour: every proposer's every proposal is
partitioned by GreedyPerfPartitioner and rated by NoopPerfModel; the first of the cheapest is the plan.

This is not TorchRec's code. What makes it credible as a baseline: torchrec_planner_test.py (TorchRec's own test values
of costs, shapes, memory and placements), and compare.py, which has its plans checked and priced by the planner service.
"""

import dataclasses
import math
import sys
import time

import torchrec_costs as costs

# In the order in which EmbeddingBagCollectionSharder names them on a GPU; grid_shard only where a caller lists it.
DEFAULT_TYPES = ("data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise")
MAX_GRID_PROPOSALS = 10_000


class DoesNotFit(Exception):
    pass


@dataclasses.dataclass
class Option:
    """One way to shard one table; perfs and hbms by shard."""

    table: costs.Table
    sharding_type: str
    shapes: list
    perfs: list  # tuples (fwd_compute, fwd_comms, bwd_compute, bwd_comms)
    hbms: list
    dependency: str = None  # placed together, on one host

    def __post_init__(self):
        self.totals = [total(perf) for perf in self.perfs]
        self.storage = (max(self.hbms), sum(self.hbms))
        self.group = self.dependency or self.table.name


def total(perf):
    fwd_compute, fwd_comms, bwd_compute, bwd_comms = perf
    return fwd_compute + bwd_compute + fwd_comms + bwd_comms


def enumerate_options(tables, topology, batch_size, types=DEFAULT_TYPES):
    options = []
    for table in tables:
        for kind in types:
            shapes = costs.shard_shapes(table, kind, topology)
            options.append(
                Option(
                    table,
                    kind,
                    shapes,
                    [costs.shard_perf(table, kind, r, c, batch_size, topology) for _, r, _, c in shapes],
                    [costs.shard_hbm(table, kind, r, c, batch_size, topology) for _, r, _, c in shapes],
                )
            )
    return options


# --- proposers -----------------------------------------------------------------------------------------------------


def by_table(options):
    tables = {}
    for option in options:
        tables.setdefault(option.table.name, []).append(option)
    return tables


def grid_proposals(options):
    tables = list(by_table(options).values())
    if math.prod(len(t) for t in tables) > MAX_GRID_PROPOSALS:
        return
    choice = [0] * len(tables)
    while True:
        yield [t[c] for t, c in zip(tables, choice)]
        for i in reversed(range(len(tables))):
            choice[i] += 1
            if choice[i] < len(tables[i]):
                break
            choice[i] = 0
        else:
            return


def greedy_proposals(options, use_depth):
    """From the fastest option of every table on; each step takes the next one of the table whose present option needs
    most memory (largest shard, then sum; ties: the first)."""
    key = (lambda o: max(o.totals)) if use_depth else (lambda o: sum(o.totals))
    tables = [sorted(t, key=key) for t in by_table(options).values()]
    at = [0] * len(tables)
    while True:
        yield [t[i] for t, i in zip(tables, at)]
        largest, largest_storage = None, (0, 0)
        for t, i in enumerate(at):
            if i + 1 < len(tables[t]) and tables[t][i].storage > largest_storage:
                largest, largest_storage = t, tables[t][i].storage
        if largest is None:
            return
        at[largest] += 1


def uniform_proposals(options):
    """One proposal a sharding type that every table has."""
    tables = by_table(options)
    kinds = {}
    for option in options:
        kinds.setdefault(option.sharding_type, []).append(option)
    for proposal in kinds.values():
        if len(proposal) == len(tables):
            yield proposal


PROPOSERS = {
    "grid": grid_proposals,
    "greedy_depth": lambda options: greedy_proposals(options, use_depth=True),
    "greedy_sum": lambda options: greedy_proposals(options, use_depth=False),
    "uniform": uniform_proposals,
}


# --- partitioner ---------------------------------------------------------------------------------------------------


class Ranks:
    """What a partition has put on each rank. Times are kept by kind, since the order of additions decides last bits."""

    def __init__(self, topology, hbm_bytes):
        self.local = topology.local_world_size
        self.perf = [(0.0, 0.0, 0.0, 0.0)] * topology.world_size
        self.total = [0.0] * topology.world_size
        self.free = [hbm_bytes] * topology.world_size

    def hosts(self):
        return [range(first, first + self.local) for first in range(0, len(self.perf), self.local)]

    def save(self, ranks):
        return [(r, self.perf[r], self.total[r], self.free[r]) for r in ranks]

    def restore(self, saved):
        for rank, perf, rank_total, free in saved:
            self.perf[rank], self.total[rank], self.free[rank] = perf, rank_total, free

    def put(self, rank, perf, hbm):
        if hbm > self.free[rank]:
            raise DoesNotFit
        a, b = self.perf[rank], perf
        self.perf[rank] = sums = (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])
        self.total[rank] = total(sums)
        self.free[rank] -= hbm

    def put_one_each(self, option, ranks):
        for rank, perf, hbm in zip(ranks, option.perfs, option.hbms):
            self.put(rank, perf, hbm)
        return list(ranks)

    def put_on_fastest(self, option, ranks):
        """Each shard on the rank with the least time among those with room (ties: rank on its host, then rank)."""
        placed = []
        for perf, hbm in zip(option.perfs, option.hbms):
            fits = [(self.total[r], r % self.local, r) for r in ranks if self.free[r] >= hbm]
            if not fits:
                raise DoesNotFit
            rank = min(fits)[2]
            self.put(rank, perf, hbm)
            placed.append(rank)
        return placed

    def put_on_host(self, options):
        """The group on the first host, by time so far, that takes all of it."""
        needed = sum(sum(option.hbms) for option in options)
        for host in sorted(self.hosts(), key=lambda h: sum(self.total[r] for r in h)):
            if sum(self.free[r] for r in host) < needed:
                continue
            saved = self.save(host)
            try:
                return [
                    self.put_one_each(o, host) if o.sharding_type == "table_row_wise" else self.put_on_fastest(o, host)
                    for o in options
                ]
            except DoesNotFit:
                self.restore(saved)
        raise DoesNotFit

    def put_on_hosts(self, option):
        """grid_shard: as many hosts as column blocks, the window of hosts by time so far that fits first."""
        hosts = sorted(self.hosts(), key=lambda h: sum(self.total[r] for r in h))
        wanted = len(option.perfs) // self.local
        if wanted * self.local != len(option.perfs) or wanted > len(hosts):
            raise DoesNotFit
        for first in range(len(hosts) - wanted + 1):
            ranks = [r for host in hosts[first : first + wanted] for r in host]
            saved = self.save(ranks)
            try:
                return self.put_one_each(option, ranks)
            except DoesNotFit:
                self.restore(saved)
        raise DoesNotFit


def partition(proposal, topology, hbm_bytes):
    """(rating, ranks of each option's shards); raises DoesNotFit. GreedyPerfPartitioner, sorted by storage."""
    ranks = Ranks(topology, hbm_bytes)
    everyone = range(topology.world_size)
    placed = {}
    groups = {}
    for option in proposal:
        if option.sharding_type in ("row_wise", "data_parallel"):
            placed[id(option)] = ranks.put_one_each(option, everyone)
        else:
            groups.setdefault(option.group, []).append(option)
    largest_first = sorted(groups.values(), key=lambda g: sum(sum(o.hbms) for o in g), reverse=True)
    for group in largest_first:
        if group[0].sharding_type in ("table_row_wise", "table_column_wise"):
            for option, where in zip(group, ranks.put_on_host(group)):
                placed[id(option)] = where
        else:
            for option in group:
                grid = option.sharding_type == "grid_shard"
                placed[id(option)] = (
                    ranks.put_on_hosts(option) if grid else ranks.put_on_fastest(option, everyone)
                )
    return max(ranks.total), [placed[id(option)] for option in proposal]


# --- the planner's loop --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    rating_ms: float
    proposer: str
    options: list
    ranks: list
    proposals: int
    feasible: int
    seconds: float
    best_of: dict  # rating of each proposer's best


def plan(tables, topology, batch_size, hbm_bytes, types=DEFAULT_TYPES, proposers=PROPOSERS, progress=None):
    """The cheapest plan, or None. hbm_bytes is what a rank may use, after reservations."""
    started = time.monotonic()
    options = enumerate_options(tables, topology, batch_size, types)
    best, best_of, seen, proposals, feasible = None, {}, set(), 0, 0
    for name, propose in proposers.items():
        for proposal in propose(options):
            key = tuple(sorted(map(id, proposal)))
            if key in seen:
                continue
            seen.add(key)
            proposals += 1
            if progress is not None and proposals % 50 == 0:
                print(f"\r{progress}: {name}, {proposals} proposals", end="", file=sys.stderr, flush=True)
            try:
                rating, ranks = partition(proposal, topology, hbm_bytes)
            except DoesNotFit:
                continue
            feasible += 1
            best_of[name] = min(best_of.get(name, math.inf), rating)
            if best is None or rating < best[0]:
                best = (rating, name, proposal, ranks)
    if progress is not None:
        print(file=sys.stderr)
    if best is None:
        return None
    return Result(*best, proposals, feasible, time.monotonic() - started, best_of)


def as_plan(result, topology):
    """The plan in the planner service's JSON form."""
    tables = []
    for option, ranks in zip(result.options, result.ranks):
        shards = [
            {"row_offset": row, "rows": rows, "col_offset": col, "cols": cols, "rank": rank}
            for (row, rows, col, cols), rank in zip(option.shapes, ranks)
        ]
        tables.append(
            {
                "name": option.table.name,
                "sharding_type": option.sharding_type,
                "compute_kernel": costs.KERNEL.get(option.sharding_type, "fused"),
                "shards": shards,
            }
        )
    return {
        "world_size": topology.world_size,
        "local_world_size": topology.local_world_size,
        "tables": tables,
    }
