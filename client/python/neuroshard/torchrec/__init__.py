"""TorchRec with plans of the NeuroShard service (extra `torchrec`; written for TorchRec 1.9).

    from neuroshard.torchrec import NeuroShardPlanner

    planner = NeuroShardPlanner("planner:50051", topology=topology, batch_size=512)
    plan = planner.collective_plan(model, sharders, torch.distributed.GroupMember.WORLD)
    model = DistributedModelParallel(model, plan=plan, sharders=sharders)
"""

from neuroshard.torchrec.feature_statistics import FeatureStatistics, statistics
from neuroshard.torchrec.hardware_perf_config import FittedPerfConfig, MeasuredPerfConfig, MeasuredPerfEstimator
from neuroshard.torchrec.measured_reservation import MeasuredReservation, reserve_from
from neuroshard.torchrec.perf_config_model import write_cost_model
from neuroshard.torchrec.plan_file import load_plan, save_plan
from neuroshard.torchrec.planner import NeuroShardPlanner
from neuroshard.torchrec.resharding import reshard_delta
from neuroshard.torchrec.row_positions import RowPositions
from neuroshard.torchrec.step_record import StepRecord
from neuroshard.torchrec.step_recorder import StepRecorder
from neuroshard.torchrec.two_dimensional import dmp_collection_arguments

__all__ = [
    "FeatureStatistics",
    "FittedPerfConfig",
    "MeasuredPerfConfig",
    "MeasuredPerfEstimator",
    "MeasuredReservation",
    "NeuroShardPlanner",
    "RowPositions",
    "StepRecord",
    "StepRecorder",
    "dmp_collection_arguments",
    "load_plan",
    "reserve_from",
    "reshard_delta",
    "save_plan",
    "statistics",
    "write_cost_model",
]
