"""Client of the NeuroShard planning service.

    import neuroshard

    with neuroshard.PlannerClient("planner:50051") as planner:
        response = planner.plan(request)        # a neuroshard.v1.ShardPlanRequest, or a dict of the same shape

`neuroshard.aio` is the same for asyncio, `neuroshard.v1` the messages, `neuroshard.torchrec` a planner for TorchRec (extra `torchrec`).
"""

from neuroshard import aio, v1
from neuroshard.client import PlannerClient, PlanStream
from neuroshard.errors import (
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    Infeasible,
    InvalidRequest,
    LimitExceeded,
    NoModel,
    PlannerError,
    Unavailable,
)

# That of the project in the CMakeLists.txt of the checkout.
__version__ = "0.1.0"

__all__ = [
    "Cancelled", "DeadlineExceeded", "FieldViolation", "Infeasible", "InvalidRequest", "LimitExceeded", "NoModel", "PlanStream", "PlannerClient",
    "PlannerError", "Unavailable", "v1",
]
