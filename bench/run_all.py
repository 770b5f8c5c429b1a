#!/usr/bin/env python3
"""Every measurement of this folder but the kernels', one after the other, each into a file with its command, commit and CPU.

    run_all.py --bin build/release/bin --out bench/results/MACHINE [--only search,load,torchrec,devices,scale]

Takes about half an hour; nothing else should run meanwhile.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from planner_process import PlannerProcess
from provenance import ROOT, provenance

BENCH = pathlib.Path(__file__).resolve().parent
WORKLOADS = ROOT / "configs/workloads"


def write(out, name, title, command, text):
    facts = provenance() | {"command": command}
    head = "".join(f"- {key}: {value}\n" for key, value in facts.items())
    (out / f"{name}.md").write_text(f"# {title}\n\n{head}\n{text.strip()}\n")


def shown(command):
    return shlex.join(os.path.relpath(c, ROOT) if pathlib.Path(c).is_absolute() else str(c) for c in map(str, command))


def run(out, name, title, command, code=False):
    print(f"== {name}: {shown(command)}", flush=True)
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        raise SystemExit(f"{name}: exit status {done.returncode}")
    print(done.stdout)
    write(out, name, title, shown(command), f"```\n{done.stdout}```" if code else done.stdout)
    return done.returncode


def load(binaries, out):
    """The 100 benchmark tasks at 4 devices, `neuroshard` to its end and `refine` for 10 ms after its first plan."""
    command = [binaries / "planner_load", "--tasks", WORKLOADS / "tasks_4gpu_maxdim128.txt"]
    command += ["--tables", WORKLOADS / "dlrm_2021_tables856.csv", "--model", "cpu-amd-epyc", "--seconds", "20"]
    parts = []
    with tempfile.TemporaryDirectory() as name, PlannerProcess(
        binaries, pathlib.Path(name), ROOT / "configs/models"
    ) as planner:
        for title, extra in (
            ("neuroshard", ["--strategy", "neuroshard"]),
            ("refine for 10 ms", ["--strategy", "refine", "--time-budget-ms", "10"]),
            ("refine for 10 ms, streamed", ["--strategy", "refine", "--time-budget-ms", "10", "--stream"]),
        ):
            print(f"== load: {title}", flush=True)
            whole = [*command, *extra, "--planner", planner.address]
            done = subprocess.run([str(c) for c in whole], stdout=subprocess.PIPE, text=True, check=True)
            print(done.stdout)
            parts.append(f"## {title}\n\n{done.stdout}")
    write(out, "load", "Load on one planner, 100 tasks on 4 devices", shown(command), "\n".join(parts))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--out", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--only", default="search,load,torchrec,devices,scale")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    binaries, out = options.bin, options.out
    steps = {
        "search": lambda: run(out, "search", "The search on one thread", [binaries / "search_bench"], code=True),
        "load": lambda: load(binaries, out),
        "torchrec": lambda: run(
            out, "torchrec", "TorchRec's planner and ours under TorchRec's cost",
            [sys.executable, BENCH / "torchrec/compare.py", "--bin", binaries, "--seeds", "1,2,3"],
        ),
        "devices": lambda: run(
            out, "devices", "The 100 tasks on 4 to 128 devices", [sys.executable, BENCH / "eval_devices.py", "--bin", binaries]
        ),
        "scale": lambda: subprocess.run(
            [sys.executable, str(BENCH / "scale/measure.py"), "--bin", str(binaries), "--out", str(out)]
        ).returncode,
    }
    return max(steps[name]() for name in options.only.split(","))


if __name__ == "__main__":
    sys.exit(main())
