"""CacheStatistics in a request: curves of caches through which ids of a known law went, and the exponent that is read from them.

miss_ratio_curve_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import bisect

import torch
from planner_case import Case, Model, bag, bags, main, make, relay
from torchrec import KeyedJaggedTensor
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.types import ParameterConstraints, PlannerErrorType
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams, CacheStatistics

from neuroshard.torchrec import statistics
from neuroshard.torchrec.miss_ratio_curve import zipf_fit

ROWS, IDS = 2000, 2048
BATCHES, BINS = 40, 100


def curve(exponent, rows=ROWS, ids=IDS):
    """As TorchRec has it of a trace: how far back in the stack of an LRU cache the distinct ids of each batch are, of the later half of the batches."""
    generator = torch.Generator().manual_seed(34)
    weights = torch.arange(1, rows + 1, dtype=torch.float64) ** -exponent
    used, stack, clock, distances, lookups = {}, [], 0, torch.zeros(BINS), 0
    for batch in range(BATCHES):
        distinct = torch.multinomial(weights, ids, replacement=True, generator=generator).unique()
        for row in distinct[torch.randperm(len(distinct), generator=generator)].tolist():
            distance = rows - 1
            if row in used:
                at = bisect.bisect_left(stack, used[row])
                distance = len(stack) - at - 1
                stack.pop(at)
            if batch >= BATCHES // 2:
                distances[distance * BINS // rows] += 1
                lookups += 1
            clock += 1
            used[row] = clock
            stack.append(clock)
    return EmbeddingOffloadStats(cacheability=0.5, expected_lookups=lookups / (BATCHES - BATCHES // 2), mrc_hist_counts=distances, height=rows)


class Broken(CacheStatistics):
    expected_lookups, cacheability = 10.0, 0.5

    def expected_miss_rate(self, clf):
        return float("nan")


class MissRatioCurveTest(Case):
    def test_the_exponent_of_the_ids_is_found(self):
        for exponent, rows, ids in ((0.6, ROWS, IDS), (1.0, ROWS, IDS), (1.2, 5000, 1000), (0.8, 5000, 20_000)):
            found = zipf_fit(curve(exponent, rows, ids), rows, ids)
            self.assertAlmostEqual(found.exponent, exponent, delta=0.05)
            self.assertLess(found.difference, 0.2)

    def told(self, stats, **more):
        """(tables of the request, warnings) where the table `a` has the statistics."""
        constraints = {"a": ParameterConstraints(pooling_factors=[IDS / 512], cache_params=CacheParams(stats=stats))}
        with relay() as (address, service):
            planner = make(address, constraints=constraints, **more)  # a global batch of 512
            planner.plan(Model(ebc=bags(bag("a", ROWS), bag("b"))), get_default_sharders())
        return self.tables(service.requests[-1]), "\n".join(planner.response.warnings)

    def test_a_request_has_it(self):
        stats = curve(1.0)
        tables, warnings = self.told(stats)
        a, b = tables["ebc", "a"], tables["ebc", "b"]
        self.assertEqual(
            (round(a.zipf_exponent, 3), a.HasField("zipf_exponent"), b.HasField("zipf_exponent")), (zipf_fit(stats, ROWS, IDS).exponent, True, False)
        )
        self.assertRegex(warnings, r"cache_params.stats: read as ids by Zipf's law with exponent 0.9\d+, whose misses are off by up to \d+% .*: ebc.a\b")
        batch = KeyedJaggedTensor(keys=["f_a", "f_b"], values=torch.arange(4), lengths=torch.ones(4, dtype=torch.int64))
        tables, warnings = self.told(stats, statistics=statistics([batch]))
        self.assertEqual((tables["ebc", "a"].HasField("zipf_exponent"), len(tables["ebc", "a"].reuse_histogram)), (False, 17))
        self.assertRegex(warnings, "cache_params.stats: not read, since statistics= say how often ids occur: ebc.a\\b")

    def test_statistics_that_are_none_are_refused(self):
        with self.refused(PlannerErrorType.INPUT_VALIDATION, "ebc.a: cache_params.stats: expected_lookups 10 and miss rates [nan"):
            self.told(Broken())


if __name__ == "__main__":
    main()
