#!/usr/bin/env python3
"""The pages of a planner and a worker at / of their metrics ports, in headless Chromium, and the same as JSON.

    status_page_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER

Exits 77, which ctest shows as skipped, where no chromium is installed.
"""

import json
import sys
import tempfile
import unittest
import urllib.request

from browser import CHROMIUM, Browser
from neuroshard import PlannerClient, PlannerError
from planner_process import NativeWorkerProcess, PlannerProcess

PLANNER, WORKER = sys.argv[1:3]
WIDTHS = (360, 800, 1280)
SKIPPED = 77
NAME = "<img src=x onerror=alert(1)>"


def request(*names):
    return {"tables": [{"name": name, "num_embeddings": 1000, "embedding_dim": 16, "pooling_factor": 3} for name in names],
            "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 30}]}}


class StatusPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        cls.browser = Browser(folder.name)
        cls.addClassCleanup(cls.browser.close)

    def shown(self, server):
        """The text of the page, which asks for nothing else, runs nothing and is not wider than the window."""
        url = f"http://{server.metrics_address}/"
        for width in WIDTHS:
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
            events = self.browser.open(url)
            asked = [e["params"]["request"]["url"] for e in events if e.get("method") == "Network.requestWillBeSent"]
            self.assertEqual(asked, [url])
            wrong = [e for e in events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
            self.assertEqual(wrong, [])
            self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), width)
        self.assertEqual(self.browser.value("document.querySelectorAll('img, script').length"), 0)
        return self.browser.value("document.body.innerText")

    def status(self, server):
        with urllib.request.urlopen(f"http://{server.metrics_address}/status.json", timeout=10) as answer:
            self.assertEqual(answer.headers["Content-Type"], "application/json")
            return json.load(answer)

    def test_a_planner(self):
        with PlannerProcess(PLANNER, config="rpc: {max_in_flight: 7}\n") as planner:
            client = PlannerClient(planner.address)
            made = client.plan(request("users"))
            with self.assertRaises(PlannerError):
                client.plan(request(NAME, NAME))
            status = self.status(planner)
            self.assertEqual(status["limits"][0], {"option": "rpc.max_in_flight", "used": 0, "limit": 7})
            refused, plan = status["recent_plans"]
            self.assertEqual((plan["caller"], plan["request_id"], plan["status"], plan["ranks"]), ("127.0.0.1", made.request_id, "OK", 2))
            self.assertEqual((plan["model"], plan["cost_ms"]), (f"{made.cost_model.name}/{made.cost_model.version}", made.cost.embedding_cost_ms))
            self.assertIn("INVALID_ARGUMENT: ", refused["status"])
            self.assertIn(NAME, refused["status"])
            text = self.shown(planner)
            for model in status["cost_models"]["models"]:
                self.assertIn(model["name"], text)
            for part in (planner.address, made.request_id, made.search.strategy, "rpc.max_in_flight", status["cost_models"]["server_version"], NAME):
                self.assertIn(part, text)

    def test_a_worker(self):
        with NativeWorkerProcess(WORKER) as worker:
            status = self.status(worker)
            self.assertEqual([device["running_job"] for device in status["devices"]], [""])
            text = self.shown(worker)
            for part in (worker.address, status["hostname"], status["devices"][0]["name"], "neuroshard-cpu"):
                self.assertIn(part, text)


if __name__ == "__main__":
    if CHROMIUM is None:
        print("SKIPPED: no chromium in PATH (Debian: apt-get install chromium); pages were not looked at in a browser")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
