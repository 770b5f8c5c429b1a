"""Reports of real plans in headless Chromium: nothing runs, nothing is asked for, nothing is cut off on a phone.

    report_browser_test.py NEUROSHARD_PLANNER NEUROSHARD

Exits 77, which ctest shows as skipped, where no chromium is installed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import CHROMIUM, Browser
from planner_process import PlannerProcess

ROOT = next(p for p in pathlib.Path(__file__).resolve().parents if (p / "configs").is_dir())
WORKLOADS = ROOT / "configs/workloads"
MODEL = ROOT / "configs/models/cpu-amd-epyc/3"
WIDTHS = (360, 800, 1280)
SKIPPED = 77

PLANNER, NEUROSHARD = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


# What is scrolled inside the page.
SCROLLING = """
[...document.querySelectorAll("body *")].filter(e => ["auto", "scroll"].includes(getComputedStyle(e).overflowY) && e.scrollHeight > e.clientHeight + 1).length
"""

# Elements that are cut off or reach out of the window, with every detail open, but for wide tables, which may be scrolled where there is room for them at all.
OVERFLOWING = """
document.querySelectorAll("details").forEach(e => e.open = true);
[...document.querySelectorAll("body *")].filter(e => !(e.closest(".sideways") && innerWidth > 640) && !e.closest("svg")
  && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)
  && e.getBoundingClientRect().width > 0).slice(0, 5).map(e => e.outerHTML.slice(0, 120))
"""


class ReportBrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.planner = PlannerProcess(PLANNER)
        cls.addClassCleanup(cls.planner.stop)
        cls.browser = Browser(cls.folder / "profile")
        cls.addClassCleanup(cls.browser.close)

    def plan(self, name, request, *options):
        path = self.folder / f"{name}.json"
        command = [NEUROSHARD, "plan", request, "--planner", self.planner.address, "--format", "json", "--out", path, *options]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return path

    def report(self, *arguments):
        path = self.folder / "report.html"
        script = self.folder / "bin/neuroshard-report"  # as pip installs it
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -B -m neuroshard.report "$@"\n')
        script.chmod(0o755)
        environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}
        subprocess.run([NEUROSHARD, "report", *map(str, arguments), "--out", path], check=True, stderr=subprocess.DEVNULL, env=environment)
        return path

    def check(self, path):
        """At every width, light and dark."""
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
                self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                events = self.browser.open(path.as_uri())
                asked = [e["params"]["request"]["url"] for e in events if e.get("method") == "Network.requestWillBeSent"]
                self.assertEqual(asked, [path.as_uri()])
                wrong = [e for e in events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
                self.assertEqual(wrong, [])
                self.assertEqual(self.browser.value(OVERFLOWING), [], f"{path.name} at {width} px")
                self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)
                self.assertEqual(self.browser.value(SCROLLING), 0)
        self.browser.open(path.as_uri())
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(self.browser.value("[...document.querySelectorAll('.printed table')].filter(e => e.checkVisibility()).length"),
                         self.browser.value("document.querySelectorAll('.printed table').length"))
        self.browser.call("Emulation.setEmulatedMedia", media="")

    def test_a_plan_beside_another_and_beside_measurements(self):
        request = WORKLOADS / "quickstart_2x2gib.yaml"
        plan, other = self.plan("plan", request, "--explain"), self.plan("other", request, "--strategy", "size_greedy")
        answer = json.loads(plan.read_text())
        comparison = {"predicted_ms": 1.5, "measured_ms": 2.0, "relative_error": -0.25, "interval": {"low_ms": 1.2, "high_ms": 1.9}, "inside": False}
        ranks = [{"rank": r["rank"], "worker": "127.0.0.1:1", "device": 0, "problem": "", "stages": {s: comparison for s in ("compute", "total")},
                  "measured_forward_compute_ms": None, "measured_backward_compute_ms": None, "measured_start_offset_ms": 0} for r in answer["cost"]["ranks"]]
        validation = self.folder / "validation.json"
        validation.write_text(json.dumps({"ranks": ranks, "collectives": [], "measured_with": {"device": "d", "backend": "b", "collective_backend": ""},
                                          "embedding_cost": comparison, "notes": []}))
        self.check(self.report(plan, "--compare", other, "--measured", validation))
        shown = self.browser.value("document.body.innerText")
        for text in ("Before and after", "Predicted and measured", f"{answer['cost']['embedding_cost_ms']:.3f}", answer["request_fingerprint"]):
            self.assertIn(text, shown)

    def test_constraints_and_devices_that_differ(self):
        self.check(self.report(self.plan("plan", WORKLOADS / "constraints_2x4.yaml", "--explain")))

    def test_many_tables_on_many_ranks(self):
        request = {
            "tables": [
                {"name": f"a_rather_long_name_{i}", "num_embeddings": 1000 + 37 * i, "embedding_dim": 16 * (1 + i % 8), "pooling_factor": 1 + i % 30}
                for i in range(600)
            ],
            "topology": {"hosts": [{"count": 8, "num_devices": 8, "memory_bytes": 16 << 30}]},
            "cost_model": {"name": "analytic"},
        }
        (self.folder / "request.json").write_text(json.dumps(request))
        path = self.report(self.plan("plan", self.folder / "request.json", "--explain"))
        self.assertLess(path.stat().st_size, 1 << 20)
        self.check(path)
        self.assertEqual(self.browser.value("document.querySelectorAll('.stack tbody tr').length"), 600)

    def test_a_cost_model(self):
        self.check(self.report("--model", MODEL))

    def test_markup_in_names_stays_text(self):
        name = "<img src='http://127.0.0.1:9/x' onerror='document.title=1'><script>document.title=2</script>&amp;"
        table = {"name": name, "module": name, "sharding_type": name, "shards": [{"rows": 1, "cols": 4}]}
        plan = {"world_size": 1, "tables": [table]}
        (self.folder / "hostile.json").write_text(json.dumps(plan))
        self.check(self.report(self.folder / "hostile.json"))
        self.assertEqual(self.browser.value("document.querySelectorAll('img, script').length"), 0)
        self.assertIn("<img src=", self.browser.value("document.body.innerText"))
        self.assertNotIn(self.browser.value("document.title"), ("1", "2"))


if __name__ == "__main__":
    if CHROMIUM is None:
        print("SKIPPED: no chromium in PATH (Debian: apt-get install chromium); reports were not looked at in a browser")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
