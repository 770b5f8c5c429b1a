"""Device memory of what is not sharded, from two real steps of a module on the CPU: a storage reservation that follows the job and not the card."""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

import torch
from torch import nn
from torchrec import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from torchrec.distributed.planner.storage_reservations import FixedAbsoluteStorageReservation
from torchrec.modules.embedding_modules import EmbeddingBagCollectionInterface, EmbeddingCollectionInterface, get_embedding_names_by_table

BATCHES_ON_DEVICE = {  # with TorchRec 1.9.2's train pipelines: the batch of the step, and those copied ahead of it
    "none": 1,  # no pipeline, one batch after the other
    "train_base": 2,  # TrainPipelineBase
    "train_sparse_dist": 3,  # TrainPipelineSparseDist
    "train_prefetch_sparse_dist": 4,  # PrefetchTrainPipelineSparseDist
}
MARGIN = 0.03  # of the sum; blocks of an allocator, and what a kernel of another device needs more


class MeasuredReservation(FixedAbsoluteStorageReservation):
    """Bytes of each device that tables cannot have; `print` gives a table. For `storage_reservation` of NeuroShardPlanner and of TorchRec's planners."""

    def __init__(self, parts: Dict[str, int], margin: float) -> None:
        super().__init__(round(sum(parts.values()) * (1 + margin)))
        self.parts = parts
        """Bytes by name: parameters (and buffers), gradients, optimizer, activations, exchanges (of vectors, and ids behind theirs), batches."""
        self.margin = margin

    @property
    def bytes(self) -> int:
        """All parts and the margin."""
        return self._hbm_reserved_bytes

    def __str__(self) -> str:
        lines = [f"{name:<11} {size / 2**20:10.1f} MiB" for name, size in self.parts.items()]
        return "\n".join([*lines, f"{'reserved':<11} {self.bytes / 2**20:10.1f} MiB, {self.margin:.0%} more than their sum"])


