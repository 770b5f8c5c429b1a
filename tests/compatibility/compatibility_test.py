#!/usr/bin/env python3
"""What releases wrote stays readable: their API, stores, cost models, requests and plans, a folder a release beside this file.

    compatibility_test.py BIN                # the programs in BIN, and the protos of this tree, against every release; CI runs it
    compatibility_test.py BIN --record X.Y.Z # makes the folder of a release, once, when it is made: measures, plans, copies

API: whatever a release had is still there, with the same numbers, names, types and presence; additions are free. Names count because requests are
files as well (JSON and YAML by field names).
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from google.protobuf import descriptor_pb2

from planner_process import PlannerProcess, ServerProcess, list_files

BIN = pathlib.Path(sys.argv[1])
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASES = sorted(folder for folder in HERE.iterdir() if (folder / "api.binpb").exists())
SWEEPS = {
    "compute": """kind: compute
num_samples: 6
tables: tables.csv
max_tables: 2
max_weights_bytes: 16777216
batch_size: 64
settings: {warmup_iterations: 1, min_iterations: 2, max_iterations: 2}
""",
    "comm": """kind: comm
num_samples: 3
num_ranks: [2]
batch_size: 64
dims: [16, 4]
min_tables: 2
max_tables: 8
settings: {warmup_iterations: 1, min_iterations: 2, max_iterations: 2}
""",
}
REQUEST = """tables:
  - {name: users, num_embeddings: 1000000, embedding_dim: 64, pooling_factor: 3}
  - {name: items, num_embeddings: 50000, embedding_dim: 32, pooling_factor: 20, zipf_exponent: 1.05}
  - {name: ads, num_embeddings: 200000, embedding_dim: 16, pooling_factor: 7}
topology:
  hosts: [{num_devices: 2, memory_bytes: 1GiB}]
