"""Arguments of DMPCollection from a real what-if answer, and that TorchRec forms the groups that were priced.

  two_dimensional_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

from planner_process import PlannerProcess
from torchrec.distributed import model_parallel

from neuroshard.torchrec import dmp_collection_arguments

REQUEST = {
    "tables": [{"name": f"t{i}", "num_embeddings": 100000, "embedding_dim": 64, "pooling_factor": 4, "zipf_exponent": 1} for i in range(8)],
    "topology": {"hosts": [{"num_devices": 1, "memory_bytes": 1}]},
}
WHAT_IF = {
    "topologies": [
        {
            "name": "two hosts",
            "topology": {"hosts": [{"count": 2, "num_devices": 4, "device": "h100-sxm"}]},
            "two_dimensional": {"sharding_group_sizes": [4, 8], "sync_interval_batches": 1000000},
        }
    ]
}


def torchrec_groups(world_size, sharding_group_size, use_inter_host_allreduce, **_):
    """The ranks of each group, by DMPCollection's own code."""
    with mock.patch.object(model_parallel, "DeviceMesh") as mesh:
        model_parallel.DMPCollection._create_process_groups(
            types.SimpleNamespace(_device=types.SimpleNamespace(type="cuda")), 0, world_size, sharding_group_size, use_inter_host_allreduce
        )
    return mesh.call_args.kwargs["mesh"]


class DmpCollectionArgumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder, PlannerProcess(PLANNER) as planner:
            paths = [os.path.join(folder, name) for name in ("request.json", "what_if.json")]
            for path, content in zip(paths, (REQUEST, WHAT_IF)):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(content, file)
            command = [CLIENT, "plan", paths[0], "--what-if", paths[1], "--planner", planner.address, "--format", "json"]
            cls.answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

    def test_are_arguments_of_torchrec_and_groups_on_the_hosts_that_were_priced(self):
        taken = inspect.signature(model_parallel.DMPCollection.__init__).parameters
        alternating = dmp_collection_arguments(self.answer, "two hosts in groups of 4")
        contiguous = dmp_collection_arguments(self.answer, "two hosts in contiguous groups of 4")
        self.assertLessEqual(set(alternating), set(taken))
        self.assertEqual(torchrec_groups(**alternating), [[0, 2, 4, 6], [1, 3, 5, 7]])
        self.assertEqual(alternating["node_group_size"], 2)
        self.assertEqual(torchrec_groups(**contiguous), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(contiguous["node_group_size"], 4)

    def test_the_fastest_without_a_name(self):
        fastest = max(self.answer["rows"], key=lambda row: row["samples_per_second"])
        self.assertEqual(dmp_collection_arguments(self.answer), dmp_collection_arguments(self.answer, fastest["name"]))

    def test_one_group_and_unknown_rows_are_refused(self):
        with self.assertRaisesRegex(ValueError, "DistributedModelParallel"):
            dmp_collection_arguments(self.answer, "two hosts in groups of 8")
        with self.assertRaisesRegex(ValueError, "0 rows .* 'two hosts in groups of 4'"):
            dmp_collection_arguments(self.answer, "three hosts")


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    PLANNER = sys.argv.pop()
    unittest.main()
