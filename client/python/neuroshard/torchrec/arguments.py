"""Arguments of callers, checked before anything is done with them: a TypeError or ValueError of one sentence that begins with the argument's name."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, Mapping, Sequence, Tuple, Type, Union

import torch.distributed as dist
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import ShardingPlan

from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.module_tables import DYNAMIC, STAND_INS, VIRTUAL_STAND_INS, kernels_of

PATH: Tuple[Type[Any], ...] = (str, os.PathLike)


def check_type(name: str, value: Any, types: Union[Type[Any], Tuple[Type[Any], ...]], what: str) -> None:
    """`what`: what it must be, in words. None passes: it stands for what a caller left out."""
    if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
        raise TypeError(f"{name}: must be {what}, got {type(value).__name__}")


def check_plan(name: str, plan: Any, others: Tuple[Type[Any], ...] = (), what: str = "") -> None:
    if plan is None or not isinstance(plan, (ShardingPlan, *PATH, *others)):
        raise TypeError(f"{name}: must be {what}a ShardingPlan or the path of a file of save_plan, got {type(plan).__name__}")


def _check_list(name: str, values: Any, element: Type[Any], what: str) -> None:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence) or not all(isinstance(each, element) for each in values):
        raise TypeError(f"{name}: must be a list of {what}, got {values!r}")


def check_constraints(constraints: Any) -> None:
    check_type("constraints", constraints, Mapping, "a dict of ParameterConstraints by table")
    for table, constraint in (constraints or {}).items():
        if not isinstance(table, str) or not isinstance(constraint, ParameterConstraints):
            raise TypeError(f"constraints: must be a dict of ParameterConstraints by table, has {constraint!r:.80} for {table!r}")
        for field, element, what in (
            ("sharding_types", str, "sharding types, such as ['table_wise']"),
            ("compute_kernels", str, "compute kernels, such as ['fused']"),
            ("pooling_factors", Real, "numbers, one for each feature"),
            ("num_poolings", Real, "numbers, one for each feature"),
            ("batch_sizes", Integral, "integers, one for each feature"),
        ):
            if getattr(constraint, field) is not None:
                _check_list(f"constraints for {table}: {field}", getattr(constraint, field), element, what)


def check_kernels(kernels: Any) -> None:
    check_type("kernels", kernels, Mapping, "a dict, such as {'customized_kernel': 'fused'}")
    for kernel, word in (kernels or {}).items():
        for given, known in ((kernel, (*STAND_INS, *VIRTUAL_STAND_INS)), (word, (*kernels_of(""), DYNAMIC))):
            if given not in known:
                raise ValueError(f"kernels: {given!r} is not one of {', '.join(known)}")


def check_held_rows(held_rows: Any) -> None:
    check_type("held_rows", held_rows, Mapping, "a dict, such as {'users': 200_000_000}")
    for table, rows in (held_rows or {}).items():
        check_type(f"held_rows[{table!r}]", rows, Integral, "an integer, rows of all ranks")
        if rows is None or rows < 1:
            raise ValueError(f"held_rows[{table!r}]: must be at least 1, got {rows}")


def check_planner_arguments(topology: Any, batch_size: Any, constraints: Any, statistics: Any, previous: Any, cache_dir: Any, device: Any, optimizer: Any) -> None:
    for name, value in {"previous": previous, "cache_dir": cache_dir, "device": device, "optimizer": optimizer}.items():
        if isinstance(value, str) and not value:  # what an unset variable leaves
            raise ValueError(f"{name}: must not be empty: leave it out, or say None")
    check_type("topology", topology, Topology, "torchrec's Topology")
    if topology is None and not dist.is_initialized():
        raise ValueError("topology: must be given where there is no process group (torch.distributed.init_process_group) to take ranks from")
    check_type("batch_size", batch_size, Integral, "an integer, the samples of one rank")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, the samples of one rank, got {batch_size}")
    check_constraints(constraints)
    check_type("statistics", statistics, FeatureStatistics, "what neuroshard.torchrec.statistics(batches) gives")
    if previous is not None:
        check_plan("previous", previous)
    check_type("device", device, str, "a name that `neuroshard devices` lists")
    if device in ("cpu", "cuda"):
        raise ValueError(f"device: must be a name that `neuroshard devices` lists, such as 'h100-sxm'; {device!r} is the Topology's compute_device")
    check_type("optimizer", optimizer, str, "the name of an optimizer, such as 'adagrad'")
