"""Plans for NVIDIA Merlin distributed-embeddings 1.0."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from neuroshard.formats.plan_file import Path, PlanFile


class Slice(NamedTuple):
    """Columns of a table on one rank."""

    table_id: int
    column_offset: int
    columns: int


class DistributedEmbeddingsPlan(NamedTuple):
    """A plan in the terms of DistEmbeddingStrategy (dist_model_parallel.py). A table's id is its position in `tables`, which is that of its layer in
    DistributedEmbedding(embeddings)."""

    world_size: int
    tables: List[str]
    # As DistEmbeddingStrategy.table_groups: ids of tables on every rank, of those in `slices`, and of those cut in rows over all ranks.
    table_groups: List[List[int]]
    # Of each rank, in the order of its local tables. A table's slices take its columns from 0 on in the order of ranks.
    slices: List[List[Slice]]

    def strategy_class(self, base: Any) -> Any:
        """DistEmbeddingStrategy with this plan in place of its own choices:

            from distributed_embeddings.python.layers import dist_model_parallel as dmp
            dmp.DistEmbeddingStrategy = plan.strategy_class(dmp.DistEmbeddingStrategy)
            layer = dmp.DistributedEmbedding(embeddings)       # with dp_input=True, its default, where tables are in group 0 or 2

        Thresholds and `strategy` of DistributedEmbedding have no effect then. Its set_weights takes tables whose slices are equal (the first ones a
        column wider where they cannot be) and no others; training and get_weights take all. Raises ValueError, when the layer is made, for other ranks or
        tables.
        """
        plan = self
        widths = self._widths()
        position = {table_id: i for i, table_id in enumerate(self.table_groups[1])}  # in its group, which is how DistEmbeddingStrategy counts there

        class PlannedStrategy(base):  # type: ignore[misc]
            def __init__(self, embeddings: Sequence[Any], world_size: int, *arguments: Any, **options: Any):
                plan.check(world_size, [embedding.get_config()["output_dim"] for embedding in embeddings])
                super().__init__(embeddings, world_size, *arguments, **options)

            def init_table_groups(self, configs: Sequence[Any]) -> List[List[int]]:
                return [list(group) for group in plan.table_groups]

            def create_col_sliced_configs(self, configs: Sequence[Dict[str, Any]], world_size: int, threshold: Any, input_table_map: Sequence[int]) -> Any:
                sliced = [[{**config, "output_dim": columns} for columns in widths[table]] for table, config in zip(plan.table_groups[1], configs)]
                # Outputs [first, end) of an input are the slices of its table.
                ranges = [[i, i + len(sliced[table])] for i, table in enumerate(input_table_map) if len(sliced[table]) > 1]
                return sliced, ranges

            def apply_strategy(self, mode: str, world_size: int, sliced_configs: Any) -> List[List[int]]:
                return [[position[entry.table_id] for entry in rank] for rank in plan.slices]

        return PlannedStrategy

    def check(self, world_size: int, dims: Sequence[int]) -> None:
        """Raises ValueError where the plan is not for `world_size` ranks and tables of `dims` columns."""
        if world_size != self.world_size:
            raise ValueError(f"the plan is for {self.world_size} ranks, and there are {world_size}")
        if len(dims) != len(self.tables):
            raise ValueError(f"the plan is for {len(self.tables)} tables, and there are {len(dims)}")
        for table_id, columns in self._widths().items():
            if sum(columns) != dims[table_id]:
                raise ValueError(f"the plan has {sum(columns)} columns of table {table_id} ({self.tables[table_id]!r}), and it has {dims[table_id]}")

    def _widths(self) -> Dict[int, List[int]]:
        """Columns of the slices of each table in `slices`, in the order of ranks."""
        widths: Dict[int, List[int]] = {}
        for rank in self.slices:
            for entry in rank:
                widths.setdefault(entry.table_id, []).append(entry.columns)
        return widths


def load_distributed_embeddings(path: Path, dims: Optional[Mapping[str, int]] = None) -> DistributedEmbeddingsPlan:
    """Reads what `neuroshard plan --format distributed_embeddings --out PATH` wrote.

    dims: output_dim of each table of the model by its name, in the order of the layers. With it a plan of another model is refused.
    Raises PlanFileError with all faults, OSError where there is no such file.
    """
    file = PlanFile(path, "neuroshard-distributed-embeddings", 1)
    names = file.tables(dims)
    if dims is not None and list(dims) != names:
        file.fault("tables", "are those of the model in another order, and ids are positions")
    world_size = file.number("world_size")
    table_ids = file.list_of_lists("table_ids", world_size)
    columns = file.list_of_lists("columns", world_size)

    place_of: Dict[int, str] = {}
    groups: List[List[int]] = [[], [], []]
    for group, key in ((0, "data_parallel"), (2, "row_slice")):
        for i, table_id in enumerate(file.list(key)):
            if _is_id(file, f"{key}[{i}]", table_id, names):
                _place(file, place_of, table_id, f"{key}[{i}]", names)
                groups[group].append(table_id)
        if groups[group] and world_size == 1:
            file.fault(key, "one rank has no such tables")

    slices: List[List[Slice]] = []
    taken: Dict[int, int] = {}
    for rank, (ids, widths) in enumerate(zip(table_ids, columns)):
        slices.append([])
        if len(ids) != len(widths):
            file.fault(f"columns[{rank}]", f"has {len(widths)} entries, and table_ids[{rank}] {len(ids)}")
        here: Set[int] = set()
        for i, (table_id, width) in enumerate(zip(ids, widths)):
            place = f"table_ids[{rank}][{i}]"
            if not _is_id(file, place, table_id, names):
                continue
            if not isinstance(width, int) or isinstance(width, bool) or width < 1:
                file.fault(f"columns[{rank}][{i}]", f"must be an integer of at least 1, got {width!r}")
                continue
            if table_id in here:
                file.fault(place, f"table {table_id} ({names[table_id]!r}) is on rank {rank} twice")
            elif table_id not in taken:
                _place(file, place_of, table_id, place, names)
            here.add(table_id)
            slices[-1].append(Slice(table_id, taken.get(table_id, 0), width))
            taken[table_id] = taken.get(table_id, 0) + width
    groups[1] = sorted(taken)
    for rank, entries in enumerate(slices):
        if taken and not entries:
            file.fault(f"table_ids[{rank}]", "is empty, and distributed-embeddings wants a table or slice on every rank")
    for table_id, name in enumerate(names):
        if table_id not in place_of:
            file.fault("table_ids", f"table {table_id} ({name!r}) is nowhere")
        elif dims is not None and table_id in taken and taken[table_id] != dims[name]:
            file.fault("columns", f"of table {table_id} ({name!r}) are {taken[table_id]}, and the model has {dims[name]}")
    file.raise_faults()
    return DistributedEmbeddingsPlan(world_size, names, groups, slices)


def _is_id(file: PlanFile, place: str, table_id: Any, names: Sequence[str]) -> bool:
    if isinstance(table_id, int) and not isinstance(table_id, bool) and 0 <= table_id < len(names):
        return True
    file.fault(place, f"must be a table's id, 0 to {len(names) - 1}, got {table_id!r}")
    return False


def _place(file: PlanFile, place_of: Dict[int, str], table_id: int, place: str, names: Sequence[str]) -> None:
    if table_id in place_of:
        file.fault(place, f"table {table_id} ({names[table_id]!r}) is also {place_of[table_id]}")
    place_of.setdefault(table_id, place)
