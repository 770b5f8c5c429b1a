"""A record of a trainer's steps, as StepRecorder makes it."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any, Dict, List

from google.protobuf import json_format

from neuroshard import v1

STAGES = ("input_dist", "forward", "backward", "lookup_forward", "lookup_backward")
KINDS = ("whole_rows", "cut_rows", "replicas")
CUT_ROWS = ("row_wise", "table_row_wise", "grid_shard", "row_wise_subset")
_END_OF_TIME_MS = 253_402_300_800_000


@dataclasses.dataclass
class StepRecord:
    """Medians of the stages of a job's steps, by rank, in ms, and the plan that ran."""

    request: v1.ShardPlanRequest
    plan: v1.Plan
    ranks: List[Dict[str, float]]
    recorded_at_unix_ms: int = 0  # 0: the record does not say

    def to_json(self) -> str:
        def of(message: Any) -> Any:
            return json_format.MessageToDict(message, preserving_proto_field_name=True)

        return json.dumps({"request": of(self.request), "plan": of(self.plan), "ranks": self.ranks, "recorded_at_unix_ms": self.recorded_at_unix_ms})

    @staticmethod
    def from_json(text: str) -> StepRecord:
        """ValueError with every fault."""
        try:
            content = json.loads(text)
            request, plan = json_format.ParseDict(content["request"], v1.ShardPlanRequest()), json_format.ParseDict(content["plan"], v1.Plan())
            record = StepRecord(request, plan, content["ranks"], content.get("recorded_at_unix_ms", 0))
        except (ValueError, KeyError, TypeError, json_format.ParseError) as fault:
            raise ValueError(f"is no record of steps: {fault!r}") from None
        record.check()
        return record

    def check(self) -> None:
        """ValueError with every fault: no plan, another number of ranks than the plan's, stages that are missing, negative or no numbers, lookups that take
        longer than the passes they are part of, a time that is none."""
        faults = [] if self.plan.tables else ["plan: has no tables"]
        at = self.recorded_at_unix_ms
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < _END_OF_TIME_MS:
            faults.append(f"recorded_at_unix_ms: must be ms since 1970, before the year 10000, got {at!r}")
        devices = sum((host.count if host.HasField("count") else 1) * host.num_devices for host in self.request.topology.hosts)
        if devices != self.plan.world_size:
            faults.append(f"request.topology: must have {self.plan.world_size} devices as the plan has ranks, got {devices}")
        if not isinstance(self.ranks, list) or len(self.ranks) != self.plan.world_size:
            faults.append(f"ranks: must be {self.plan.world_size} as in the plan, got {len(self.ranks) if isinstance(self.ranks, list) else self.ranks!r}")
        else:
            for number, rank in enumerate(self.ranks):
                times = {stage: rank.get(stage) if isinstance(rank, dict) else None for stage in STAGES}
                wrong = {stage for stage, ms in times.items() if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not math.isfinite(ms) or ms < 0}
                faults += [f"ranks[{number}].{stage}: must be ms of 0 and more, got {times[stage]!r}" for stage in STAGES if stage in wrong]
                for whole, part in (("forward", "lookup_forward"), ("backward", "lookup_backward")):
                    if not {whole, part} & wrong and times[part] > times[whole]:
                        faults.append(f"ranks[{number}].{part}: must be at most {whole}'s {times[whole]!r} ms, got {times[part]!r}")
            if not faults and self.step_ms <= 0:
                faults.append("ranks: no rank has a step of more than 0 ms")
        if faults:
            raise ValueError("; ".join(faults))

    @property
    def step_ms(self) -> float:
        """Forward and backward of the slowest rank."""
        return max(rank["forward"] + rank["backward"] for rank in self.ranks)

    @property
    def embedding_ms(self) -> float:
        """What a plan's embedding_cost_ms forecasts: with the distribution of ids where no pipeline hides it."""
        return self.step_ms if self.pipelined else max(rank["forward"] + rank["backward"] + rank["input_dist"] for rank in self.ranks)

    @property
    def pipelined(self) -> bool:
        """Whether ids were distributed beside the batch before."""
        return self.request.pipeline_type not in ("", "none")

    @property
    def input_dist_ms(self) -> float:
        return max(rank["input_dist"] for rank in self.ranks)

    def exchanges(self) -> List[int]:
        """By KINDS, the pairs of module and sharding type."""
        pairs = {(table.module, table.sharding_type) for table in self.plan.tables}
        cut = sum(sharding_type in CUT_ROWS for _, sharding_type in pairs)
        replicas = sum(sharding_type == "data_parallel" for _, sharding_type in pairs)
        return [len(pairs) - cut - replicas, cut, replicas]


def read_records(path: pathlib.Path) -> List[StepRecord]:
    """A record a line. ValueError names every faulty line."""
    records, faults = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(StepRecord.from_json(line))
        except ValueError as fault:
            faults.append(f"{path}, line {number}: {fault}")
    if faults:
        raise ValueError("\n".join(faults))
    return records
