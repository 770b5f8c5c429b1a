#!/usr/bin/env python3
"""Plans requests of make_requests.py with TorchRec itself; runs in the environment that bench/pytorch/setup_environment.sh makes.

    build/pytorch/bin/python bench/torchrec/real_planner.py --size 100x8 --seeds 1,2 --out plans.json

Four settings of EmbeddingShardingPlanner: its default proposers and DynamicProgrammingProposer, each with the partitioner as it comes
and with GreedyPerfPartitioner sorting by perf. Kernels `fused` and `dense`; tables on the meta device; batch, memory, reserve and
optimizer as the request has them. Appends {size, seed, setting, seconds, plan | error} to --out after every plan, where `plan` is a Plan
as `neuroshard evaluate` reads it, and leaves out what is there already, so that it may be stopped at any time.
"""

import argparse
import json
import pathlib
import sys
import time
import warnings

import make_requests

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from fbgemm_gpu.split_embedding_configs import EmbOptimType  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy  # noqa: E402
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer  # noqa: E402
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402

SETTINGS = ("default", "default by perf", "dynamic programming", "dynamic programming by perf")


def plan(request, setting):
    host = request["topology"]["hosts"][0]
    ranks, local = host["count"] * host["num_devices"], host["num_devices"]
    tables = [
        EmbeddingBagConfig(
            name=t["name"], num_embeddings=t["num_embeddings"], embedding_dim=t["embedding_dim"], feature_names=[t["name"]]
        )
        for t in request["tables"]
    ]
    constraints = {
        t["name"]: ParameterConstraints(compute_kernels=["fused", "dense"], pooling_factors=[t["pooling_factor"]])
        for t in request["tables"]
    }
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=ranks, local_world_size=local, compute_device="cuda", hbm_cap=host["memory_bytes"]),
        batch_size=request["global_batch_size"] // ranks,
        storage_reservation=FixedPercentageStorageReservation(request["memory"]["reserve_fraction"]),
        proposer=DynamicProgrammingProposer() if setting.startswith("dynamic") else None,
        partitioner=GreedyPerfPartitioner(sort_by=SortBy.PERF) if setting.endswith("by perf") else None,
        constraints=constraints,
        stats=[],
        debug=False,
    )
    module = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD})
    found = planner.plan(module, [sharder])
    by_name = {}
    for parameters in found.plan.values():
        by_name.update(parameters)
    tables = []
    for t in request["tables"]:
        of = by_name[t["name"]]
        if of.sharding_type == "data_parallel":
            whole = {"row_offset": 0, "rows": t["num_embeddings"], "col_offset": 0, "cols": t["embedding_dim"]}
            shards = [whole | {"rank": rank} for rank in range(ranks)]
        else:
            shards = [
                {
                    "row_offset": s.shard_offsets[0],
                    "rows": s.shard_sizes[0],
                    "col_offset": s.shard_offsets[1],
                    "cols": s.shard_sizes[1],
                    "rank": s.placement.rank(),
                }
                for s in of.sharding_spec.shards
            ]
        tables.append(
            {"name": t["name"], "sharding_type": of.sharding_type, "compute_kernel": of.compute_kernel, "shards": shards}
        )
    return {"tables": tables, "world_size": ranks, "local_world_size": local}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", required=True, help="TABLESxRANKS")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.exists() else []
    tables, ranks = (int(n) for n in options.size.split("x"))
    for seed in map(int, options.seeds.split(",")):
        for setting in options.settings.split(","):
            key = {"size": options.size, "seed": seed, "setting": setting}
            if any(key.items() <= k.items() for k in known):
                continue
            began = time.monotonic()
            try:
                answer = {"plan": plan(make_requests.request(tables, ranks, seed), setting)}
            except Exception as error:  # what its user would see
                answer = {"error": f"{type(error).__name__}: {error}"}
            known.append(key | {"seconds": time.monotonic() - began} | answer)
            partial = options.out.with_suffix(".part")
            partial.write_text(json.dumps(known) + "\n")
            partial.replace(options.out)
            print(f"{options.size}, seed {seed}, {setting}: {known[-1]['seconds']:.1f} s {answer.get('error', '')}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
