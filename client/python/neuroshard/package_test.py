"""What the package says of itself, and that nothing of the API is missing.

  package_test.py PLANNER     path of neuroshard-planner
"""

import importlib
import pkgutil
import subprocess
import sys
import unittest

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


if __name__ == "__main__":
    PLANNER = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
