"""The stage `steps` of drift.yaml beside a cost model (server/networks/README.md): steps recorded after the model learned its rates of steps, held against its
forecasts of them."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import re
from typing import List, Sequence

from neuroshard.torchrec.plan_file import write_whole
from neuroshard.torchrec.step_record import StepRecord

LEARNED_AT = "steps_learned_at"  # in `provenance` of model.yaml
RATES = re.compile(r"^steps:.*\n(?:[ #].*\n)*", re.MULTILINE)  # the section of model.yaml
TELLING_SAMPLES = 10  # kTellingSamples in server/cost/model_error.h
_STAGE = r"  [a-z_]+:\n(?:    (?:samples|median_ratio|p10|p90|since|until): \S.*\n){6}"
_DRIFT_FILE = re.compile(rf"format: neuroshard-drift/2\nstages:\n((?:{_STAGE})+)\.\.\.\n")  # as FormatModelDrift writes it


def utc_text(unix_ms: float) -> str:
    return datetime.datetime.fromtimestamp(unix_ms / 1e3, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclasses.dataclass
class StepDrift:
    samples: int
    median_ratio: float  # measured / predicted
    p10: float
    p90: float
    since: str
    until: str

    @staticmethod
    def of(ratios: Sequence[float], recorded_at_unix_ms: Sequence[int]) -> StepDrift:
        """Of at least one record. Quantiles are the nearest value, as MeasureDrift in server/pretrain has them."""
        values = sorted(ratios)
        median, p10, p90 = (values[int(share * (len(values) - 1) + 0.5)] for share in (0.5, 0.1, 0.9))
        return StepDrift(len(values), median, p10, p90, utc_text(min(recorded_at_unix_ms)), utc_text(max(recorded_at_unix_ms)))

    def __str__(self) -> str:
        few = f"; fewer than {TELLING_SAMPLES} do not tell of drift" if self.samples < TELLING_SAMPLES else ""
        return (f"steps: {self.samples} samples, measured / predicted {self.median_ratio:.3f} (p10 {self.p10:.3f}, p90 {self.p90:.3f}), "
                f"recorded from {self.since} to {self.until}{few}")

    def section(self) -> str:
        values = dataclasses.asdict(self)
        return "  steps:\n" + "".join(f"    {key}: {value:.9g}\n" if isinstance(value, float) else f"    {key}: {value}\n" for key, value in values.items())


def reason_against(record: StepRecord, manifest: str) -> str:
    """Why a record does not tell whether the model of this model.yaml has drifted; empty: it does. ValueError where the model does not say when it was made."""
    times = dict(re.findall(rf"^  ({LEARNED_AT}|trained_at): (\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$", manifest, re.MULTILINE))
    made = times.get(LEARNED_AT) or times.get("trained_at")
    if made is None:
        raise ValueError(f"model.yaml does not say when its rates of steps were learned (provenance.{LEARNED_AT})")
    rates = RATES.search(manifest)
    ranks = [int(number) for number in re.findall(r"num_ranks: (\d+)", rates[0] if rates else "")]
    if record.recorded_at_unix_ms == 0:
        return "without a time"
    if utc_text(record.recorded_at_unix_ms) <= made:
        return f"recorded before the rates were learned ({made})"
    return "" if ranks and min(ranks) <= len(record.ranks) <= max(ranks) else "at numbers of ranks that the rates do not cover"


def write_drift(model: pathlib.Path, drift: StepDrift) -> None:
    """Replaces the stage in drift.yaml of the directory and keeps the others; the file appears whole or not at all. ValueError where it is damaged."""
    path = model / "drift.yaml"
    others: List[str] = []
    if path.exists():
        found = _DRIFT_FILE.fullmatch(path.read_text(encoding="utf-8"))
        if found is None:
            raise ValueError(f"{path}: is damaged, or not as neuroshard-pretrain drift writes it; remove it and run that anew")
        others = [stage for stage in re.findall(_STAGE, found[1]) if not stage.startswith("  steps:")]
    write_whole(path, "format: neuroshard-drift/2\nstages:\n" + "".join([*others, drift.section()]) + "...\n")
