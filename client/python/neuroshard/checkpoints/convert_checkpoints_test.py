"""Checkpoints of PyTorch become models that compute what PyTorch computed (testdata/expected.json), or say why not."""

import csv
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "testdata")
TABLES = os.path.join(HERE, "..", "..", "..", "..", "configs", "workloads", "dlrm_2021_tables856.csv")


def data(name):
    return os.path.join(DATA, name)


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    tensors = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", content[begin:end]))
    return tensors


def run(tensors, prefix, x, relu_after_last):
    """A stack of layers in doubles, by its definition."""
    count = sum(1 for name in tensors if name.startswith(prefix + ".") and name.endswith(".weight"))
    for i in range(count):
        (units, inputs), weights = tensors[f"{prefix}.{i}.weight"]
        bias = tensors[f"{prefix}.{i}.bias"][1]
        x = [sum(weights[u * inputs + k] * x[k] for k in range(inputs)) + bias[u] for u in range(units)]
        if i + 1 < count or relu_after_last:
            x = [max(value, 0.0) for value in x]
    return x


def normalised(tensors, x):
    return [(value - mean) / std for value, mean, std in zip(x, tensors["feature_mean"][1], tensors["feature_std"][1])]


class ConvertCheckpointsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(data("expected.json"), encoding="utf-8") as file:
            cls.expected = json.load(file)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(folder.name, "models")

    def convert(self, *options, out="orig/1"):
        command = [sys.executable, "-B", "-m", "neuroshard.checkpoints.convert_checkpoints", "--out", os.path.join(self.root, out), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def converted(self, *options):
        done = self.convert(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return os.path.join(self.root, "orig", "1")

    def assert_refused(self, words, *options, out="orig/1", code=1):
        done = self.convert(*options, out=out)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.root, out)))

    def file(self, name, content):
        path = os.path.join(os.path.dirname(self.root), name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def test_converted_networks_compute_what_pytorch_computed(self):
        model = self.converted("--models", DATA)
        compute = read_safetensors(os.path.join(model, "compute.safetensors"))
        tables = [run(compute, "table", normalised(compute, row), True) for row in self.expected["tables"]]
        for case in self.expected["compute"]:
            total = [sum(tables[t][k] for t in case["tables"]) for k in range(len(tables[0]))]
            self.assertAlmostEqual(run(compute, "head", total, False)[0] / case["total_ms"], 1, delta=1e-5)
        for case in self.expected["comm"]:
            direction = {"fw": "forward", "bw": "backward"}[case["direction"]]
            comm = read_safetensors(os.path.join(model, f"{direction}_comm_{case['devices']}.safetensors"))
            for cost, expected in zip(run(comm, "layer", normalised(comm, case["inputs"]), False), case["cost_ms"], strict=True):
                self.assertAlmostEqual(cost, expected, delta=1e-5 * max(1, abs(expected)))

    def test_the_older_file_format_makes_the_same_model(self):
        new = read_safetensors(os.path.join(self.converted("--compute", data("compute.pt")), "compute.safetensors"))
        old = read_safetensors(os.path.join(self.converted("--compute", data("compute_legacy.pt"), "--replace"), "compute.safetensors"))
        self.assertEqual(new, old)

    def test_layers_and_statistics_under_other_names(self):
        features = "bin_0,bin_1,bin_2,bin_3,bin_4,bin_5,bin_6,bin_7,bin_8,bin_9,bin_10,bin_11,bin_12,bin_13,bin_14,bin_15,bin_16,row,pooling_factor,dim"
        stats = self.file("stats.json", json.dumps({"m": list(range(20)), "s": [2] * 20}))
        model = self.converted("--compute", data("other_names.pt"), "--table-layers", "embed", "--head-layers", "out", "--features", features,
                               "--compute-stats", stats, "--mean-key", "m", "--std-key", "s", "--optimizer", "adam", "--global-batch-size", "512")
        tensors = read_safetensors(os.path.join(model, "compute.safetensors"))
        self.assertEqual(tensors["feature_mean"], ([20], tuple(range(20))))
        self.assertEqual(list(tensors["table.0.weight"][1]), sum(self.expected["other_names"]["embed.weight"], []))
        with open(os.path.join(model, "model.yaml"), encoding="utf-8") as file:
            manifest = file.read()
        self.assertIn('"optimizer": "adam"', manifest)
        self.assertIn('"bin_16", "row", "pooling_factor", "dim"', manifest)

    def test_statistics_of_the_tables_are_those_of_the_augmented_tables(self):
        model = self.converted("--compute", data("other_names.pt"), "--table-layers", "embed", "--head-layers", "out", "--tables", TABLES)
        tensors = read_safetensors(os.path.join(model, "compute.safetensors"))
        with open(TABLES, newline="", encoding="utf-8") as file:
            rows = [float(row["row"]) for row in csv.DictReader(file)] * 6
        dims = [128, 64, 32, 16, 8, 4] * (len(rows) // 6)
        for place, values in ((17, dims), (19, rows)):  # dim, row
            mean = sum(values) / len(values)
            std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) + 1e-6
            self.assertAlmostEqual(tensors["feature_mean"][1][place] / mean, 1, delta=1e-6)
            self.assertAlmostEqual(tensors["feature_std"][1][place] / std, 1, delta=1e-6)
        self.assertGreater(min(tensors["feature_std"][1]), 0)

    def test_a_model_that_is_there_stays_unless_told(self):
        model = self.converted("--compute", data("compute.pt"))
        done = self.convert("--compute", data("compute.pt"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("exists already", done.stderr)
        self.converted("--models", DATA, "--replace")
        self.assertEqual(sorted(os.listdir(os.path.dirname(model))), ["1"])  # nothing is left beside it
        self.assertIn("forward_comm_4.safetensors", os.listdir(model))

    def test_faults_are_named_and_leave_nothing(self):
        compute, forward, backward = data("compute.pt"), data("comm_4_fw.pt"), data("comm_4_bw.pt")
        self.assert_refused("--models or --compute", code=2)
        self.assert_refused("each of bin_0", "--compute", compute, "--features", "dim,dim", code=2)
        self.assert_refused("must end in a version", "--compute", compute, out="orig/01")
        self.assert_refused("is no name of a model", "--compute", compute, out=".orig/1")
        self.assert_refused("has no compute.pt", "--models", HERE)
        self.assert_refused("has no layers t_hidden.0", "--compute", forward)
        self.assert_refused("not a dict with a state_dict", "--compute", data("dataset.pt"))
        self.assert_refused("__main__.Compute is refused", "--compute", data("whole_module.pt"))
        self.assert_refused("has no 'model'", "--compute", compute, "--state-key", "model")
        self.assert_refused("20 inputs and --features names 1", "--compute", compute, "--features", "dim")
        self.assert_refused("--outputs names 2", "--compute", compute, "--outputs", "forward_ms,backward_ms")
        self.assert_refused("give --tables or --compute-stats", "--compute", data("other_names.pt"), "--table-layers", "embed", "--head-layers", "out")
        self.assert_refused("the layer before gives 4", "--compute", compute, "--table-layers", "t_hidden.0,t_hidden.1,t_hidden.0")
        self.assert_refused("has no tensor deep.weight", "--compute", compute, "--head-layers", "deep")
        self.assert_refused("start offsets of 4 devices would be 8", "--compute", compute, "--forward-comm", backward)
        self.assert_refused("dim sums of 4 devices would be 4", "--compute", compute, "--backward-comm", forward)
        self.assert_refused("two backward", "--compute", compute, "--backward-comm", backward, "--backward-comm", backward)
        short = self.file("short.json", json.dumps({"feature_means": [1], "feature_stds": [1]}))
        self.assert_refused("their mean has 1 values", "--compute", compute, "--compute-stats", short)
        zero = self.file("zero.json", json.dumps({"feature_means": [0] * 20, "feature_stds": [0] * 20}))
        self.assert_refused("not above 0", "--compute", compute, "--compute-stats", zero)
        huge = self.file("huge.json", json.dumps({"feature_means": [1e39] * 20, "feature_stds": [1] * 20}))
        self.assert_refused("not finite in float32", "--compute", compute, "--compute-stats", huge)
        self.assert_refused("no table of numbers", "--compute", compute, "--tables", self.file("bad.csv", "row\nx\n"))
        self.assertFalse(os.path.exists(self.root) and os.listdir(os.path.join(self.root, "orig")))

    def test_one_direction_alone_is_said(self):
        done = self.convert("--compute", data("compute.pt"), "--forward-comm", data("comm_4_fw.pt"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("plans for 4 ranks cannot be priced", done.stderr)


if __name__ == "__main__":
    unittest.main()
