"""What the package says of itself, that nothing of the API is missing, and that what the README shows runs.

  package_test.py PLANNER     path of neuroshard-planner
"""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from planner_process import MODELS, PlannerProcess

import neuroshard
from neuroshard import v1


class PackageTest(unittest.TestCase):
    def test_version_is_the_projects(self):
        said = subprocess.run([PLANNER, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(neuroshard.__version__, said.split()[0])

    def test_every_message_is_in_v1(self):
        names = {
            name
            for module in pkgutil.iter_modules(v1.__path__) if module.name.endswith("_pb2")
            for name in importlib.import_module(f"neuroshard.v1.{module.name}").DESCRIPTOR.message_types_by_name
        }
        self.assertIn("ShardPlanRequest", names)
        self.assertEqual({name for name in names if not hasattr(v1, name)}, set())

    def test_sources_without_messages_say_how_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.dirname(neuroshard.__file__), os.path.join(folder, "neuroshard"), ignore=shutil.ignore_patterns("*_pb2*", "__pycache__"))
            done = subprocess.run([sys.executable, "-B", "-c", "import neuroshard"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": folder})
        self.assertRegex(done.stderr.splitlines()[-1], "^ImportError: neuroshard: its messages are not generated here.*pip install ./client/python")

    def test_the_readme_runs(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "README.md"), encoding="utf-8") as file:
            sections = {section.split("\n")[0]: re.findall(r"```python\n(.*?)```", section, re.S) for section in file.read().split("\n## ")}
        (five_lines,), (plan,), (errors,), (streamed,) = (sections[name] for name in ("No server", "A plan", "Errors", "asyncio"))
        program = "\n".join([
            plan, "planner = neuroshard.PlannerClient('127.0.0.1:50051')", errors, "request['tables'][0]['embedding_dim'] = -4", errors, "import asyncio",
            "async def main():", textwrap.indent(streamed, "    "), "request['tables'][0]['embedding_dim'] = 128", "asyncio.run(main())",
        ])
        with PlannerProcess(PLANNER) as planner:
            program = program.replace("127.0.0.1:50051", planner.address)
            done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with tempfile.TemporaryDirectory(prefix="ns-") as folder:
            environment = {**os.environ, "TMPDIR": folder, "NEUROSHARD_BIN": os.path.dirname(PLANNER), "NEUROSHARD_MODELS": MODELS}
            embedded = subprocess.run([sys.executable, "-B", "-c", five_lines], env=environment, capture_output=True, text=True, check=False)
        self.assertRegex(embedded.stdout, r"^users \w+ \[.*\]\n$", embedded.stderr)
        self.assertRegex(done.stdout, r"^users \w+ \[.*\]\ngoods .*\n(.*\n)*tables\[0\]\.embedding_dim must be at least 1, got -4\n(.*\n)*1\.0 \d")


if __name__ == "__main__":
    PLANNER = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
