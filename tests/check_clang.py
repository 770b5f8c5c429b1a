#!/usr/bin/env python3
"""What g++ does not check, by clang's front end and clang-tidy, without building anything.

    check_clang.py BUILD                 all of what follows
    check_clang.py BUILD headers         every header compiles alone
    check_clang.py BUILD locks           guarded data is touched with its mutex held (common/base/mutex.h)
    check_clang.py BUILD tidy            the checks of .clang-tidy, on what changed since --since, --most files of it
    check_clang.py BUILD tidy --all      on everything (most of an hour on two cores)

BUILD is a configured build folder: its generated headers and its compiler flags are used. A header whose .cc includes it first is
compiled alone by that .cc, so only the others are compiled here. Exits 1 when there are faults.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("common", "kernels", "worker", "server", "client", "tests", "bench")
# In clang's way: g++ checks warnings.
FLAGS = ["-std=c++20", "-fsyntax-only", "-w", "-Wno-unknown-warning-option"]


def sources(suffix):
    found = (path for layer in LAYERS for path in (ROOT / layer).rglob("*" + suffix))
    return sorted(path.relative_to(ROOT) for path in found)


def include_flags(build):
    """Every folder and definition that some file of the build is compiled with."""
    flags = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        words = iter(shlex.split(command["command"]))
        for word in words:
            if word == "-isystem":
                flags[(word, next(words))] = True
            elif word.startswith(("-I", "-D")) and not word.startswith("-DNEUROSHARD_"):
                flags[(word,)] = True
    return [word for flag in flags for word in flag] + ['-DNEUROSHARD_BIN_DIR=""', '-DNEUROSHARD_SOURCE_DIR=""']


def first_include(path):
    match = re.search(r'^#include ["<]([^">]+)[">]', (ROOT / path).read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def headers_without_own_source():
    """Headers that no .cc includes first."""
    included = {first_include(source) for source in sources(".cc")}
    return [header for header in sources(".h") if str(header) not in included]


def files_with_locks():
    uses = {path for suffix in (".h", ".cc") for path in sources(suffix) if '#include "common/base/mutex.h"' in (ROOT / path).read_text()}
    return sorted(uses | {path.with_suffix(".cc") for path in uses if (ROOT / path.with_suffix(".cc")).exists()})


def changed_since(reference):
    known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", reference + "^{commit}"], cwd=ROOT, capture_output=True)
    if known.returncode != 0:
        print(f"clang-tidy: there is no commit {reference}; nothing is checked")
        return []
    names = subprocess.run(["git", "diff", "--name-only", "--diff-filter=d", reference, "--", "*.h", "*.cc"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    return [pathlib.Path(name) for name in names if name.split("/")[0] in LAYERS]


def run_on(title, files, command, jobs):
    """Runs command(file) for each file; returns how many failed, and prints why."""
    started = time.monotonic()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, done in zip(files, pool.map(lambda path: subprocess.run(command(path), cwd=ROOT, capture_output=True, text=True), files)):
            if done.returncode != 0:
                failed += 1
                print(f"{title}: {path}\n{done.stdout}{done.stderr}".rstrip(), file=sys.stderr)
    print(f"{title}: {len(files)} files, {failed} with faults, {time.monotonic() - started:.0f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("checks", nargs="*", default=["headers", "locks", "tidy"], help="headers, locks, tidy")
    parser.add_argument("--since", default="HEAD~1", help="tidy: a commit (default: %(default)s)")
    parser.add_argument("--most", type=int, default=40, help="tidy: this many of the changed files at most (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="tidy: every file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    unknown = set(options.checks) - {"headers", "locks", "tidy"}
    if unknown:
        parser.error(f"unknown checks: {', '.join(sorted(unknown))}")
    for tool in ("clang++", "clang-tidy"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing; deploy/install_packages.sh installs it")
    flags = FLAGS + include_flags(options.build.resolve())

    failed = 0
    if "headers" in options.checks:
        failed += run_on("header alone", headers_without_own_source(), lambda path: ["clang++", *flags, "-x", "c++", path], options.jobs)
    if "locks" in options.checks:
        lock_flags = [*flags, "-Wthread-safety", "-Werror=thread-safety"]
        lock_flags.remove("-w")
        failed += run_on("locks", files_with_locks(), lambda path: ["clang++", *lock_flags, "-x", "c++", path], options.jobs)
    if "tidy" in options.checks:
        files = sources(".cc") if options.all else changed_since(options.since)
        if not options.all and len(files) > options.most:
            print(f"clang-tidy: {len(files)} files changed since {options.since}; the first {options.most} are checked")
            files = files[: options.most]
        failed += run_on("clang-tidy", files, lambda path: ["clang-tidy", "--quiet", "--warnings-as-errors=*", path, "--", *flags, "-x", "c++"],
                         options.jobs)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
