#!/usr/bin/env python3
"""Writes torchrec_costs.csv: what the estimators of TorchRec 1.9.2 say of shards of all types.

    bench/pytorch/setup_environment.sh
    build/pytorch/bin/python server/cost/analytic/testdata/make_torchrec_costs.py > server/cost/analytic/testdata/torchrec_costs.csv

A line is the first shard of one option of TorchRec's EmbeddingEnumerator for one table: on the meta device, compute device "cuda", default
bandwidths. samples: of one rank. pooling, num_poolings and batch_sizes: of each feature, ids a bag, bags a sample and samples of one rank, with
semicolons; empty: 1 and `samples`. dtype: of the tensor; EmbeddingBagCollection itself makes 16 bits of whatever is not fp32. comms: precisions
of a QCommsConfig. Times in ms; prefetch_ms: for FETCHED_ROWS rows that are not in the cache. device_bytes, host_bytes and ssd_bytes: Storage.hbm,
ddr and ssd. max_l1_mib: KeyValueParams.max_l1_cache_size; empty: no KeyValueParams.
"""

import itertools
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import torchrec  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, optim  # noqa: E402
from torchrec.distributed.embedding import EmbeddingCollectionSharder  # noqa: E402
from torchrec.distributed.embedding_types import EmbeddingComputeKernel  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry  # noqa: E402
from torchrec.distributed.planner import ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator  # noqa: E402
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator  # noqa: E402
from torchrec.distributed.types import CacheParams, CacheStatistics, KeyValueParams, PipelineType, ShardingType  # noqa: E402
from torchrec.modules.embedding_configs import DataType  # noqa: E402

FETCHED_ROWS = 250
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
UNPOOLED, POOLED = "embedding", "embedding_bag"
HOST = ["fused_uvm", "fused_uvm_caching"]
SSD = ["key_value"]
# What a request can say besides, over a table each.
SMALL = {"rows": 1_003, "cols": 64, "pooling": [3.5]}
LARGE = {"rows": 40_000_001, "cols": 132, "pooling": [12]}
SHARED = {"rows": 50_000, "cols": 128, "pooling": [0.25, 6, 1.5]}
CASES = (
    *({"kind": UNPOOLED, **table} for table in (SMALL, LARGE, SHARED)),
    {"kind": UNPOOLED, "weighted": True, "dtype": "fp16", **SHARED},
    *({"kernels": HOST, "load_factor": factor, **table} for table in (SMALL, LARGE) for factor in (0.07, 0.2, 1 / 3, 0.95)),
    {"kernels": HOST, "load_factor": 0.2, "kind": UNPOOLED, **SMALL},
    *({"kernels": ["fused", "dense", *HOST], "load_factor": 0.123, "pipeline": pipeline, "optimizer": "RowWiseAdagrad", **table}
      for table in (SMALL, LARGE, SHARED) for pipeline in ("train_sparse_dist", "train_prefetch_sparse_dist")),
    {"kernels": HOST, "load_factor": 0.3, "pipeline": "train_prefetch_sparse_dist", "kind": UNPOOLED, **LARGE},
    *({"kernels": ["fused", *HOST], "load_factor": 0.31, "optimizer": optimizer, **SMALL}
      for optimizer in ("SGD", "Adagrad", "RowWiseAdagrad", "Adam", "PartialRowWiseAdam", "LAMB", "LarsSGD")),
    *({"dtype": dtype, "kernels": ["fused", "dense", "fused_uvm_caching"], "load_factor": 0.2, "optimizer": "Adagrad", **SMALL}
      for dtype in ("fp8", "int8", "bf16")),
    *({"output_dtype": output, "dtype": dtype, **SHARED} for output, dtype in (("fp32", "fp16"), ("bf16", "fp32"), ("int8", "fp32"), ("fp8", "fp16"), ("int4", "fp32"), ("int2", "fp16"))),
    *({"comms": comms, "kind": kind, "dtype": dtype, **SHARED} for comms in (("fp16", "bf16"), ("fp8", "fp8"), ("int8", "fp32"), ("fp32", "fp16"))
      for kind in (POOLED, UNPOOLED) for dtype in ("fp32", "fp16")),
    {"num_poolings": [4], **SMALL},
    {"num_poolings": [2, 1, 3], **SHARED},
    {"num_poolings": [2, 0.5, 0], "kind": UNPOOLED, **SHARED},
    {"batch_sizes": [256, 1024, 128], **SHARED},
    {"batch_sizes": [256, 1024, 128], "num_poolings": [4, 0.5, 2], **SHARED},
    {"batch_sizes": [256, 1024, 128], "kind": UNPOOLED, "weighted": True, **SHARED},
    *({"kernels": SSD, "load_factor": factor, "max_l1_mib": most, **table}
      for table in (SMALL, LARGE) for factor in (0.07, 1 / 3, 0.95) for most in (None, 0, 1, 700, 1 << 20)),
    *({"kernels": SSD, "load_factor": 0.2, "max_l1_mib": 64, "optimizer": optimizer, "dtype": dtype, **SHARED}
      for optimizer in ("SGD", "RowWiseAdagrad", "Adam", "PartialRowWiseAdam") for dtype in ("fp32", "fp16")),
    *({"kernels": SSD, "load_factor": 0.123, "max_l1_mib": 700, "pipeline": pipeline, "optimizer": "RowWiseAdagrad", **LARGE}
      for pipeline in ("train_sparse_dist", "train_prefetch_sparse_dist")),
    {"kernels": SSD, "load_factor": 0.2, "max_l1_mib": 700, "kind": UNPOOLED, **LARGE},
)
# ranks, ranks a host, hosts of a pod; pods alone have more than one case of their own.
CASE_TOPOLOGIES = ((4, 4, None), (16, 8, None), (64, 8, 4))
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16, "fp8": DataType.NFP8, "int8": DataType.INT8, "int4": DataType.INT4, "int2": DataType.INT2}
COLUMNS = (
    "kind,type,kernel,load_factor,pipeline,ranks,ranks_per_host,pod_size,samples,rows,columns,pooling,num_poolings,batch_sizes,dtype,output_dtype,"
    "forward_comm_dtype,backward_comm_dtype,optimizer,weighted,shard_rows,shard_columns,parts,"
    "forward_compute_ms,forward_comm_ms,backward_compute_ms,backward_comm_ms,prefetch_ms,device_bytes,host_bytes,max_l1_mib,ssd_bytes")


