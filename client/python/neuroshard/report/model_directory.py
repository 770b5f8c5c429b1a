"""Reads what `neuroshard-pretrain train` and `drift` wrote into a cost model's directory (ROOT/NAME/VERSION)."""

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Tuple

from neuroshard.report.input_files import InputError, read_text

FORMATS = ("neuroshard-cost-model/1", "neuroshard-cost-model/2")
DRIFT_FORMATS = ("neuroshard-drift/1", "neuroshard-drift/2")

Rows = List[List[str]]


@dataclass
class ModelReport:
    name: str
    version: str
    hardware: Dict[str, str]
    unusable_reason: str
    # Tables of REPORT.md, as text: by the first head, rows below the heads.
    networks: Rows = field(default_factory=list)  # network, train, held out, MSE, MAPE %, R2, Kendall tau[, covered %]
    error_by_size: Rows = field(default_factory=list)  # network, measured ms, values, MAPE %
    learning_curve: Rows = field(default_factory=list)  # network, training samples, MAPE %, Kendall tau
    provenance: Rows = field(default_factory=list)
    # Of each network: (measured ms, predicted ms) of every held-out sample. Empty where the model has no held_out.csv.
    held_out: Dict[str, List[Tuple[float, float]]] = field(default_factory=dict)
    # Of each stage: samples, median, p10, p90 of measured / predicted, since, until. Empty: there is no drift.yaml.
    drift: Dict[str, Dict[str, Any]] = field(default_factory=dict)


def read_model(directory: Path) -> ModelReport:
    """Raises InputError with the file that is missing or damaged."""
    manifest = _yaml(directory / "model.yaml", FORMATS)
    quality = manifest.get("quality")
    report = ModelReport(
        name=str(manifest.get("name", "")),
        version=str(manifest.get("version", "")),
        hardware={str(k): str(v) for k, v in _mapping(manifest.get("hardware")).items()},
        unusable_reason=str(_mapping(quality).get("reason", "")) if quality else "",
    )
    tables = _markdown_tables(read_text(directory / "REPORT.md"))
    if "network" not in tables:
        raise InputError(directory / "REPORT.md", "has no table of networks")
    report.networks = tables["network"]
    report.error_by_size = tables.get("error by size", [])
    report.learning_curve = tables.get("learning curve", [])
    report.provenance = tables.get("provenance", [])
    if (directory / "held_out.csv").exists():
        report.held_out = _held_out(directory / "held_out.csv")
    if (directory / "drift.yaml").exists():
        stages = _mapping(_yaml(directory / "drift.yaml", DRIFT_FORMATS).get("stages"))
        report.drift = {str(stage): _drift_stage(directory / "drift.yaml", str(stage), value) for stage, value in stages.items()}
    return report


def as_number(text: object) -> float:
    """NaN for "-" and everything else that is no number."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _yaml(path: Path, formats: Tuple[str, ...]) -> Dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise InputError(path, "reading it needs PyYAML: pip install neuroshard[report]") from None
    text = read_text(path)
    try:
        document = yaml.load(text, Loader=yaml.BaseLoader)  # texts alone: nothing is constructed
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(path, " ".join(str(error).split())) from None
    document = _mapping(document)
    if document.get("format") not in formats:
        raise InputError(path, faults=(("format", f"must be {' or '.join(formats)}, got {document.get('format')}"),))
    return document


def _mapping(value: Any) -> Dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _drift_stage(path: Path, stage: str, value: Any) -> Dict[str, Any]:
    value = _mapping(value)
    keys = ("samples", "median_ratio", "p10", "p90")
    missing = tuple((f"stages.{stage}.{key}", "must be a number") for key in keys if not math.isfinite(as_number(value.get(key))))
    if missing:
        raise InputError(path, faults=missing)
    return {**{key: as_number(value[key]) for key in keys}, "since": str(value.get("since", "")), "until": str(value.get("until", ""))}


def _markdown_tables(text: str) -> Dict[str, Rows]:
    tables: Dict[str, Rows] = {}
    rows: Rows = []
    for line in text.splitlines():
        if not line.startswith("|"):
            rows = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if set(line) <= set("|-"):
            continue
        if rows:
            rows.append(cells)
        else:
            rows = tables[cells[0]] = [cells]
    return {name: [row for row in found[1:] if len(row) == len(found[0])] for name, found in tables.items()}


def _held_out(path: Path) -> Dict[str, List[Tuple[float, float]]]:
    lines = csv.reader(read_text(path).splitlines())
    if next(lines, None) != ["network", "measured_ms", "predicted_ms"]:
        raise InputError(path, "line 1: must be network,measured_ms,predicted_ms")
    found: Dict[str, List[Tuple[float, float]]] = {}
    for number, line in enumerate(lines, 2):
        if len(line) != 3 or not all(math.isfinite(as_number(cell)) for cell in line[1:]):
            raise InputError(path, f"line {number}: must be a network and two numbers")
        found.setdefault(line[0], []).append((float(line[1]), float(line[2])))
    return found
