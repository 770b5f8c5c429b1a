"""Plans of earlier starts in a directory, one file for each request fingerprint."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType
from torchrec.distributed.types import ShardingPlan

from neuroshard.torchrec.layout import Layout
from neuroshard.torchrec.plan_file import FORMAT, PlanReader, layout_as_json, write_whole

logger: logging.Logger = logging.getLogger(__name__)


class CachedPlan(NamedTuple):
    layout: Layout
    model: str
    """The cost model that priced it, "name/version", with "@" and the digest of its files where it has some."""
    cost_ms: Optional[float]
    """None: a plan of before files had it."""
    stashed: Optional[List[str]]
    """Names of stashed tables. None: the request stashes none."""


def differences(before: Any, now: Any, path: str = "") -> List[str]:
    """Where two JSON values differ, by path."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        found = []
        for key in sorted({*before, *now}):
            place = f"{path}.{key}" if path else key
            if key not in now:
                found.append(f"{place} is gone")
            elif key not in before:
                found.append(f"{place} is new")
            else:
                found += differences(before[key], now[key], place)
        return found
    return [] if before == now else [f"{path} was {json.dumps(before)[:80]} and is {json.dumps(now)[:80]}"]


class PlanCache:
    """A directory of plans. A file appears complete or not at all, so that a process may be killed at any time and several may share it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def _path(self, fingerprint: str) -> str:
        return os.path.join(self._directory, f"{fingerprint}.plan.json")

    def find(self, fingerprint: str, check: Callable[[Layout, str], None]) -> Optional[CachedPlan]:
        """None where there is no plan for the fingerprint, or its file is damaged, which is said in the log. `check` raises PlannerError for a
        layout that cannot be used."""
        path = self._path(fingerprint)
        if not os.path.exists(path):
            return None
        reader = PlanReader(path)
        try:
            content = reader.content()
            layout = reader.layout(content["plan"])
            check(layout, path)
            cost = content.get("embedding_cost_ms")
            return CachedPlan(layout, str(content.get("cost_model", "")), float(cost) if isinstance(cost, (int, float)) else None, content.get("stashed_tables"))
        except PlannerError as fault:
            logger.warning("the cached plan is not used: %s", fault)
            return None

    def add(self, fingerprint: str, summary: Dict[str, Any], plan: ShardingPlan, model: str, cost_ms: Optional[float], stashed: Optional[List[str]]) -> None:
        """A directory that cannot be written is a warning: the plan is good without it."""
        content = {"format": FORMAT, "cost_model": model, "embedding_cost_ms": cost_ms, "planned_at": time.time(), "plan": layout_as_json(plan), "request": summary}
        if stashed is not None:
            content["stashed_tables"] = stashed
        try:
            os.makedirs(self._directory, exist_ok=True)
            write_whole(self._path(fingerprint), json.dumps(content, indent=1) + "\n")
        except OSError as fault:
            logger.warning("the plan is not cached: %s", fault)

    def fail_if_other_plans(self, summary: Dict[str, Any]) -> None:
        """PlannerError PLANNER_INPUT_CONTEXT_MISMATCH if the directory has plans, which then are for other requests; says what differs from the newest."""
        newest: Optional[Mapping[str, Any]] = None
        for name in sorted(os.listdir(self._directory)) if os.path.isdir(self._directory) else []:
            if name.endswith(".plan.json"):
                content = PlanReader(os.path.join(self._directory, name)).content()
                if newest is None or content.get("planned_at", 0) > newest.get("planned_at", 0):
                    newest = content
        if newest is not None:
            found = differences(newest.get("request"), summary) or ["the plan's file is damaged"]
            shown = "; ".join(found[:10]) + (f"; and {len(found) - 10} more" if len(found) > 10 else "")
            raise PlannerError(
                f"{self._directory}: has no plan for this request, and on_change is 'fail'. Since its newest plan: {shown}",
                PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH,
            )
