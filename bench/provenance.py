"""Where a figure comes from: commit, machine."""

import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"


def _cpu():
    """vendor's name, family and model; virtual machines often name no more than the vendor."""
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts.get("model name", platform.machine()), facts.get("cpu family"), facts.get("model")


def cpu():
    name, family, model = _cpu()
    kind = f" (family {family}, model {model})" if family and model else ""
    return f"{name}{kind}, {os.cpu_count()} cores"


def machine():
    """A folder name for results: the CPU and how many cores."""
    name, family, model = _cpu()
    words = [name, *(("family", family, "model", model) if family and model else ()), str(os.cpu_count()), "cores"]
    return re.sub("[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def commit():
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    # Results of this very run do not count as changes.
    changed = git("status", "--porcelain", "--", ".", ":!bench/results")
    return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
