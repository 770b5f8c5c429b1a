#!/usr/bin/env python3
"""Load on one planner, over real connections: the 100 benchmark tasks at 4 devices, with 1, 4 and 16 calls in flight.

    load.py --bin build/release/bin
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from provenance import ROOT
from server_process import PlannerProcess

WORKLOADS = ROOT / "configs/workloads"
CASES = (
    ("neuroshard, to its end", ["--strategy", "neuroshard"]),
    ("refine for 10 ms after its first plan", ["--strategy", "refine", "--time-budget-ms", "10"]),
    ("refine as it comes, streamed", ["--strategy", "refine", "--stream"]),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--in-flight", default="1,4,16")
    parser.add_argument("--seconds", default="15", help="of each case at each number of calls in flight")
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    options = parser.parse_args()

    results, failed = [], 0
    with tempfile.TemporaryDirectory() as name, PlannerProcess(
        options.bin, pathlib.Path(name), ROOT / "configs/models"
    ) as planner:
        file = pathlib.Path(name) / "load.json"
        command = [options.bin / "planner_load", "--planner", planner.address, "--json", file, "--model", "cpu-amd-epyc"]
        command += ["--tasks", WORKLOADS / "tasks_4gpu_maxdim128.txt", "--tables", WORKLOADS / "dlrm_2021_tables856.csv"]
        command += ["--in-flight", options.in_flight, "--seconds", options.seconds]
        for title, arguments in CASES:
            print(f"{title}:\n", flush=True)
            subprocess.run([str(c) for c in [*command, *arguments]], check=True)
            print(flush=True)
            for run in json.loads(file.read_text())["runs"]:
                del run["calls"]
                results.append({"case": title} | run)
                failed += run["failed"]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