global_batch_size: 1024
optimizer: rowwise_adagrad
constraints: {tables: [{tables: [items], max_shards: 2, forbidden_ranks: [1]}]}
"""


def api_of_this_tree():
    """FileDescriptorSet of proto/neuroshard/v1."""
    with tempfile.NamedTemporaryFile() as out:
        protos = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto/neuroshard/v1").glob("*.proto"))
        subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={out.name}", *protos], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())


def facts_of_message(name, message, facts):
    for field in message.field:
        # A oneof of one proto3 optional field is presence, not choice; both change what absent means.
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        facts[f"{name} field {field.number}"] = (field.name, field.json_name, field.Type.Name(field.type), field.Label.Name(field.label), field.type_name, oneof)
    facts[f"message {name}"] = ()
    for nested in message.nested_type:
        facts_of_message(f"{name}.{nested.name}", nested, facts)
    for enum in message.enum_type:
        facts_of_enum(f"{name}.{enum.name}", enum, facts)


def facts_of_enum(name, enum, facts):
    facts[f"enum {name}"] = ()
    for value in enum.value:
        facts[f"{name} value {value.number}"] = (value.name,)


def facts_of(api):
    """What callers of an API rely on, by the name of the thing."""
    facts = {}
    for file in api.file:
        for message in file.message_type:
            facts_of_message(f"{file.package}.{message.name}", message, facts)
        for enum in file.enum_type:
            facts_of_enum(f"{file.package}.{enum.name}", enum, facts)
        for service in file.service:
            for method in service.method:
                facts[f"rpc {file.package}.{service.name}.{method.name}"] = (
                    method.input_type, method.output_type, method.client_streaming, method.server_streaming)
    return facts


def faults(released, now):
    """What a caller of `released` would no longer find in `now`."""
    before, after = facts_of(released), facts_of(now)
    return [f"{thing} was {fact}, is {after.get(thing, 'gone')}" for thing, fact in before.items() if after.get(thing) != fact]


def run(program, *arguments, check=True):
    done = subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f"{program} {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def record(version):
    folder = HERE / version
    folder.mkdir()
    (folder / "api.binpb").write_bytes(api_of_this_tree().SerializeToString(deterministic=True))
    for name in ("1", "4"):  # a model of each kind, without its pictures
        shutil.copytree(ROOT / "configs/models/cpu-amd-epyc" / name, folder / "models/cpu-amd-epyc" / name, ignore=shutil.ignore_patterns("*.svg", "*.md"))
        list_files(folder / "models/cpu-amd-epyc" / name)
    (folder / "request.yaml").write_text(REQUEST)
    with ServerProcess(BIN / "neuroshard-worker", "--listen", "127.0.0.1:0", "--cpu-devices", "2") as worker:
        with tempfile.TemporaryDirectory() as sweeps:
            shutil.copy(ROOT / "configs/workloads/dlrm_2021_tables856.csv", f"{sweeps}/tables.csv")
            for kind, text in SWEEPS.items():
                sweep = pathlib.Path(sweeps, f"{kind}.yaml")
                sweep.write_text(text)
                run("neuroshard", "sweep", kind, sweep, "--workers", worker.address, "--store", folder / "store.db")
    with PlannerProcess(BIN / "neuroshard-planner", models=folder / "models") as planner:
        run("neuroshard", "plan", folder / "request.yaml", "--planner", planner.address, "--format", "json", "--out", folder / "plan.json")


class CompatibilityTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.assertTrue(RELEASES)

    def copies(self):
        """Of the releases' folders: reading a store may bring it up to date."""
        return [shutil.copytree(release, self.scratch / release.name) for release in RELEASES]

    def test_a_changed_api_is_seen(self):
        def change(edit):
            api = descriptor_pb2.FileDescriptorSet.FromString((RELEASES[0] / "api.binpb").read_bytes())
            planner = next(file for file in api.file if file.name.endswith("/planner.proto"))
            edit(planner, next(message for message in planner.message_type if message.name == "ShardPlanRequest"))
            return faults(descriptor_pb2.FileDescriptorSet.FromString((RELEASES[0] / "api.binpb").read_bytes()), api)

        self.assertEqual(change(lambda file, message: message.field.add(name="new", number=9999)), [])
        edits = {
            "number": lambda file, message: setattr(message.field[0], "number", 9999),
            "name": lambda file, message: setattr(message.field[0], "name", "other"),
            "type": lambda file, message: setattr(message.field[0], "type", message.field[0].TYPE_BYTES),
            "label": lambda file, message: setattr(message.field[0], "label", 4 - message.field[0].label),
            "gone field": lambda file, message: message.field.pop(),
            "gone message": lambda file, message: file.message_type.pop(),
            "gone method": lambda file, message: file.service[0].method.pop(),
            "streaming": lambda file, message: setattr(file.service[0].method[0], "client_streaming", True),
        }
        for name, edit in edits.items():
            self.assertNotEqual(change(edit), [], name)

    def test_the_api_of_releases_is_still_there(self):
        now = api_of_this_tree()
        for release in RELEASES:
            self.assertEqual(faults(descriptor_pb2.FileDescriptorSet.FromString((release / "api.binpb").read_bytes()), now), [], release.name)

    def test_stores_and_models_of_releases_are_read(self):
        for release in self.copies():
            findings = run("neuroshard", "doctor", "--store", release / "store.db", "--planner", "127.0.0.1:1", check=False)
            self.assertIn("is whole; 2 sweeps, 12 measured samples", " ".join(findings.split()))
            for model in sorted((release / "models").glob("*/*")):
                priced = json.loads(run("neuroshard-pretrain", "evaluate", "--model", model, "--store", release / "store.db", "--format", "json"))
                self.assertTrue(priced, model)

    def test_requests_and_plans_of_releases_are_read_and_the_models_served(self):
        for release in self.copies():
            with PlannerProcess(BIN / "neuroshard-planner", models=release / "models") as planner:
                listed = json.loads(run("neuroshard", "models", "list", "--planner", planner.address, "--format", "json"))
                self.assertEqual(listed["refused"], [])
                versions = {(model["name"], model["version"]) for model in listed["models"] if model["kind"] != "analytic"}
                self.assertEqual(len(versions), len(list((release / "models").glob("*/*"))), listed)
                run("neuroshard", "evaluate", release / "request.yaml", release / "plan.json", "--planner", planner.address)
                run("neuroshard", "plan", release / "request.yaml", "--previous", release / "plan.json", "--planner", planner.address)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--record"]:
        record(sys.argv[3])
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