def reserve_from(
    module: nn.Module,
    batch: Any,
    step: Optional[Callable[[nn.Module, Any], torch.Tensor]] = None,
    optimizer: Optional[Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = None,
    pipeline: str = "train_sparse_dist",
    margin: float = MARGIN,
) -> MeasuredReservation:
    """What `module` needs of each device beside its tables, for batches like `batch`.

    A copy of the module is trained for two steps on the CPU, its embedding collections replaced by vectors of the size that they would give, so that tables
    may be on the meta device or larger than this machine; dense parameters on the meta device are made. Memory is what PyTorch's allocator counts.

    batch         one batch of one rank, on the CPU.
    step          gives the loss of a batch: step(module, batch). None: what module(batch) gives, or the first of it, as in TorchRec's pipelines.
    optimizer     makes the optimizer of the dense parameters: torch.optim.Adam. None: SGD without momentum, which has no state.
    pipeline      a key of BATCHES_ON_DEVICE: how many batches are on a device at a time.
    margin        share of the sum that is reserved besides.

    Activations include the collections' vectors. Exchanges are two more buffers of their size, since what was looked up and what was received may both be
    there when the dense part's peak comes; without a pipeline one, since the memory rule "torchrec" counts the other. They are also the ids of each batch once
    more. A job of one rank has no exchanges. Kernels of CUDA may need more working memory than those of the CPU: not measured.

    ValueError where there are no dense parameters, or `pipeline` is none of those; TypeError where a step gives no loss.
    """
    if pipeline not in BATCHES_ON_DEVICE:
        raise ValueError(f"pipeline: must be one of {', '.join(BATCHES_ON_DEVICE)}, got {pipeline!r}")
    if margin < 0:
        raise ValueError(f"margin: must not be negative, got {margin}")
    dense = dense_copy(module)
    parameters = [parameter for parameter in dense.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("module: has no parameters beside its tables; nothing need be reserved for it but batches")
    dense_optimizer = (optimizer or (lambda given: torch.optim.SGD(given, lr=0.0)))(parameters)
    _train_step(dense, batch, step, dense_optimizer)  # makes gradients and state, which stay
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profile:
        _train_step(dense, batch, step, dense_optimizer)
    vectors = sum(each.bytes for each in dense.modules() if isinstance(each, _Vectors))
    sparse = [tensor for each in _parts(batch) if isinstance(each, KeyedJaggedTensor) for tensor in _tensors(each)]
    state = [value for values in dense_optimizer.state.values() for value in values.values()]
    return MeasuredReservation(
        {
            "parameters": _bytes([*dense.parameters(), *dense.buffers()]),
            "gradients": _bytes([parameter.grad for parameter in parameters]),
            "optimizer": _bytes(state),
            "activations": peak_bytes(profile),
            "exchanges": (1 if pipeline == "none" else 2) * vectors + BATCHES_ON_DEVICE[pipeline] * _bytes(sparse),
            "batches": BATCHES_ON_DEVICE[pipeline] * _bytes(batch),
        },
        margin,
    )


def dense_copy(module: nn.Module) -> nn.Module:
    """`module` on the CPU, with vectors in the place of its embedding collections, and numbers where parameters were on the meta device."""
    collections = (EmbeddingBagCollectionInterface, EmbeddingCollectionInterface)
    tables = {id(each): _Vectors(each) for each in module.modules() if isinstance(each, collections)}
    dense = copy.deepcopy(module, memo=dict(tables))  # deepcopy takes what the memo has for an object's copy
    made: Dict[int, torch.Tensor] = {}  # by the tensor on meta, which modules may share
    for each in dense.modules():
        for name, tensor in [*each._parameters.items(), *each._buffers.items()]:
            if tensor is not None and tensor.is_meta:
                numbers = torch.rand(tensor.shape).to(tensor.dtype)
                made.setdefault(id(tensor), nn.Parameter(numbers, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else numbers)
                setattr(each, name, made[id(tensor)])
    return dense.to("cpu")


class _Vectors(nn.Module):
    """What an embedding collection gives for a batch, in memory of its own and with a gradient that is given back as a lookup's; zeros."""

    def __init__(self, collection: nn.Module) -> None:
        super().__init__()
        self._is_pooled = isinstance(collection, EmbeddingBagCollectionInterface)
        configs: Any = getattr(collection, "embedding_bag_configs" if self._is_pooled else "embedding_configs")
        self._configs: List[Any] = list(configs() if callable(configs) else configs)
        self._names: List[List[str]] = get_embedding_names_by_table(self._configs)
        self._one = torch.zeros(1, 1, requires_grad=True)

        self.bytes = 0
        """Of all vectors that were given since it was set to 0."""

    def _vectors(self, count: int, width: int) -> torch.Tensor:
        made = self._one.expand(count, width).clone()
        self.bytes += made.numel() * made.element_size()
        return made

    def forward(self, features: KeyedJaggedTensor) -> Union[KeyedTensor, Dict[str, JaggedTensor]]:
        if self._is_pooled:
            widths = [config.embedding_dim for config in self._configs for _ in config.feature_names]
            keys = [name for names in self._names for name in names]
            return KeyedTensor(keys=keys, length_per_key=widths, values=self._vectors(features.stride(), sum(widths)))
        found = features.to_dict()
        vectors = {}
        for config, names in zip(self._configs, self._names):
            for name, feature in zip(names, config.feature_names):
                ids = found[feature]
                values = self._vectors(ids.values().numel(), config.embedding_dim)
                vectors[name] = JaggedTensor(values=values, lengths=ids.lengths(), offsets=ids.offsets())
        return vectors


def _train_step(module: nn.Module, batch: Any, step: Optional[Callable[[nn.Module, Any], torch.Tensor]], optimizer: torch.optim.Optimizer) -> None:
    # As in DistributedDataParallel, whose buckets the gradients are views of, their memory is never given back.
    optimizer.zero_grad(set_to_none=False)
    for each in module.modules():
        if isinstance(each, _Vectors):
            each.bytes = 0
    loss = module(batch) if step is None else step(module, batch)
    loss = loss[0] if isinstance(loss, (tuple, list)) and loss else loss
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TypeError(f"step: must give a loss to go back from, a tensor of one number, got {what}")
    loss.backward()  # pyre-ignore[16]
    optimizer.step()


def peak_bytes(profile: torch.profiler.profile) -> int:
    """The most that was allocated beyond what there was at the beginning."""
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def _parts(value: Any, depth: int = 4) -> Iterator[Union[torch.Tensor, KeyedJaggedTensor]]:
    """Tensors and jagged tensors in a batch: containers and objects of these, `depth` of them one within the other."""
    if isinstance(value, (torch.Tensor, KeyedJaggedTensor)):
        yield value
    elif depth > 0 and not isinstance(value, (Enum, type)):
        within = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else getattr(value, "__dict__", {}).values()
        for each in list(within):
            yield from _parts(each, depth - 1)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for part in _parts(value):
        if isinstance(part, torch.Tensor):
            yield part
        else:
            yield from _parts([part.values(), part.lengths(), part.offsets(), part.weights_or_none()])


def _bytes(value: Any) -> int:
    """Of the tensors' storages, each counted once."""
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(value)}.values())
