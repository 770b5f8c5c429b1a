"""What DistributedModelParallel.reshard takes, of a file of `neuroshard plan --emit-moves`."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Tuple

from torchrec.distributed.planner.types import PlannerError, PlannerErrorType
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from neuroshard.torchrec.module_tables import label
from neuroshard.torchrec.plan_file import PathLike

FORMAT = "neuroshard-moves/1"

ReshardDelta = Dict[str, Tuple[float, EmbeddingModuleShardingPlan]]


def reshard_delta(moves: PathLike, plan: ShardingPlan) -> ReshardDelta:
    """{path of a module: (MB of weights that travel, ParameterSharding of the tables that change)}, one call of TorchRec 1.9's `reshard` each:

        for path, change in reshard_delta("moves.json", plan).items():
            model.reshard({path: change}, path)

    `moves` is what `neuroshard plan --previous ... --emit-moves` wrote, and `plan` the plan that it came with (`load_plan`). PlannerError where a table
    moves that TorchRec cannot move in a running job (each is named with the reason), where the file is none, or is of another plan.
    """
    path = os.fspath(moves)

    def fault(message: str) -> PlannerError:
        return PlannerError(f"{path}: {message}", PlannerErrorType.PLAN_LOADING_FAILED)

    try:
        with open(path, encoding="utf-8") as file:
            content: Any = json.load(file)
        if content.get("format") != FORMAT:
            raise fault(f"its format is {content.get('format')!r}, and has to be {FORMAT!r}")
        tables = [(each["table"], each["module"], each["name"], each["reason"]) for each in content["tables"]]
        parts = [(made["table"], part) for step in content["steps"] for made in step["make"] for part in made["parts"]]
        travels = {table: 0.0 for table, *_ in tables}
        for table, part in parts:
            travels[table] += 0 if part["link"] == "same_rank" else part["weights_bytes"] / (1 << 20)
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise fault(f"no moves of a plan: {type(error).__name__}: {error}") from error
    faults = [f"{table}: {reason}" for table, _, _, reason in tables if reason]
    faults += [f"the plan has no {label((module, name))}" for _, module, name, _ in tables if name not in plan.plan.get(module, {})]  # type: ignore[operator]
    if faults:
        raise fault("; ".join(faults))
    delta: ReshardDelta = {}
    for table, module, name, _ in tables:
        volume, changed = delta.setdefault(module, (0.0, EmbeddingModuleShardingPlan()))
        changed[name] = plan.plan[module][name]  # type: ignore[index]
        delta[module] = (volume + travels[table], changed)
    return delta
