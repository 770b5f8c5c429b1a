"""The messages of the API (proto/neuroshard/v1), generated when the package is built: `neuroshard.v1.ShardPlanRequest`.

Fields, units and ranges: the comments in the .proto files.
"""

try:
    from neuroshard.v1.constraints_pb2 import *
except ModuleNotFoundError as fault:
    if fault.name != "neuroshard.v1.constraints_pb2":
        raise
    raise ImportError("neuroshard: its messages are not generated here, as in a checkout: pip install ./client/python (or -e, to change it) does so") from None
from neuroshard.v1.answers_pb2 import *
from neuroshard.v1.cost_pb2 import *
from neuroshard.v1.migration_pb2 import *
from neuroshard.v1.plan_pb2 import *
from neuroshard.v1.planner_pb2 import *
from neuroshard.v1.report_pb2 import *
from neuroshard.v1.search_pb2 import *
from neuroshard.v1.status_pb2 import *
from neuroshard.v1.table_pb2 import *
from neuroshard.v1.topology_pb2 import *
from neuroshard.v1.what_if_pb2 import *
from neuroshard.v1.worker_pb2 import *
