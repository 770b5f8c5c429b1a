"""Plans in files: TorchRec's serialised form, as `neuroshard plan --format torchrec` prints it and ShardingPlan._serialize() makes it."""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from torch import nn
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import EnumerableShardingSpec, ModuleSharder, ShardingPlan

from neuroshard.torchrec.arguments import PATH, check_constraints, check_type
from neuroshard.torchrec.layout import Layout, ShardRect, TableLayout, check_layout, chosen_options, kernel_of, load_factor_of, make_table, tell_dynamicemb, with_modules
from neuroshard.torchrec.module_tables import DATA_PARALLEL, HOST_KERNELS, ModuleTable, TableEnumerator, label

logger: logging.Logger = logging.getLogger(__name__)

FORMAT = "neuroshard-torchrec/1"  # of a file without "format" as well, which the command line and TorchRec write
MAX_BYTES = 1 << 30

_PLACEMENT = re.compile(r"rank:(\d+)/([a-z]+)(?::\d+)?$")
_TABLE_KEYS = {"sharding_type", "compute_kernel", "cache_load_factor", "ranks", "shards"}
_SHARD_KEYS = {"shard_offsets", "shard_sizes", "placement"}

PathLike = Union[str, "os.PathLike[str]"]


def write_whole(path: PathLike, text: str) -> None:
    """The file appears complete or not at all: a temporary one beside it is written, synced and renamed."""
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder_descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)


def layout_as_json(plan: ShardingPlan) -> Dict[str, Any]:
    modules: Dict[str, Any] = {}
    for path, module_plan in plan.plan.items():
        modules[path] = {}
        for name, parameter in module_plan.items():  # type: ignore[attr-defined]
            spec = parameter.sharding_spec
            shards = None
            if isinstance(spec, EnumerableShardingSpec):
                shards = [
                    {"shard_offsets": list(map(int, each.shard_offsets)), "shard_sizes": list(map(int, each.shard_sizes)), "placement": str(each.placement)}
                    for each in spec.shards
                ]
            elif parameter.sharding_type != DATA_PARALLEL:
                raise PlannerError(f"{label((path, name))}: a plan without shards cannot be written", PlannerErrorType.INPUT_VALIDATION)
            modules[path][name] = {
                "sharding_type": parameter.sharding_type,
                "compute_kernel": kernel_of(parameter),
                "ranks": list(map(int, parameter.ranks or [])),
                "shards": shards,
            }
            factor = load_factor_of(parameter)
            if factor is not None:
                modules[path][name]["cache_load_factor"] = float(factor)
    return modules


def save_plan(plan: ShardingPlan, path: PathLike) -> None:
    """Writes `plan` to `path`, which `load_plan` reads; the file appears complete or not at all.

    What a plan for TorchRec says beside its shards and the load factor of caches (output_dtype, bounds_check_mode, the cache's algorithm and the
    like) is not in the form: `load_plan` takes it from the constraints, as a planner does.
    """
    if not isinstance(plan, ShardingPlan):
        raise TypeError(f"plan: must be a ShardingPlan, got {type(plan).__name__}; save_plan(plan, path) is the order")
    check_type("path", path, PATH, "a path")
    write_whole(path, json.dumps({"format": FORMAT, "plan": layout_as_json(plan)}, indent=1) + "\n")


