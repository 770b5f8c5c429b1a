"""The proposals of TorchEasyRec's planner (alibaba/TorchEasyRec, tzrec/utils/plan_util.py at 0467638, DynamicProgrammingProposer), made by numpy.

For every amount of device memory, in bins, the sharding options, one a table, of the least sum of costs whose bytes of all ranks are that much device memory and
no more host memory than there is: a knapsack in two dimensions. TorchRec's partitioner then tries each, that with the most device memory first. Bins are as
there: 100 a device and 50 of its share of host memory, 1,024 of each at most. Other than there, an option whose shard is larger than a rank's share of host
memory is left out, where TorchRec's partitioner finds no place for it: with such options none of its proposals was a plan where memory is short.
"""

import numpy
from torchrec.distributed.planner.types import Proposer

HBM_BINS_PER_DEVICE, DDR_BINS_PER_DEVICE, MOST_BINS = 100, 50, 1024


def bins_of(bins_per_device, devices, total):
    return max(1, min(bins_per_device * devices, MOST_BINS)) if total else 1


class TwoMemoriesProposer(Proposer):
    def __init__(self):
        self._options = {}  # table -> sharding options
        self._proposals = None  # numbers of options by table; None before the first feedback
        self._next = 0

    def load(self, search_space, enumerator=None):
        self.__init__()
        for option in sorted(search_space, key=lambda option: option.total_storage.hbm + option.total_storage.ddr):
            self._options.setdefault(option.fqn, []).append(option)

    def propose(self):
        if self._proposals is None:
            return [options[0] for options in self._options.values()]
        if self._next >= len(self._proposals):
            return None
        return [options[number] for options, number in zip(self._options.values(), self._proposals[self._next])]

    def feedback(self, partitionable, plan=None, perf_rating=None, storage_constraint=None):
        if self._proposals is None:
            self._proposals = list(self._solve(storage_constraint))
        else:
            self._next += 1

    def _solve(self, topology):
        memories = [(device.storage.hbm, device.storage.ddr) for device in topology.devices]
        hbm, ddr = (sum(of) for of in zip(*memories))
        largest_hbm, largest_ddr = (max(of) for of in zip(*memories))
        shape = (bins_of(HBM_BINS_PER_DEVICE, len(memories), hbm), bins_of(DDR_BINS_PER_DEVICE, len(memories), ddr))

        def in_bins(total, capacity, bins):
            return total / (capacity / bins) if capacity else 0.0

        # Of the cells that sums so far have come to: cost, and the sums themselves, of which a cell is the whole part.
        cells, cost = numpy.zeros(1, dtype=numpy.int64), numpy.zeros(1)
        used = numpy.zeros((2, 1))
        steps = []  # by table: the cells, and for each the option and the place of the cell before
        for options in self._options.values():
            best_cost = numpy.full(shape[0] * shape[1], numpy.inf)
            best_option = numpy.full(best_cost.shape, -1, dtype=numpy.int16)
            best_from = numpy.zeros(best_cost.shape, dtype=numpy.int32)
            sums = numpy.zeros((2, *best_cost.shape))
            for number, option in enumerate(options):
                if hbm and max(shard.storage.hbm for shard in option.shards) > largest_hbm:
                    continue
                if ddr and max(shard.storage.ddr for shard in option.shards) > largest_ddr:
                    continue
                then = used + [[in_bins(option.total_storage.hbm, hbm, shape[0])], [in_bins(option.total_storage.ddr, ddr, shape[1])]]
                fits = numpy.flatnonzero((then[0] < shape[0]) & (then[1] < shape[1]))
                to = then[0, fits].astype(numpy.int64) * shape[1] + then[1, fits].astype(numpy.int64)
                total = cost[fits] + option.total_perf
                fits, to, total = (each[total < best_cost[to]] for each in (fits, to, total))
                dearest_first = numpy.argsort(-total, kind="stable")  # of equal cells the last assignment counts
                fits, to, total = (each[dearest_first] for each in (fits, to, total))
                best_cost[to], best_option[to], best_from[to] = total, number, fits
                sums[:, to] = then[:, fits]
            cells = numpy.flatnonzero(best_option >= 0)
            cost, used = best_cost[cells], sums[:, cells]
            steps.append((best_option[cells], best_from[cells]))
        by_hbm = cells // shape[1]
        for level in numpy.unique(by_hbm)[::-1]:
            at = numpy.flatnonzero(by_hbm == level)
            place = at[numpy.argmin(cost[at])]
            numbers = []
            for option_of, from_ in reversed(steps):
                numbers.append(int(option_of[place]))
                place = from_[place]
            yield numbers[::-1]
