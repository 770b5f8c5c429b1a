"""The sharding types that TorchRec 1.9.2 runs of each kind of module: sharders offer more than their modules run."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from torch import nn

# By the class of the module and the topology's compute_device. Written by module_kinds_test.py --write, which trains each on two ranks over gloo; a comment
# has what TorchRec says of the others.
RUNNABLE: Dict[str, Dict[str, Tuple[str, ...]]] = {
    "torchrec.modules.embedding_modules.EmbeddingBagCollection": {
        "cuda": ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
        "cpu": ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
    },
    # data_parallel: RuntimeError: split_with_sizes expects split_sizes to sum exactly to 4 (input tensor's size at dimension 0), b
    # table_row_wise: ValueError: Sharding not supported table_row_wise
    # table_column_wise: ValueError: Sharding not supported table_column_wise
    # grid_shard: ValueError: Sharding not supported grid_shard
    "torchrec.modules.embedding_modules.EmbeddingCollection": {
        "cuda": ("table_wise", "column_wise", "row_wise"),
        "cpu": ("table_wise", "column_wise", "row_wise"),
    },
    # table_wise: RuntimeError: table-wise sharding on a single EmbeddingBag is not supported yet
    # column_wise: AssertionError:
    # table_column_wise: AssertionError:
    "torch.nn.modules.sparse.EmbeddingBag": {
        "cuda": ("data_parallel", "row_wise", "table_row_wise", "grid_shard"),
        "cpu": ("data_parallel", "row_wise", "table_row_wise", "grid_shard"),
    },
    "torchrec.modules.fp_embedding_modules.FeatureProcessedEmbeddingBagCollection": {
        "cuda": ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
        "cpu": ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
    },
    # data_parallel: RuntimeError: Detected at least one parameter gradient is not the expected DDP bucket view with gradient_as_bu
    "torchrec.modules.fused_embedding_modules.FusedEmbeddingBagCollection": {
        "cuda": ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
        "cpu": ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"),
    },
    # data_parallel: AttributeError: 'FusedEmbeddingCollection' object has no attribute 'use_gather_select'
    # table_wise: AttributeError: 'FusedEmbeddingCollection' object has no attribute 'use_gather_select'
    # column_wise: AttributeError: 'FusedEmbeddingCollection' object has no attribute 'use_gather_select'
    # row_wise: AttributeError: 'FusedEmbeddingCollection' object has no attribute 'use_gather_select'
    # table_row_wise: ValueError: Sharding not supported table_row_wise
    # table_column_wise: ValueError: Sharding not supported table_column_wise
    # grid_shard: ValueError: Sharding not supported grid_shard
    "torchrec.modules.fused_embedding_modules.FusedEmbeddingCollection": {
        "cuda": (),
        "cpu": (),
    },
    # data_parallel: ValueError: Sharding type not supported data_parallel
    # table_wise: ValueError: Sharding type not supported table_wise
    # column_wise: ValueError: Sharding type not supported column_wise
    # row_wise: ValueError: Sharding type not supported row_wise
    # grid_shard: ValueError: Sharding type not supported grid_shard
    "torchrec.modules.embedding_tower.EmbeddingTower": {
        "cuda": ("table_row_wise", "table_column_wise"),
        "cpu": (),
    },
    # data_parallel: ValueError: Sharding type not supported data_parallel
    # table_wise: ValueError: Sharding type not supported table_wise
    # column_wise: ValueError: Sharding type not supported column_wise
    # row_wise: ValueError: Sharding type not supported row_wise
    # grid_shard: ValueError: Sharding type not supported grid_shard
    "torchrec.modules.embedding_tower.EmbeddingTowerCollection": {
        "cuda": ("table_row_wise", "table_column_wise"),
        "cpu": (),
    },
    # data_parallel: AssertionError: Only ROW_WISE sharding is supported.
    # table_wise: AssertionError: Only ROW_WISE sharding is supported.
    # column_wise: AssertionError: Only ROW_WISE sharding is supported.
    # table_row_wise: AssertionError: Only ROW_WISE sharding is supported.
    # table_column_wise: AssertionError: Only ROW_WISE sharding is supported.
    # grid_shard: AssertionError: Only ROW_WISE sharding is supported.
    "torchrec.modules.mc_embedding_modules.ManagedCollisionEmbeddingBagCollection": {
        "cuda": ("row_wise",),
        "cpu": ("row_wise",),
    },
    # data_parallel: AssertionError: Only ROW_WISE sharding is supported.
    # table_wise: AssertionError: Only ROW_WISE sharding is supported.
    # column_wise: AssertionError: Only ROW_WISE sharding is supported.
    # table_row_wise: ValueError: Sharding not supported table_row_wise
    # table_column_wise: ValueError: Sharding not supported table_column_wise
    # grid_shard: ValueError: Sharding not supported grid_shard
    "torchrec.modules.mc_embedding_modules.ManagedCollisionEmbeddingCollection": {
        "cuda": ("row_wise",),
        "cpu": ("row_wise",),
    },
}

# Of quantised modules, what create_infer_embedding_bag_sharding and create_infer_embedding_sharding make (torchrec/distributed/quant_embeddingbag.py,
# quant_embedding.py), for CUDA by their source alone. serving_test.py serves each on CPUs.
SERVABLE: Dict[str, Dict[str, Tuple[str, ...]]] = {
    "torchrec.quant.embedding_modules.EmbeddingBagCollection": {
        "cuda": ("table_wise", "row_wise", "column_wise"),
        "cpu": ("table_wise", "row_wise", "column_wise"),
    },
    "torchrec.quant.embedding_modules.EmbeddingCollection": {
        "cuda": ("table_wise", "row_wise", "column_wise"),
        "cpu": ("table_wise", "row_wise"),
    },
}


def runnable_types(module: nn.Module, compute_device: str) -> Optional[Tuple[str, ...]]:
    """Those of the module's class, or of the nearest that it is derived from; None: of a kind, or on a device, that was not tried."""
    for kind in type(module).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        tried = RUNNABLE.get(name) or SERVABLE.get(name)
        if tried is not None:
            return tried.get(compute_device)
    return None
