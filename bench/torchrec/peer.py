"""TorchRec itself, asked the requests of make_requests.py: what it plans, and what its estimator says of any plan.

Imports TorchRec (bench/pytorch/setup_environment.sh). Plans are Plan messages as `neuroshard evaluate` reads them.
"""

import logging
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from fbgemm_gpu.split_embedding_configs import EmbOptimType  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator  # noqa: E402
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy  # noqa: E402
from torchrec.distributed.planner.perf_models import NoopPerfModel  # noqa: E402
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, EmbeddingOffloadScaleupProposer, UniformProposer  # noqa: E402
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats  # noqa: E402
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import Shard  # noqa: E402
from torchrec.distributed.types import CacheParams, ShardingType  # noqa: E402
from two_memories_proposer import TwoMemoriesProposer  # noqa: E402

logging.disable(logging.WARNING)

# Of EmbeddingShardingPlanner: its own proposers or DynamicProgrammingProposer, the partitioner as it comes or sorting by perf,
# grid_shard left out as it comes or listed.
SETTINGS = ("default", "default by perf", "default by perf, grid_shard listed", "dynamic programming", "dynamic programming by perf", "both memories")
# With host memory also EmbeddingOffloadScaleupProposer, for which all tables are cached, with a load factor of 0.1 at first. The last of both: what TorchEasyRec
# proposes.
HOST_SETTINGS = ("default", "default by perf", "scale-up", "scale-up by perf", "both memories")
KERNELS = ["fused", "dense"]
HOST_KERNELS = ["fused_uvm", "fused_uvm_caching"]
SCALE_UP_FROM = 0.1
DEFAULT_LOAD_FACTOR = 0.2  # torchrec/distributed/planner/constants.py: UVM_CACHING_RATIO


def offload_stats(table, samples, bins=100):
    """What the scale-up proposer asks of a table: lookups of a global batch, and the hits that its ids' Zipf law gives to caches of the hottest rows."""
    power, rows = 1 - table["zipf_exponent"], table["num_embeddings"]
    ends = torch.linspace(0, rows, bins + 1, dtype=torch.float64)[1:]
    hits = (ends.clamp(min=1) ** power - 1) / (rows**power - 1)  # the integral of k^-exponent
    histogram = torch.diff(hits, prepend=torch.zeros(1, dtype=torch.float64))
    return EmbeddingOffloadStats(float((1 - hits).mean()), round(table["pooling_factor"] * samples), histogram.float(), rows)


