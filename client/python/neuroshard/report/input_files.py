"""Reads what `neuroshard` printed with --format json. Everything that is wrong with a file is said, as that program says it."""

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple, Type

from google.protobuf.message import Message

from neuroshard.errors import InvalidRequest
from neuroshard.mapping import as_message
from neuroshard.report.markup import printable
from neuroshard.v1 import plan_pb2, planner_pb2

MAX_FILE_BYTES = 256 << 20  # as in neuroshard's own files
_MAX_FAULTS = 100

# What `neuroshard validate --format json` writes.
_COMPARISON = {
    "predicted_ms": float, "measured_ms": float, "relative_error": float, "inside": bool,
    "interval": {"low_ms": float, "high_ms": float},
}
_VALIDATION = {
    "ranks": [{
        "rank": int, "worker": str, "device": int, "problem": str,
        "stages": {stage: _COMPARISON for stage in ("input_dist", "compute", "backward_comm", "forward_comm", "total")},
        "measured_forward_compute_ms": float, "measured_backward_compute_ms": float, "measured_start_offset_ms": float,
    }],
    "collectives": [{"direction": str, "collective": str, "measured_ms": [float]}],
    "measured_with": {"device": str, "backend": str, "collective_backend": str},
    "embedding_cost": _COMPARISON,
    "notes": [str],
}


class InputError(Exception):
    """A file that cannot be shown. `faults`: (field path, what is wrong); empty where str() says it all."""

    def __init__(self, path: object, text: str = "", faults: Tuple[Tuple[str, str], ...] = ()):
        super().__init__(f"{printable(path)}: {text}" if text else str(path))
        self.path, self.faults = printable(path), faults

    def report(self) -> str:
        """As the command line prints it."""
        if not self.faults:
            return f"error: {self}\n"
        shown = self.faults[:_MAX_FAULTS]
        head = f"{'at least ' if len(shown) < len(self.faults) else ''}{len(shown)} fault{'s' * (len(shown) > 1)}"
        return f"error: {head} in the input\n" + "".join(f"  {self.path}: {printable(field, 300)}: {printable(text, 300)}\n" for field, text in shown)


class _GivenTwice(Exception):
    pass


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot open {printable(path)}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(path, f"is more than {MAX_FILE_BYTES} bytes long, at most so many are read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(path, f"is not UTF-8: byte {error.start}") from None


def read_plan(path: Path) -> Message:
    """A ShardPlanResponse, EvaluatePlanResponse or Plan: output of `neuroshard plan` or `neuroshard evaluate` with --format json, a bare plan, or one in
    TorchRec's form, whose shards of data_parallel tables have no size.

    Raises InputError.
    """
    document = _json(path)
    kind: Type[Message] = plan_pb2.Plan
    if _is_torchrecs(document):
        try:
            document = _from_torchrec(document["plan"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(path, "is not a plan in TorchRec's form, {module: {table: {sharding_type, compute_kernel, ranks, shards}}} below \"plan\"") from None
    elif isinstance(document, dict) and "legal" in document:
        kind = planner_pb2.EvaluatePlanResponse
    elif isinstance(document, dict) and "plan" in document:
        kind = planner_pb2.ShardPlanResponse
    if not isinstance(document, dict):
        raise InputError(path, faults=(("(document)", f"must be a mapping, got {_shown(document)}"),))
    try:
        message = as_message(kind, document)
    except InvalidRequest as error:
        raise InputError(path, faults=tuple(error.violations)) from None
    if isinstance(message, plan_pb2.Plan) and not message.tables:
        raise InputError(path, "has no tables and no cost")
    return message


def _is_torchrecs(document: Any) -> bool:
    plan = document.get("plan") if isinstance(document, dict) else None
    return isinstance(plan, dict) and "world_size" not in plan and not isinstance(plan.get("tables"), list)


def _from_torchrec(modules: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    """A Plan's mapping; world_size as far as the tables tell."""
    tables: List[Dict[str, Any]] = []
    for module, of_module in modules.items():
        for name, table in of_module.items():
            if table["sharding_type"] == "data_parallel":
                shards = [{"rank": rank} for rank in table["ranks"]]
            else:
                shards = [
                    {"row_offset": each["shard_offsets"][0], "col_offset": each["shard_offsets"][1], "rows": each["shard_sizes"][0],
                     "cols": each["shard_sizes"][1], "rank": int(each["placement"].partition("/")[0].partition(":")[2])}
                    for each in table["shards"]
                ]
            of = {"module": module, "name": name, "sharding_type": table["sharding_type"], "compute_kernel": table["compute_kernel"], "shards": shards}
            tables.append(of if table.get("cache_load_factor") is None else {**of, "cache_load_factor": table["cache_load_factor"]})
    ranks = [shard["rank"] for table in tables for shard in table["shards"]]
    return {"world_size": max(ranks, default=0) + 1, "tables": tables}


def read_validation(path: Path) -> Dict[str, Any]:
    """Output of `neuroshard validate --format json`; what is unknown there is None here. Raises InputError."""
    document = _json(path)
    faults: List[Tuple[str, str]] = []
    _check_shape(document, _VALIDATION, "", faults)
    if isinstance(document, dict):
        faults += [(key, "is required") for key in _VALIDATION if key not in document]
    if faults:
        raise InputError(path, faults=tuple(faults))
    return document


def _json(path: Path) -> Any:
    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            raise _GivenTwice(next(name for name in names if names.count(name) > 1))
        return mapping

    try:
        return json.loads(read_text(path), object_pairs_hook=unique)
    except _GivenTwice as error:
        raise InputError(path, f"{printable(error, 96)}: is given twice") from None
    except json.JSONDecodeError as error:
        raise InputError(path, f"line {error.lineno}, column {error.colno}: syntax error: {error.msg}") from None
    except RecursionError:
        raise InputError(path, "is nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(path, str(error)) from None


def _join(path: str, key: object) -> str:
    name = printable(key, 96)
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "a text", bool: "a bool", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def _check_shape(value: Any, shape: Any, path: str, faults: List[Tuple[str, str]]) -> None:
    """`shape`: a mapping of known keys to shapes, a list of one shape, or a type. null is allowed for a value."""
    if len(faults) > _MAX_FAULTS:
        return
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            faults.append((path or "(document)", f"must be a mapping, got {_shown(value)}"))
            return
        for key, item in value.items():
            if key in shape:
                _check_shape(item, shape[key], _join(path, key), faults)
            else:
                faults.append((_join(path, key), "unknown field"))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            faults.append((path, f"must be a list, got {_shown(value)}"))
            return
        for i, item in enumerate(value):
            _check_shape(item, shape[0], f"{path}[{i}]", faults)
    elif value is not None and not _is_a(value, shape):
        word = {float: "a number", int: "an integer", str: "a text", bool: "true or false"}[shape]
        faults.append((path, f"must be {word}, got {_shown(value)}"))


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
