"""The programs that a wheel for x86-64 Linux brings, or the folder NEUROSHARD_BIN has: where they are, and as commands.

Imports nothing but the standard library: a command starts in milliseconds, and `neuroshard` is free to use it (neuroshard/call.py).
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Optional, Sequence

FOLDER_VARIABLE = "NEUROSHARD_BIN"

# Commands of `neuroshard` that ask a planner.
_ASKING = ("plan", "evaluate", "eval-tasks", "predict", "models", "devices", "diff", "doctor")


class NotStarted(Exception):
    """There is no embedded planner, and why."""


def program(name: str) -> Optional[str]:
    """Path of a program; None where this installation has none."""
    folder = os.environ.get(FOLDER_VARIABLE) or os.path.join(os.path.dirname(__file__), "bin")
    path = os.path.join(os.path.abspath(folder), name)
    return path if os.path.isfile(path) or os.environ.get(FOLDER_VARIABLE) else None


def needs_planner(arguments: Sequence[str]) -> bool:
    """Whether this command line asks a planner and names none."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    options = {argument.partition("=")[0] for argument in arguments}
    asks = command in _ASKING and (command != "diff" or "--request" in options)  # which else compares two files
    return asks and not options & {"--planner", "--help", "-h"} and not os.environ.get("NEUROSHARD_PLANNER")


def main() -> NoReturn:
    """The commands neuroshard, neuroshard-planner and neuroshard-worker: the program of that name in this process."""
    name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    if name == "neuroshard" and arguments[:1] == ["report"]:
        from neuroshard.report.command import main as report

        sys.exit(report(arguments[1:]))
    if name == "neuroshard" and needs_planner(arguments):
        from neuroshard_programs.embedded import EmbeddedPlanner

        try:
            planner = EmbeddedPlanner()
            planner.ensure(beyond_exec=True)
        except NotStarted as fault:
            sys.exit(f"neuroshard: {fault}")
        print(f"neuroshard: no --planner and no NEUROSHARD_PLANNER: asking the embedded planner {planner.address}", file=sys.stderr, flush=True)
        os.environ["NEUROSHARD_PLANNER"] = planner.address
    run(name, arguments)


def run(name: str, arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the program."""
    path = program(name) or ""
    try:
        os.execv(path, [name, *arguments])
    except OSError as fault:
        sys.exit(f"{name}: cannot run {path or 'a program that this installation does not have'}: {fault.strerror}")