class FetchedRows(CacheStatistics):
    expected_lookups = 4 * FETCHED_ROWS
    cacheability = 0.5

    def expected_miss_rate(self, clf):
        return 0.25


def joined(values):
    return ";".join(str(value) for value in values or [])


def print_options(ranks, local, pod, samples, case):
    rows, cols, pooling = case["rows"], case["cols"], case["pooling"]
    unpooled, weighted, dtype = case.get("kind", POOLED) == UNPOOLED, case.get("weighted", False), case.get("dtype", "fp32")
    pipeline, factor, output = case.get("pipeline", "none"), case.get("load_factor"), case.get("output_dtype")
    most, on_ssd = case.get("max_l1_mib"), case.get("kernels") == SSD
    table = {"name": "t", "num_embeddings": rows, "embedding_dim": cols, "feature_names": [f"f{i}" for i in range(len(pooling))]}
    if unpooled:
        module = EmbeddingCollection(tables=[EmbeddingConfig(**table)], device=torch.device("meta"))
        owner = module.embeddings["t"]
    else:
        module = EmbeddingBagCollection(tables=[EmbeddingBagConfig(**table)], is_weighted=weighted, device=torch.device("meta"))
        owner = module.embedding_bags["t"]
    owner.weight = torch.nn.Parameter(torch.empty(rows, cols, dtype=DTYPES[dtype], device="meta"), requires_grad=False)
    if "optimizer" in case:
        owner.weight._optimizer_classes = [getattr(optim, case["optimizer"])]
    prefetches = pipeline == "train_prefetch_sparse_dist"
    constraints = {"t": ParameterConstraints(
        sharding_types=[t.value for t in ShardingType], compute_kernels=case.get("kernels", ["fused", "dense"]), min_partition=min(cols, 64),
        pooling_factors=pooling, num_poolings=case.get("num_poolings"), batch_sizes=case.get("batch_sizes"), is_weighted=weighted,
        output_dtype=DATA_TYPES[output] if output else None, key_value_params=None if most is None else KeyValueParams(max_l1_cache_size=most),
        cache_params=CacheParams(load_factor=factor, prefetch_pipeline=prefetches, stats=FetchedRows() if prefetches else None) if factor else None)}
    topology = Topology(world_size=ranks, local_world_size=local, compute_device="cuda", pod_size=pod)
    storage = EmbeddingStorageEstimator(topology=topology, constraints=constraints, pipeline_type=PipelineType(pipeline))
    enumerator = EmbeddingEnumerator(topology=topology, batch_size=samples, constraints=constraints,
                                     estimator=[EmbeddingPerfEstimator(topology=topology, constraints=constraints), storage])
    forward, backward = case.get("comms", ("", ""))
    codecs = get_qcomm_codecs_registry(QCommsConfig(CommType(forward), CommType(backward))) if forward else None
    sharder = EmbeddingCollectionSharder if unpooled else EmbeddingBagCollectionSharder
    # The storage estimator takes the share of the cache of rows on SSD from here alone.
    fused_params = {"cache_load_factor": factor} if on_ssd else None
    options = enumerator.enumerate(module, [sharder(fused_params=fused_params, qcomm_codecs_registry=codecs)])
    for option in sorted(options, key=lambda o: (o.sharding_type, o.compute_kernel)):
        shard = option.shards[0]
        parts = sum(1 for s in option.shards if s.offset[1] == shard.offset[1])
        perf = shard.perf
        times = [repr(float(t)) for t in (perf.fwd_compute, perf.fwd_comms, perf.bwd_compute, perf.bwd_comms, perf.prefetch_compute)]
        cached = option.compute_kernel in (EmbeddingComputeKernel.FUSED_UVM_CACHING.value, *SSD)
        print(case.get("kind", POOLED), option.sharding_type, option.compute_kernel, factor if cached else 0, pipeline, ranks, local, pod or 1,
              samples, rows, cols, joined(pooling), joined(case.get("num_poolings")), joined(case.get("batch_sizes")), dtype, output or "", forward,
              backward, case.get("optimizer", ""), int(weighted), *shard.size, parts, *times, shard.storage.hbm, shard.storage.ddr,
              "" if most is None else most, shard.storage.ssd, sep=",")


def main():
    assert torchrec.__version__ == "1.9.2", torchrec.__version__
    print(COLUMNS)
    for (ranks, local), samples, (rows, cols, features, pooling, dtype, weighted) in itertools.product(TOPOLOGIES, (512, 4096), TABLES):
        print_options(ranks, local, None, samples, {"rows": rows, "cols": cols, "pooling": [pooling] * features, "dtype": dtype, "weighted": weighted})
    for (ranks, local, pod), case in itertools.product(CASE_TOPOLOGIES, CASES):
        print_options(ranks, local, pod, 512, case)
    for pod, table in itertools.product((2, 4), (SMALL, SHARED)):
        print_options(16, 4, pod, 512, table)


if __name__ == "__main__":
    sys.exit(main())
