"""A planner with a converted model prices plans as PyTorch priced them (testdata/expected.json).

  served_model_test.py PLANNER     path of neuroshard-planner
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from planner_process import PlannerProcess

import neuroshard

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "testdata")
# Columns of expected.json's tables, which are the network's.
BINS = sorted(f"bin_{i}" for i in range(17))


def request(tables, devices):
    described = []
    for i, features in enumerate(tables):
        by_name = dict(zip(BINS, features))
        described.append({
            "name": f"t{i}", "num_embeddings": int(features[19]), "embedding_dim": int(features[17]), "pooling_factor": features[18],
            "reuse_histogram": [by_name[f"bin_{k}"] for k in range(17)],
        })
    topology = {"hosts": [{"num_devices": devices, "memory_bytes": 1 << 36}]}
    return {"global_batch_size": 65536, "optimizer": "sgd", "topology": topology, "tables": described}


def plan(tables, assignment, devices):
    placed = []
    for i, (features, rank) in enumerate(zip(tables, assignment)):
        shard = {"row_offset": 0, "rows": int(features[19]), "col_offset": 0, "cols": int(features[17]), "rank": rank}
        placed.append({"name": f"t{i}", "sharding_type": "table_wise", "compute_kernel": "fused", "shards": [shard]})
    return {"world_size": devices, "local_world_size": devices, "tables": placed}


class ServedModelTest(unittest.TestCase):
    def test_plans_cost_what_pytorch_says(self):
        with open(os.path.join(DATA, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)
        with tempfile.TemporaryDirectory() as folder:
            convert = [sys.executable, "-B", "-m", "neuroshard.checkpoints.convert_checkpoints", "--models", DATA, "--out", f"{folder}/models/orig/1"]
            subprocess.run(convert, check=True, capture_output=True)
            with PlannerProcess(PLANNER, models=f"{folder}/models") as planner, neuroshard.PlannerClient(planner.address) as client:
                for case in expected["plans"]:
                    self.check(client, expected["tables"], case)

    def check(self, client, tables, case):
        ranks = client.evaluate(request(tables, case["devices"]), plan(tables, case["assignment"], case["devices"])).cost.ranks
        self.assertEqual(len(ranks), case["devices"])
        for stage in ("compute_ms", "backward_comm_ms", "forward_comm_ms"):
            for rank, wanted in zip(ranks, case[stage]):
                self.assertAlmostEqual(getattr(rank, stage), wanted, delta=1e-5 * max(1, abs(wanted)), msg=f"{case['devices']} devices, {stage}")


if __name__ == "__main__":
    PLANNER = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
