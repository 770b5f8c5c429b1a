"""A plan as a JSON document of ours: read, and all its faults named at once."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

Path = Union[str, "os.PathLike[str]"]


class PlanFileError(ValueError):
    """A file that is no plan of its format, or not one for these tables. `faults`: (where in the document, what is wrong)."""

    def __init__(self, path: str, faults: List[Tuple[str, str]]):
        super().__init__(path, faults)
        self.path = path
        self.faults = faults

    def __str__(self) -> str:
        return f"{self.path}: " + "; ".join(f"{where}: {what}" if where else what for where, what in self.faults)


class PlanFile:
    """The document and the faults found in it so far."""

    def __init__(self, path: Path, kind: str, version: int):
        self.path = os.fspath(path)
        self._faults: List[Tuple[str, str]] = []
        with open(path, encoding="utf-8") as file:
            try:
                document = json.load(file)
            except (ValueError, RecursionError) as fault:
                raise PlanFileError(self.path, [("", f"is no JSON document, or a part of one: {fault}")]) from None
        stated = document.get("format") if isinstance(document, dict) else None
        if stated != f"{kind}/{version}":
            other = "has another format or version" if isinstance(stated, str) else "has no format"
            raise PlanFileError(self.path, [("format", f"{other}: {stated!r}; this is for {kind}/{version}")])
        self._document: Dict[str, Any] = document

    def fault(self, where: str, what: str) -> None:
        self._faults.append((where, what))

    def raise_faults(self) -> None:
        if self._faults:
            raise PlanFileError(self.path, self._faults)

    def number(self, key: str) -> int:
        """An integer of at least 1."""
        value = self._document.get(key)
        if _is_integer(value) and value >= 1:
            return int(value)
        self.fault(key, f"must be an integer of at least 1, got {value!r}")
        self.raise_faults()
        raise AssertionError

    def list(self, key: str, length: Optional[int] = None) -> List[Any]:
        value = self._document.get(key)
        if isinstance(value, list) and length in (None, len(value)):
            return value
        wanted = "a list" if length is None else f"a list of {length}, one for each rank"
        self.fault(key, f"must be {wanted}, got {f'one of {len(value)}' if isinstance(value, list) else repr(value)}")
        self.raise_faults()
        raise AssertionError

    def list_of_lists(self, key: str, length: int) -> List[List[Any]]:
        """A list for each rank. What is none is a fault and an empty list."""
        lists = self.list(key, length)
        for rank, entry in enumerate(lists):
            if not isinstance(entry, list):
                self.fault(f"{key}[{rank}]", f"must be a list, got {entry!r}")
        return [entry if isinstance(entry, list) else [] for entry in lists]

    def tables(self, dims: Optional[Mapping[str, int]]) -> List[str]:
        """The names of the plan's tables, each once, and the same as those of `dims`."""
        names = self.list("tables")
        first: Dict[str, int] = {}
        for i, name in enumerate(names):
            if not isinstance(name, str):
                self.fault(f"tables[{i}]", f"must be a text, got {name!r}")
            elif first.setdefault(name, i) != i:
                self.fault(f"tables[{i}]", f"{name!r} is also tables[{first[name]}]")
            elif dims is not None and name not in dims:
                self.fault(f"tables[{i}]", f"the model has no table {name!r}")
        for name in dims or ():
            if name not in first:
                self.fault("tables", f"{name!r} of the model is missing")
        self.raise_faults()
        return names


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
