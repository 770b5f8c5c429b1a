"""FBGEMM's lookup on a CUDA device that is not there: its tensors have shapes and no memory."""

import types
from unittest import mock

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen


def lookup_on_meta(tables, **settings):
    """Of tables (rows, cols, EmbeddingLocation), on a device that has room for them."""
    with mock.patch("torch.cuda.get_device_properties", lambda _: types.SimpleNamespace(total_memory=1 << 50)), mock.patch(
        "torch.cuda.memory_reserved", lambda _: 0
    ), mock.patch("torch.cuda.current_device", lambda: 0):
        specs = [(*table, ComputeDevice.CUDA) for table in tables]
        return SplitTableBatchedEmbeddingBagsCodegen(specs, device=torch.device("meta"), **settings)
