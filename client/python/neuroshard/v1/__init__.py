"""The messages of the API (proto/neuroshard/v1), generated when the package is built: `neuroshard.v1.ShardPlanRequest`.

Fields, units and ranges: the comments in the .proto files.
"""

from neuroshard.v1.constraints_pb2 import *
from neuroshard.v1.cost_pb2 import *
from neuroshard.v1.migration_pb2 import *
from neuroshard.v1.plan_pb2 import *
from neuroshard.v1.planner_pb2 import *
from neuroshard.v1.report_pb2 import *
from neuroshard.v1.search_pb2 import *
from neuroshard.v1.table_pb2 import *
from neuroshard.v1.topology_pb2 import *
from neuroshard.v1.what_if_pb2 import *
from neuroshard.v1.worker_pb2 import *