class Peer:
    """One request. Tables are on the meta device; kernels `fused` and `dense`, with host memory those of HOST_KERNELS besides; batch, memory, reserve and optimizer are the request's."""

    def __init__(self, request):
        host = request["topology"]["hosts"][0]
        self.tables = request["tables"]
        self.ranks = host["count"] * host["num_devices"]
        self.reserve = FixedPercentageStorageReservation(request["memory"]["reserve_fraction"])
        self.batch_size = request["global_batch_size"] // self.ranks
        self.samples = request["global_batch_size"]
        host_bytes = host.get("max_host_memory_bytes_per_device", 0)
        self.kernels = KERNELS + (HOST_KERNELS if host_bytes else [])
        self.topology = Topology(
            world_size=self.ranks, local_world_size=host["num_devices"], compute_device="cuda", hbm_cap=host["memory_bytes"], ddr_cap=host_bytes
        )
        configs = [
            EmbeddingBagConfig(name=t["name"], num_embeddings=t["num_embeddings"], embedding_dim=t["embedding_dim"], feature_names=[t["name"]])
            for t in self.tables
        ]
        self.module = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
        self.sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD})

    def _constraints(self, types_of, cache_of=lambda table: None, kernels=None):
        return {
            t["name"]: ParameterConstraints(
                compute_kernels=kernels or self.kernels, pooling_factors=[t["pooling_factor"]], sharding_types=types_of(t["name"]), cache_params=cache_of(t)
            )
            for t in self.tables
        }

    def _scale_up_constraints(self):
        def cache_of(table):
            return CacheParams(load_factor=SCALE_UP_FROM, stats=offload_stats(table, self.samples))

        return self._constraints(lambda name: None, cache_of, ["fused_uvm_caching", "dense"])

    def enumerator(self, constraints):
        return EmbeddingEnumerator(topology=self.topology, batch_size=self.batch_size, constraints=constraints)

    def plan(self, setting, limit_s):
        """The plan; after `limit_s` the best so far, which TorchRec's own limit of time sees to. Raises PlannerError where it has none."""
        listed = [t.value for t in ShardingType] if "grid_shard" in setting else None
        proposer = None
        if setting.startswith("dynamic"):
            proposer = DynamicProgrammingProposer()
        elif setting.startswith("scale-up"):
            proposer = EmbeddingOffloadScaleupProposer()
        elif setting == "both memories":
            proposer = [TwoMemoriesProposer(), UniformProposer()]
        constraints = self._scale_up_constraints() if setting.startswith("scale-up") else self._constraints(lambda name: listed)
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            batch_size=self.batch_size,
            storage_reservation=self.reserve,
            proposer=proposer,
            partitioner=GreedyPerfPartitioner(sort_by=SortBy.PERF) if "by perf" in setting else None,
            constraints=constraints,
            enumerator=self.enumerator(constraints),
            timeout_seconds=limit_s,
            stats=[],
            debug=False,
        )
        (found,) = planner.plan(self.module, [self.sharder]).plan.values()
        return {
            "tables": [self._table_plan(t, found[t["name"]]) for t in self.tables],
            "world_size": self.ranks,
            "local_world_size": self.topology.local_world_size,
        }

    def _table_plan(self, table, sharding):
        if sharding.sharding_type == "data_parallel":
            whole = {"rows": table["num_embeddings"], "cols": table["embedding_dim"]}
            shards = [whole | {"rank": rank} for rank in range(self.ranks)]
        else:
            shards = [
                {"row_offset": s.shard_offsets[0], "rows": s.shard_sizes[0], "col_offset": s.shard_offsets[1], "cols": s.shard_sizes[1],
                 "rank": s.placement.rank()}
                for s in sharding.sharding_spec.shards
            ]
        entry = {"name": table["name"], "sharding_type": sharding.sharding_type, "compute_kernel": sharding.compute_kernel, "shards": shards}
        if sharding.compute_kernel == "fused_uvm_caching":
            entry["cache_load_factor"] = (sharding.cache_params and sharding.cache_params.load_factor) or DEFAULT_LOAD_FACTOR
        return entry

    def is_planned(self, option, plan):
        return option.compute_kernel == plan["compute_kernel"]

    def rate(self, plan):
        """(cost in ms, bytes on each rank, bytes in host memory of each rank) of a plan: TorchRec's estimators and NoopPerfModel.

        Raises ValueError where a rank has too little memory.
        """
        plans = {t["name"]: t for t in plan["tables"]}

        def cache_of(table):
            factor = plans[table["name"]].get("cache_load_factor")
            return CacheParams(load_factor=factor) if factor else None

        constraints = self._constraints(lambda name: [plans[name]["sharding_type"]], cache_of)
        enumerator = self.enumerator(constraints)
        options = [option for option in enumerator.enumerate(self.module, [self.sharder]) if self.is_planned(option, plans[option.name])]
        assert len(options) == len(plans)
        for option in options:
            option.shards = [
                Shard(size=[s["rows"], s["cols"]], offset=[s.get("row_offset", 0), s.get("col_offset", 0)], rank=s["rank"])
                for s in plans[option.name]["shards"]
            ]
        enumerator.populate_estimates(options)
        usable = self.reserve.reserve(self.topology, self.batch_size, self.module, [self.sharder]).devices
        used, in_host = [0] * self.ranks, [0] * self.ranks
        for option in options:
            for shard in option.shards:
                used[shard.rank] += shard.storage.hbm
                in_host[shard.rank] += shard.storage.ddr
        full = [r for r in range(self.ranks) if used[r] > usable[r].storage.hbm or in_host[r] > usable[r].storage.ddr]
        if full:
            raise ValueError(f"TorchRec's storage estimator says that ranks {full[:5]} have too little memory")
        return NoopPerfModel(self.topology).rate(options), used, in_host
