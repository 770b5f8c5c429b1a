"""A record of a trainer's steps, as StepRecorder makes it."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any, Dict, Iterator, List, Sequence

from google.protobuf import json_format

from neuroshard import v1

STAGES = ("input_dist", "forward", "backward", "lookup_forward", "lookup_backward")
EXCHANGE_STAGES = ("input_dist", "exchange_forward", "exchange_backward")  # of a group
LOOKUP_STAGES = ("lookup_forward", "lookup_backward")  # of each of its lookups
KINDS = ("whole_rows", "cut_rows", "replicas")
CUT_ROWS = ("row_wise", "table_row_wise", "grid_shard", "row_wise_subset")
_END_OF_TIME_MS = 253_402_300_800_000


Group = Dict[str, Any]
"""What TorchRec runs together of a module and sharding type: {"module", "sharding_type", EXCHANGE_STAGES, "lookups": [{"tables", LOOKUP_STAGES}, ...]}, in ms;
without lookups on a rank that has none of its tables."""


@dataclasses.dataclass
class StepRecord:
    """Medians of the stages of a job's steps, by rank, in ms, and the plan that ran."""

    request: v1.ShardPlanRequest
    plan: v1.Plan
    ranks: List[Dict[str, float]]
    recorded_at_unix_ms: int = 0  # 0: the record does not say
    groups: List[List[Group]] = dataclasses.field(default_factory=list)  # by rank; empty: the record does not say

    def to_json(self) -> str:
        def of(message: Any) -> Any:
            return json_format.MessageToDict(message, preserving_proto_field_name=True)

        return json.dumps({"request": of(self.request), "plan": of(self.plan), "ranks": self.ranks, "recorded_at_unix_ms": self.recorded_at_unix_ms,
                           "groups": self.groups})

    @staticmethod
    def from_json(text: str) -> StepRecord:
        """ValueError with every fault."""
        try:
            content = json.loads(text)
            request, plan = json_format.ParseDict(content["request"], v1.ShardPlanRequest()), json_format.ParseDict(content["plan"], v1.Plan())
            record = StepRecord(request, plan, content["ranks"], content.get("recorded_at_unix_ms", 0), content.get("groups", []))
        except (ValueError, KeyError, TypeError, json_format.ParseError) as fault:
            raise ValueError(f"is no record of steps: {fault!r}") from None
        record.check()
        return record

    def check(self) -> None:
        """ValueError with every fault: no plan, another number of ranks than the plan's, stages that are missing, negative or no numbers, lookups that take
        longer than the passes they are part of, a time that is none, groups without a name, of another number of ranks or with such stages."""
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
                wrong = _faulty_stages(f"ranks[{number}]", rank, STAGES)
                faults += wrong.values()
                for whole, part in (("forward", "lookup_forward"), ("backward", "lookup_backward")):
                    if not {whole, part} & set(wrong) and rank[part] > rank[whole]:
                        faults.append(f"ranks[{number}].{part}: must be at most {whole}'s {rank[whole]!r} ms, got {rank[part]!r}")
            if not faults and self.step_ms <= 0:
                faults.append("ranks: no rank has a step of more than 0 ms")
        if not isinstance(self.groups, list) or len(self.groups) not in (0, self.plan.world_size):
            got = len(self.groups) if isinstance(self.groups, list) else repr(self.groups)
            faults.append(f"groups: must be none, or those of {self.plan.world_size} ranks as in the plan, got {got}")
        else:
            of_groups = [fault for rank, groups in enumerate(self.groups) for fault in _faults_of_groups(f"groups[{rank}]", groups)]
            pairs = [] if of_groups else [[(group["module"], group["sharding_type"]) for group in groups] for groups in self.groups]
            faults += of_groups + [f"groups[{rank}]: must be rank 0's {pairs[0]}, got {each}" for rank, each in enumerate(pairs) if each != pairs[0]]
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


def _faulty_stages(path: str, times: Any, stages: Sequence[str]) -> Dict[str, str]:
    faults = {}
    for stage in stages:
        ms = times.get(stage) if isinstance(times, dict) else None
        if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not math.isfinite(ms) or ms < 0:
            faults[stage] = f"{path}.{stage}: must be ms of 0 and more, got {ms!r}"
    return faults


def _faults_of_groups(path: str, groups: Any) -> Iterator[str]:
    if not isinstance(groups, list):
        yield f"{path}: must be a list, got {groups!r}"
        return
    for number, group in enumerate(groups):
        of = f"{path}[{number}]"
        yield from _faulty_stages(of, group, EXCHANGE_STAGES).values()
        found = group if isinstance(group, dict) else {}
        for name in ("module", "sharding_type"):
            if not isinstance(found.get(name), str):
                yield f"{of}.{name}: must be a name, got {found.get(name)!r}"
        if not isinstance(found.get("lookups"), list):
            yield f"{of}.lookups: must be a list, got {found.get('lookups')!r}"
            continue
        for each, lookup in enumerate(found["lookups"]):
            yield from _faulty_stages(f"{of}.lookups[{each}]", lookup, LOOKUP_STAGES).values()
            tables = lookup.get("tables") if isinstance(lookup, dict) else None
            if not isinstance(tables, list) or not tables or not all(isinstance(table, str) for table in tables):
                yield f"{of}.lookups[{each}].tables: must be names of tables, got {tables!r}"


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
