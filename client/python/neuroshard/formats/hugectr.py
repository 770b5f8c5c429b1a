"""The arguments of `EmbeddingCollectionConfig.shard` of HugeCTR."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from neuroshard.formats.plan_file import Path, PlanFile

# The widest vector in HugeCTR's documentation.
_MAX_COLUMNS = 256


class HugeCtrPlan(NamedTuple):
    """`config.shard(plan.shard_matrix, plan.shard_strategy)`, with a compression strategy where one is wanted."""

    # The names of the tables of each GPU.
    shard_matrix: List[List[str]]
    # ("mp", [name, or (name, blocks of columns)]) and ("dp", [name]). As split_column_wise_sharding_config (embedding_collection.cpp) has it: of the
    # k GPUs of a table in F blocks the first k/F have the first block, its rows by key modulo k/F, and so on.
    shard_strategy: List[Tuple[str, List[Union[str, Tuple[str, int]]]]]


def load_hugectr(path: Path, dims: Optional[Mapping[str, int]] = None) -> HugeCtrPlan:
    """Reads what `neuroshard plan --format hugectr --out PATH` wrote.

    dims: ev_size of each table of the model, by the name of its EmbeddingTableConfig. With it a plan of another model is refused.
    Raises PlanFileError with all faults, OSError where there is no such file.
    """
    file = PlanFile(path, "neuroshard-hugectr", 1)
    names = file.tables(dims)
    matrix = file.list_of_lists("shard_matrix", file.number("num_gpus"))
    holders = {name: 0 for name in names}
    for gpu, tables in enumerate(matrix):
        if not tables:
            file.fault(f"shard_matrix[{gpu}]", "is empty, and HugeCTR wants a table on every GPU")
        here: Set[str] = set()
        for i, name in enumerate(tables):
            if not isinstance(name, str) or name not in holders:
                file.fault(f"shard_matrix[{gpu}][{i}]", f"there is no table {name!r}")
            elif name in here:
                file.fault(f"shard_matrix[{gpu}][{i}]", f"{name!r} is there twice")
            else:
                here.add(name)
                holders[name] += 1

    blocks: Dict[str, int] = {}
    strategy: List[Tuple[str, List[Union[str, Tuple[str, int]]]]] = []
    for g, group in enumerate(file.list("shard_strategy")):
        place = f"shard_strategy[{g}]"
        if not isinstance(group, list) or len(group) != 2 or group[0] not in ("mp", "dp") or not isinstance(group[1], list):
            file.fault(place, f'must be ["mp", [...]] or ["dp", [...]], got {group!r}')
            continue
        strategy.append((group[0], []))
        for i, entry in enumerate(group[1]):
            name, factor = entry if isinstance(entry, list) and len(entry) == 2 else (entry, 1)
            what = _fault_of_table(name, factor, group[0], holders, blocks, len(matrix), dims)
            if what:
                file.fault(f"{place}[1][{i}]", what)
                if isinstance(name, str):
                    blocks.setdefault(name, 1)  # said once
                continue
            blocks[name] = factor
            strategy[-1][1].append((name, factor) if factor > 1 else name)
    for name in names:
        if name not in blocks:
            file.fault("shard_strategy", f"{name!r} is missing")
        # HugeCTR names the blocks of columns so.
        for k in range(blocks.get(name, 1) if blocks.get(name, 1) > 1 else 0):
            if f"{name}_{k}" in holders:
                file.fault("tables", f"HugeCTR would name block {k} of {name!r} as the table {name}_{k}")
    file.raise_faults()
    return HugeCtrPlan(matrix, strategy)


def _fault_of_table(
    name: Any, factor: Any, kind: str, holders: Mapping[str, int], known: Mapping[str, int], num_gpus: int, dims: Optional[Mapping[str, int]]
) -> Optional[str]:
    if not isinstance(name, str) or name not in holders:
        return f"there is no table {name!r}"
    if name in known:
        return f"{name!r} is there twice"
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1 or (kind == "dp" and factor > 1):
        return f"{name!r} cannot be in {factor!r} blocks of columns"
    gpus = holders[name]
    if kind == "dp" and gpus != num_gpus:
        return f"{name!r} is on {gpus} of {num_gpus} GPUs, and a dp table is on all"
    if gpus == 0 or gpus % factor != 0:
        return f"{name!r} is on {gpus} GPUs, not as many for each of {factor} blocks of columns"
    if dims is None:
        return None
    if dims[name] % factor != 0:
        return f"the {dims[name]} columns of {name!r} cannot be cut in {factor} equal blocks"
    if kind == "mp" and dims[name] // factor > _MAX_COLUMNS:
        return f"{name!r} would have {dims[name] // factor} columns on a GPU, and HugeCTR takes at most {_MAX_COLUMNS}"
    return None
