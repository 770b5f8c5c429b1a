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
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer  # noqa: E402
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import Shard  # noqa: E402
from torchrec.distributed.types import ShardingType  # noqa: E402

logging.disable(logging.WARNING)

# Of EmbeddingShardingPlanner: its own proposers or DynamicProgrammingProposer, the partitioner as it comes or sorting by perf,
# grid_shard left out as it comes or listed.
SETTINGS = ("default", "default by perf", "default by perf, grid_shard listed", "dynamic programming", "dynamic programming by perf")


class Peer:
    """One request. Tables are on the meta device; kernels `fused` and `dense`; batch, memory, reserve and optimizer are the request's."""

    def __init__(self, request):
        host = request["topology"]["hosts"][0]
        self.tables = request["tables"]
        self.ranks = host["count"] * host["num_devices"]
        self.reserve = FixedPercentageStorageReservation(request["memory"]["reserve_fraction"])
        self.batch_size = request["global_batch_size"] // self.ranks
        self.topology = Topology(
            world_size=self.ranks, local_world_size=host["num_devices"], compute_device="cuda", hbm_cap=host["memory_bytes"]
        )
        configs = [
            EmbeddingBagConfig(name=t["name"], num_embeddings=t["num_embeddings"], embedding_dim=t["embedding_dim"], feature_names=[t["name"]])
            for t in self.tables
        ]
        self.module = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
        self.sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD})

    def _constraints(self, types_of):
        return {
            t["name"]: ParameterConstraints(
                compute_kernels=["fused", "dense"], pooling_factors=[t["pooling_factor"]], sharding_types=types_of(t["name"])
            )
            for t in self.tables
        }

    def plan(self, setting, limit_s):
        """The plan; after `limit_s` the best so far, which TorchRec's own limit of time sees to. Raises PlannerError where it has none."""
        listed = [t.value for t in ShardingType] if "grid_shard" in setting else None
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            batch_size=self.batch_size,
            storage_reservation=self.reserve,
            proposer=DynamicProgrammingProposer() if setting.startswith("dynamic") else None,
            partitioner=GreedyPerfPartitioner(sort_by=SortBy.PERF) if "by perf" in setting else None,
            constraints=self._constraints(lambda name: listed),
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
        return {"name": table["name"], "sharding_type": sharding.sharding_type, "compute_kernel": sharding.compute_kernel, "shards": shards}

    def rate(self, plan):
        """(cost in ms, bytes on each rank) of a plan: TorchRec's estimators and NoopPerfModel. Raises ValueError where a rank has too little memory."""
        plans = {t["name"]: t for t in plan["tables"]}
        enumerator = EmbeddingEnumerator(
            topology=self.topology, batch_size=self.batch_size, constraints=self._constraints(lambda name: [plans[name]["sharding_type"]])
        )
        options = [
            option for option in enumerator.enumerate(self.module, [self.sharder])
            if option.compute_kernel == plans[option.name]["compute_kernel"]
        ]
        assert len(options) == len(plans)
        for option in options:
            option.shards = [
                Shard(size=[s["rows"], s["cols"]], offset=[s.get("row_offset", 0), s.get("col_offset", 0)], rank=s["rank"])
                for s in plans[option.name]["shards"]
            ]
        enumerator.populate_estimates(options)
        usable = self.reserve.reserve(self.topology, self.batch_size, self.module, [self.sharder]).devices
        used = [0] * self.ranks
        for option in options:
            for shard in option.shards:
                used[shard.rank] += shard.storage.hbm
        full = [rank for rank in range(self.ranks) if used[rank] > usable[rank].storage.hbm]
        if full:
            raise ValueError(f"TorchRec's storage estimator says that ranks {full[:5]} have too little memory")
        return NoopPerfModel(self.topology).rate(options), used
