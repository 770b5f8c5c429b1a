#!/usr/bin/env python3
"""What g++ does not check, by clang's front end and clang-tidy, without building anything.

    check_clang.py BUILD                 all of what follows
    check_clang.py BUILD alone           headers that no .cc includes first compile by themselves, and so do product files that changed since
                                         --since, unless they are more than --most
    check_clang.py BUILD locks           guarded data is touched with its mutex held (common/base/mutex.h)
    check_clang.py BUILD tidy            the checks of .clang-tidy, on product files that changed since --since, unless they are more than --most
    check_clang.py BUILD alone tidy --all  on everything

BUILD is a configured build folder: its generated headers and its compiler flags are used. Builds compile several files as one, so a
missing include shows here. Exits 1 when there are faults.
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
PRODUCT = ("common", "kernels", "worker", "server", "client")
LAYERS = (*PRODUCT, "tests", "bench")
# In clang's way: g++ checks warnings.
FLAGS = ["-std=c++20", "-fsyntax-only", "-w", "-Wno-unknown-warning-option"]
# Files that are read as one: parsing what they include takes most of the time.
AT_ONCE = 12


def run(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


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
    own = [f'-DNEUROSHARD_{name}=""' for name in ("BIN_DIR", "SOURCE_DIR", "VERSION", "GIT_COMMIT", "BUILD_TYPE")]
    return [word for flag in flags for word in flag] + own


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


def exists(commit):
    return run(["git", "rev-parse", "--verify", "--quiet", commit + "^{commit}"]).returncode == 0


def changed_since(title, commit, most):
    """The product files that differ from that commit, or from the last one where there is no such commit here; none where they are more than `most`."""
    since = commit if exists(commit) else "HEAD~1"
    if not exists(since):
        print(f"{title}: SKIPPED, there is no {commit} here to compare with, and no HEAD~1")
        return []
    names = run(["git", "diff", "--name-only", "--diff-filter=d", since, "--", "*.h", "*.cc"]).stdout.split()
    files = [pathlib.Path(name) for name in names if name.split("/")[0] in PRODUCT and not name.endswith("_test.cc")]
    print(f"{title}: {len(files)} product files differ from {since}")
    if len(files) > most:
        print(f"{title}: SKIPPED, more than {most}; by hand: --most {len(files)}")
        return []
    return files


def folder_of_target(path):
    return next(folder for folder in path.parents if (ROOT / folder / "CMakeLists.txt").exists())


def read_at_once(files):
    """Lists of files of one CMakeLists.txt, tests and products apart: unity builds keep their names apart too."""
    groups = {}
    for path in files:
        groups.setdefault((folder_of_target(path), path.name.endswith("_test.cc")), []).append(path)
    return [group[i : i + AT_ONCE] for group in groups.values() for i in range(0, len(group), AT_ONCE)]


def as_one(folder, files):
    """A file that includes them all."""
    source = folder / (re.sub(r"\W", "_", str(files[0])) + ".cc")
    source.parent.mkdir(exist_ok=True)
    source.write_text("".join(f'#include "{path}"\n' for path in files))
    return source


def first_failed(done):
    return next((one for one in done if one.returncode != 0), done[0])


def locks(files, flags, build):
    """clang's analysis of a file that includes them all; of each of them where that does not compile."""
    done = run(["clang++", *flags, "-x", "c++", as_one(build / "locks", files)])
    if len(files) > 1 and done.returncode != 0:
        return first_failed([locks([path], flags, build) for path in files])
    return done


def tidy(files, flags, build):
    """clang-tidy on a file that includes them all; on each of them where that does not compile."""
    done = run(["clang-tidy", "--quiet", "--warnings-as-errors=*", f"--config-file={ROOT / '.clang-tidy'}",
                "--checks=-bugprone-suspicious-include", as_one(build / "tidy", files), "--", *flags, "-x", "c++"])
    if len(files) > 1 and "clang-diagnostic-error" in done.stdout:
        return first_failed([tidy([path], flags, build) for path in files])
    return done


def run_on(title, groups, run, jobs):
    """Runs run(files), a finished process, for each list of files; returns how many failed, and prints why."""
    started = time.monotonic()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for files, done in zip(groups, pool.map(run, groups)):
            if done.returncode != 0:
                failed += 1
                print(f"{title}: {' '.join(map(str, files))}\n{done.stdout}{done.stderr}".rstrip(), file=sys.stderr, flush=True)
    print(f"{title}: {sum(map(len, groups))} files, {failed} of {len(groups)} runs with faults, {time.monotonic() - started:.0f} s",
          flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("checks", nargs="*", default=["alone", "locks", "tidy"], help="alone, locks, tidy")
    parser.add_argument("--since", default=os.environ.get("NEUROSHARD_SINCE") or "HEAD~1",
                        help="alone, tidy: a commit (default: $NEUROSHARD_SINCE, else the last one)")
    parser.add_argument("--most", type=int, default=40, help="alone, tidy: no file is looked at where more changed (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="alone, tidy: every file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    unknown = set(options.checks) - {"alone", "locks", "tidy"}
    if unknown:
        parser.error(f"unknown checks: {', '.join(sorted(unknown))}")
    for tool in ("clang++", "clang-tidy"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing; deploy/install_packages.sh installs it")
    build = options.build.resolve()
    flags = FLAGS + include_flags(build)

    failed = 0
    if "alone" in options.checks:
        files = [*sources(".h"), *sources(".cc")]
        if not options.all:
            files = sorted({*headers_without_own_source(), *changed_since("alone", options.since, options.most)})
        failed += run_on("alone", [[path] for path in files], lambda files: run(["clang++", *flags, "-x", "c++", *files]), options.jobs)
    if "locks" in options.checks:
        lock_flags = [*flags, "-Wthread-safety", "-Werror=thread-safety"]
        lock_flags.remove("-w")
        failed += run_on("locks", read_at_once(files_with_locks()), lambda files: locks(files, lock_flags, build), options.jobs)
    if "tidy" in options.checks:
        files = sources(".cc") if options.all else changed_since("clang-tidy", options.since, options.most)
        failed += run_on("clang-tidy", read_at_once(files), lambda files: tidy(files, flags, build), options.jobs)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
