#!/usr/bin/env python3
"""Plans a shipped request for two devices and runs the plan for real, over two workers on this machine, several times:
what the shipped cost model predicts beside what is measured.

    validate.py --bin build/release/bin
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from provenance import ROOT
from server_process import PlannerProcess, ServerProcess

REQUEST = ROOT / "configs/workloads/quickstart_2x2gib.yaml"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    def cli(*arguments):
        done = subprocess.run([str(c) for c in (options.bin / "neuroshard", *arguments)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(done.returncode)
        return done.stdout

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        worker = (options.bin / "neuroshard-worker", folder, "--cpu-devices", 1)
        models = ROOT / "configs/models"
        with PlannerProcess(options.bin, folder, models) as planner, ServerProcess(*worker) as one, ServerProcess(*worker) as two:
            plan = folder / "plan.json"
            plan.write_text(cli("plan", REQUEST, "--planner", planner.address, "--format", "json"))
            runs = [
                cli("validate", REQUEST, plan, "--planner", planner.address, "--workers", f"{one.address},{two.address}")
                for _ in range(options.runs)
            ]
    texts = [text.replace(one.address, "worker 1").replace(two.address, "worker 2").rstrip() for text in runs]
    errors = [float(re.search(r"^plan cost: .* error ([-+.\d]+)%$", text, re.MULTILINE)[1]) for text in texts]
    inside = [re.search(r"^measured inside the model's .*: (\d+ of \d+)$", text, re.MULTILINE)[1] for text in texts]
    print(f"```\n{texts[0]}\n```\n")
    print(f"Errors of {len(runs)} runs in a row: {', '.join(map(str, errors))} %; inside the interval: {', '.join(inside)}.")
    if options.json:
        results = {"first": texts[0], "errors_percent": errors, "inside_interval": inside}
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
