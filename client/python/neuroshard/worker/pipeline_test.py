"""Two of these workers where neuroshard-worker would be: measured, learned from, planned for, validated on.

    NEUROSHARD_BIN=build/release/bin PYTHONPATH=client/python/testing python client/python/neuroshard/worker/pipeline_test.py
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any, List

from worker_process import WorkerProcess

ROOT = pathlib.Path(__file__).resolve().parents[4]
TABLES = ROOT / "configs/workloads/dlrm_2021_tables856.csv"
DMP_STEPS = ROOT / "bench/pytorch/dmp_steps.py"
BINARIES = os.environ.get("NEUROSHARD_BIN")
SETTINGS = "{warmup_iterations: 1, min_iterations: 3, max_iterations: 6, target_relative_error: 0.1, max_time_ms: 100, flush_cache: false}"
COMPUTE_SWEEP = f"""
kind: compute
num_samples: 40
tables: {TABLES}
dims: [64, 16, 4]
min_tables: 1
max_tables: 6
max_weights_bytes: 33554432
batch_sizes: [128, 512]
optimizers: [sgd, adagrad, rowwise_adagrad]
weighted: 0.25
weight_dtypes: [fp32, fp16]
settings: {SETTINGS}
"""
COMM_SWEEP = f"""
kind: comm
num_samples: 6
num_ranks: [2]
collectives: [all_to_all, reduce_scatter, all_gather, all_reduce]
batch_sizes: [128, 512]
dims: [64, 16, 4]
min_tables: 2
max_tables: 8
max_start_offset: 3
settings: {SETTINGS}
"""
TRAINING = """
preset: universal
max_epochs: 20
comm: {max_epochs: 20}
"""


@unittest.skipUnless(BINARIES, "NEUROSHARD_BIN is not set to the folder of neuroshard, neuroshard-planner and neuroshard-pretrain")
class PipelineTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.workers = []
        for _ in range(2):
            self.workers.append(WorkerProcess())
            self.addCleanup(self.workers[-1].end)
        self.to_workers = ["--workers", ",".join(worker.address for worker in self.workers)]

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run_binary(self, *command: Any) -> str:
        done = subprocess.run([pathlib.Path(BINARIES, command[0]), *map(str, command[1:])], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def run_script(self, *command: Any) -> str:
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def request(self, rows: List[dict]) -> str:
        tables = [{"name": "t" + row["index"], "num_embeddings": int(row["row"]), "embedding_dim": (4, 16, 64)[i % 3],
                   "pooling_factor": float(row["pooling_factor"]), "reuse_histogram": [float(row[f"bin_{k}"]) for k in range(17)]}
                  for i, row in enumerate(rows)]
        # A table each, whatever noise the model has learned: a rank without tables has a stage of 0 ms.
        one_each = [{"tables": [table["name"]], "ranks": [rank]} for rank, table in enumerate(tables[:2])]
        return json.dumps({"tables": tables, "global_batch_size": 512, "optimizer": "rowwise_adagrad",
                           "constraints": {"sharding_types": ["table_wise", "column_wise", "row_wise"], "column_rule": "torchrec", "min_column_width": 16,
                                           "tables": one_each},
                           "topology": {"compute_device": "cpu", "hosts": [{"num_devices": 2, "memory_bytes": 1 << 30}]}})

    def test_from_measurements_to_a_validated_plan(self) -> None:
        with open(TABLES, encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if int(row["row"]) < 50_000][:9]
        store, models = self.folder / "store.db", self.folder / "models"
        self.run_binary("neuroshard", "sweep", "compute", self.write("compute.yaml", COMPUTE_SWEEP), *self.to_workers, "--store", store)
        self.run_binary("neuroshard", "sweep", "comm", self.write("comm.yaml", COMM_SWEEP), *self.to_workers, "--store", store)
        self.run_binary("neuroshard-pretrain", "train", "--store", store, "--config", self.write("train.yaml", TRAINING), "--out", models / "fbgemm" / "1")
        planner = subprocess.Popen([pathlib.Path(BINARIES, "neuroshard-planner"), "--models", models, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(planner.communicate)
        self.addCleanup(planner.kill)
        to_planner = ["--planner", planner.stdout.readline().split()[-1]]
        request, plan = self.write("request.json", self.request(rows)), self.folder / "plan.json"
        self.run_binary("neuroshard", "plan", request, *to_planner, "--format", "json", "--out", plan)
        validate = ["validate", request, plan, *to_planner, *self.to_workers, "--max-time-ms", "200", "--format", "json"]
        report = json.loads(self.run_binary("neuroshard", *validate))

        self.assertEqual((report["measured_with"]["backend"], report["measured_with"]["collective_backend"]), ("fbgemm", "torch-gloo"))
        self.assertEqual(json.loads(plan.read_text())["cost"]["measured_with"], report["measured_with"])
        self.assertEqual([rank["problem"] for rank in report["ranks"]], ["", ""])
        self.assertTrue(all(stage["measured_ms"] > 0 for rank in report["ranks"] for stage in rank["stages"].values()), report["ranks"])
        self.assertEqual(report["notes"], [])

        steps = json.loads(self.run_script(DMP_STEPS, request, plan, "--steps", "5", "--format", "json"))
        self.assertEqual(len(steps["ranks"]), 2)
        print(f"embedding part of a DMP step: predicted {steps['predicted_ms']:.2f} ms, measured {steps['measured_ms']:.2f} ms, "
              f"error {100 * steps['relative_error']:+.0f} %")


if __name__ == "__main__":
    unittest.main()
