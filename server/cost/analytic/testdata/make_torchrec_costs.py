#!/usr/bin/env python3
"""Writes torchrec_costs.csv: what the estimator of TorchRec 1.9.2 says of shards of all types.

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/python server/cost/analytic/testdata/make_torchrec_costs.py > server/cost/analytic/testdata/torchrec_costs.csv

A line is the first shard of one option of TorchRec's EmbeddingEnumerator for one table: on the meta device, compute device "cuda", default
bandwidths. samples: of one rank; pooling: mean ids a sample of each feature; times in ms.
"""

import itertools
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import torchrec  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator  # noqa: E402
from torchrec.distributed.types import ShardingType  # noqa: E402
from torchrec.modules.embedding_configs import DataType  # noqa: E402

TOPOLOGIES = ((2, 2), (8, 8), (16, 8), (24, 8), (128, 8))  # ranks, ranks a host
# rows, columns, features, pooling of each, dtype, weighted
TABLES = (
    (1_000_000, 128, 1, 20, "fp32", False),
    (1_000_000, 512, 1, 7, "fp32", False),
    (40_000, 100, 1, 1, "fp32", False),
    (100, 8, 1, 3, "fp32", False),
    (3, 16, 1, 1.5, "fp32", False),
    (250_000, 64, 3, 2.5, "fp16", False),
    (250_000, 256, 1, 50, "bf16", True),
    (250_000, 32, 2, 4, "fp32", True),
    (50_000, 64, 1, 0.25, "fp32", False),
    (50_000, 256, 2, 0.5, "fp32", True),
    (50_000, 64, 4, 0, "fp32", False),
)
TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}


def main():
    assert torchrec.__version__ == "1.9.2", torchrec.__version__
    print("type,kernel,ranks,ranks_per_host,samples,rows,columns,features,pooling,dtype,weighted,shard_rows,shard_columns,parts,"
          "forward_compute_ms,forward_comm_ms,backward_compute_ms,backward_comm_ms")
    for (ranks, local), samples, (rows, cols, features, pooling, dtype, weighted) in itertools.product(TOPOLOGIES, (512, 4096), TABLES):
        names = [f"f{i}" for i in range(features)]
        config = EmbeddingBagConfig(name="t", num_embeddings=rows, embedding_dim=cols, feature_names=names, data_type=TYPES[dtype])
        module = EmbeddingBagCollection(tables=[config], is_weighted=weighted, device=torch.device("meta"))
        constraint = ParameterConstraints(
            sharding_types=[t.value for t in ShardingType], compute_kernels=["fused", "dense"],
            pooling_factors=[pooling] * features, min_partition=min(cols, 64),
        )
        topology = Topology(world_size=ranks, local_world_size=local, compute_device="cuda")
        enumerator = EmbeddingEnumerator(topology=topology, batch_size=samples, constraints={"t": constraint})
        for option in sorted(enumerator.enumerate(module, [EmbeddingBagCollectionSharder()]), key=lambda o: o.sharding_type):
            shard = option.shards[0]
            parts = sum(1 for s in option.shards if s.offset[1] == shard.offset[1])
            perf = shard.perf
            times = [repr(float(t)) for t in (perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms)]
            print(option.sharding_type, option.compute_kernel, ranks, local, samples, rows, cols, features, pooling, dtype, int(weighted),
                  *shard.size, parts, *times, sep=",")


if __name__ == "__main__":
    sys.exit(main())
