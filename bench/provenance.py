"""Where a figure comes from: commit, command, machine."""

import os
import pathlib
import platform
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def provenance():
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    cpu = platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    script = os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + (" with changes" if git("status", "--porcelain") else ""),
        "command": shlex.join([script, *sys.argv[1:]]),
        "cpu": f"{cpu}, {os.cpu_count()} cores",
    }
