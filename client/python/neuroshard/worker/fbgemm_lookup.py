"""FBGEMM's table-batched embedding (SplitTableBatchedEmbeddingBagsCodegen) as TorchRec's fused kernel calls it
(torchrec/distributed/batched_embedding_kernel.py), with its defaults. Imports torch: for measuring processes."""

from __future__ import annotations

import itertools
from typing import List, Sequence, Tuple

import numpy
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from .lookups import LookupBatch

LEARNING_RATE, EPSILON = 0.01, 1e-8
OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adam": EmbOptimType.ADAM,
    "partial_rowwise_adam": EmbOptimType.PARTIAL_ROWWISE_ADAM,
    "lamb": EmbOptimType.LAMB,
    "lars_sgd": EmbOptimType.LARS_SGD,
}
_WEIGHT_TYPES = {"fp32": SparseType.FP32, "fp16": SparseType.FP16, "bf16": SparseType.BF16}
_POOLING_MODES = {"sum": PoolingMode.SUM, "mean": PoolingMode.MEAN, "none": PoolingMode.NONE}
_PLACES = {"cpu": (EmbeddingLocation.HOST, ComputeDevice.CPU), "cuda": (EmbeddingLocation.DEVICE, ComputeDevice.CUDA)}


class FbgemmLookup:
    """Tables (rows, cols) of one weight dtype and pooling mode that are looked up together. One thread. FBGEMM looks up tables without pooling
    together where their cols are the same."""

    def __init__(self, tables: Sequence[Tuple[int, int]], optimizer: str, weight_dtype: str, pooling_mode: str, device: torch.device) -> None:
        self._device = device
        self._op = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, cols, *_PLACES[device.type]) for rows, cols in tables],
            optimizer=OPTIMIZERS[optimizer],
            learning_rate=LEARNING_RATE,
            eps=EPSILON,
            weights_precision=_WEIGHT_TYPES[weight_dtype],
            pooling_mode=_POOLING_MODES[pooling_mode],
            device=device,
        )
        self.vectors = torch.empty(0)

    @property
    def weights(self) -> List[torch.Tensor]:
        """By table, to be read and written."""
        return self._op.split_embedding_weights()

    def touch_memory(self, seed: int) -> None:
        """Ordinary values in all weights and zeros in the optimizer's state, written: what was never touched would be looked up from one page of zeros."""
        block = torch.empty(1 << 18, device=self._device)
        block.uniform_(-0.01, 0.01, generator=torch.Generator(self._device).manual_seed(seed & (2**63 - 1)))
        for weights in self.weights:
            for part in weights.view(-1).split(len(block)):
                part.copy_(block[: len(part)])
        for state in itertools.chain.from_iterable(self._op.split_optimizer_states()):
            state.zero_()

    def set_inputs(self, batches: Sequence[LookupBatch]) -> None:
        """One batch a table."""
        first, offsets = 0, [torch.zeros(1, dtype=torch.int64)]
        for batch in batches:
            offsets.append(torch.from_numpy(batch.offsets[1:]) + first)
            first += len(batch.ids)
        self._ids = torch.from_numpy(numpy.concatenate([batch.ids for batch in batches])).to(self._device)
        self._offsets = torch.cat(offsets).to(self._device)
        self._weights_of_ids = None
        if batches[0].weights is not None:
            self._weights_of_ids = torch.from_numpy(numpy.concatenate([batch.weights for batch in batches])).to(self._device)

    def forward(self) -> None:
        """`vectors`: [samples, cols of all tables], or without pooling [ids of all tables, cols]."""
        self.vectors = self._op(self._ids, self._offsets, self._weights_of_ids)

    def backward(self, gradient: torch.Tensor) -> None:
        """The gradient of `vectors` into weights and optimizer state, exact."""
        self.vectors.backward(gradient)