class PlanReader:
    """Reads a file's plan; every fault names the file and the place in it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fault(self, message: str) -> PlannerError:
        return PlannerError(f"{self._path}: {message}", PlannerErrorType.PLAN_LOADING_FAILED)

    def _members(self, value: Any, where: str, known: Optional[set] = None) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.fault(f"{where} is not an object")
        unknown = sorted(set(value) - known) if known is not None else []
        if unknown:
            raise self.fault(f"{where} has {', '.join(unknown)}, which this version does not know")
        return value

    def _integers(self, value: Any, where: str, count: Optional[int] = None) -> List[int]:
        good = isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)
        if not good or (count is not None and len(value) != count):
            raise self.fault(f"{where} is not a list of {'' if count is None else f'{count} '}integers of 0 and more")
        return list(value)

    def _table(self, value: Any, where: str) -> TableLayout:
        table = self._members(value, where, _TABLE_KEYS)
        for name in ("sharding_type", "compute_kernel"):
            if not isinstance(table.get(name), str):
                raise self.fault(f"{where} has no {name}")
        ranks = self._integers(table.get("ranks"), f"{where}.ranks")
        shards: List[ShardRect] = []
        if table["sharding_type"] != DATA_PARALLEL:
            if not isinstance(table.get("shards"), list):
                raise self.fault(f"{where} has no shards")
            for index, each in enumerate(table["shards"]):
                place = f"{where}.shards[{index}]"
                shard = self._members(each, place, _SHARD_KEYS)
                (row, col), (rows, cols) = (self._integers(shard.get(name), f"{place}.{name}", 2) for name in ("shard_offsets", "shard_sizes"))
                placement = _PLACEMENT.match(str(shard.get("placement")))
                if not placement:
                    raise self.fault(f"{place}.placement is {shard.get('placement')!r}, not like 'rank:0/cuda:0'")
                shards.append(ShardRect(row, rows, col, cols, int(placement[1])))
            if [shard.rank for shard in shards] != ranks:
                raise self.fault(f"{where}.ranks are {ranks} and its placements' {[shard.rank for shard in shards]}")
        factor = table.get("cache_load_factor")
        if factor is not None and (isinstance(factor, bool) or not isinstance(factor, (int, float))):
            raise self.fault(f"{where}.cache_load_factor is not a number")
        return make_table(table["sharding_type"], table["compute_kernel"], shards, len(ranks), factor)

    def layout(self, value: Any) -> Layout:
        layout: Layout = {}
        for path, tables in self._members(value, "plan").items():
            for name, table in self._members(tables, f"plan[{path!r}]").items():
                layout[(path, name)] = self._table(table, f"plan[{path!r}][{name!r}]")
        return layout

    def content(self) -> Mapping[str, Any]:
        """The file's top level, of a format that is known."""
        try:
            if os.path.getsize(self._path) > MAX_BYTES:
                raise self.fault(f"is larger than {MAX_BYTES} bytes")
            with open(self._path, encoding="utf-8") as file:
                content = json.load(file)
        except OSError as fault:
            raise self.fault(str(fault.strerror)) from None
        except (ValueError, RecursionError) as fault:
            raise self.fault(f"is cut off or no JSON: {fault}") from None
        top = self._members(content, "the file")
        if top.get("format", FORMAT) != FORMAT:
            raise self.fault(f"has the format {top['format']!r}, this version reads {FORMAT!r}; a newer one is read by a newer neuroshard")
        if "plan" not in top:
            raise self.fault("has no plan; `neuroshard plan --format torchrec` and save_plan write one")
        return top


def read_layout(path: PathLike) -> Layout:
    """The plan in a file. PlannerError PLAN_LOADING_FAILED, with the place, where it is not one."""
    reader = PlanReader(os.fspath(path))
    return reader.layout(reader.content()["plan"])


def sharding_plan_of(
    layout: Layout,
    whose: str,
    module: nn.Module,
    topology: Topology,
    sharders: Optional[Sequence[ModuleSharder[nn.Module]]] = None,
    constraints: Optional[Dict[str, ParameterConstraints]] = None,
    is_planned: Callable[[ModuleTable], bool] = lambda table: True,
) -> ShardingPlan:
    """`layout` as TorchRec runs it on `topology`: of the tables of `module` that are planned, no more and no fewer. `whose`: the plan, to errors."""
    sharders = get_default_sharders() if sharders is None else sharders
    enumerator = TableEnumerator(topology, 1, constraints)
    tables = [table for table in enumerator.tables(module, sharders, topology) if is_planned(table)]
    for warning in enumerator.warnings:
        logger.warning("%s", warning)
    layout = with_modules(layout, tables)
    check_layout(layout, tables, topology, whose, constrained=False)
    in_host_memory = [label(key) for key, table in layout.items() if table.compute_kernel in HOST_KERNELS]
    if topology.compute_device == "cpu" and in_host_memory:
        logger.warning("%s was made for GPUs, with rows in host memory (%s) of %s", whose, " or ".join(HOST_KERNELS), ", ".join(in_host_memory))
    return tell_dynamicemb(to_sharding_plan(chosen_options(layout, tables, topology, 1), topology), layout, tables)


def load_plan(
    path: PathLike,
    module: nn.Module,
    topology: Topology,
    sharders: Optional[Sequence[ModuleSharder[nn.Module]]] = None,
    constraints: Optional[Dict[str, ParameterConstraints]] = None,
) -> ShardingPlan:
    """The ShardingPlan of `module` in a file: the inverse of ShardingPlan._serialize(), which TorchRec does not have.

    The shards are placed on the topology's compute_device whatever the file says. `constraints` decide what a plan does not (output_dtype,
    bounds_check_mode, ...); the types and widths in them do not bind a plan that was made. Tables of a plan without modules are found by
    their names. PlannerError says what is wrong: no such file, cut off, of
    a newer format, of another module or another number of ranks, shards that do not tile their table or that TorchRec cannot run.
    """
    check_type("path", path, PATH, "a path")
    check_type("module", module, nn.Module, "a module")
    check_type("topology", topology, Topology, "torchrec's Topology")
    check_constraints(constraints)
    return sharding_plan_of(read_layout(path), f"{os.fspath(path)}: the plan", module, topology, sharders, constraints)
