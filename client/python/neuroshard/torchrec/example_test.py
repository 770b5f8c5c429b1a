"""The example that trains does so, and the tour shows what it promises; without a server.

  example_test.py PLANNER     path of neuroshard-planner
"""

import os
import re
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from planner_process import MODELS

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def open_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class ExampleTest(unittest.TestCase):
    def run_in(self, folder, command):
        """Its stdout. The embedded planner ends with it."""
        environment = {**os.environ, "TMPDIR": folder, "NEUROSHARD_BIN": os.path.dirname(PLANNER), "NEUROSHARD_MODELS": MODELS}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        give_up = time.monotonic() + 30
        while list(pathlib.Path(folder).glob("neuroshard-*/*.sock")):
            self.assertLess(time.monotonic(), give_up, "the planner is left")
        return done.stdout

    def test_the_tour(self):
        with tempfile.TemporaryDirectory(prefix="ns-") as folder:
            shown = self.run_in(folder, [sys.executable, os.path.join(PACKAGE, "examples", "tour.py")])
            self.assertRegex(shown, r"NeuroShardPlanner: [\d.]+ s\nplan of 24 tables on 8 ranks \(h100-sxm\)")
            ours, theirs = (re.search(rf"^{name} +([\d.]+) +([\d.]+) +\d+%$", shown, re.MULTILINE).groups() for name in ("NeuroShardPlanner", "other plan"))
            self.assertTrue(all(float(mine) <= float(other) for mine, other in zip(ours, theirs)), shown)
            cards = re.findall(r"(?m)^([\w-]+): ([\d.]+) ms by TorchRec's formulas, the fullest device \d+% full$", shown)
            self.assertEqual(["a100-sxm-80gb", "h100-sxm", "b200"], [name for name, _ in cards])
            costs = [float(cost) for _, cost in cards]
            self.assertTrue(costs[0] > costs[1] > costs[2], "each card is priced by its own figures: " + shown)
            self.assertIn("<html", open_text(os.path.join(folder, "plan.html")))

    def test_the_loss_falls(self):
        with tempfile.TemporaryDirectory(prefix="ns-") as folder:
            example = os.path.join(PACKAGE, "examples", "train_dlrm.py")
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", example]
            shown = self.run_in(folder, command)
            losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", shown, re.MULTILINE)]
            self.assertEqual(len(losses), 20, shown)
            self.assertLess(losses[-1], 0.5 * losses[0])
            self.assertTrue(os.path.exists(f"{folder}/plan.json"))


if __name__ == "__main__":
    PLANNER = sys.argv[1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
