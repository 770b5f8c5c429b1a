#!/usr/bin/env python3
"""What kill -9, disks and networks do to real processes.

    faults.py kill BIN [--moments N] [--seed S]     kill -9 at N random moments (200)
    faults.py disk BIN PRELOAD [--points N]         every change to a file fails once, in four ways; N: at most so many of each program;
                                                    --held FILE: goes on where a run with the same FILE was stopped
    faults.py clock BIN PRELOAD                     wall clocks that jump, of client, worker and planner
    faults.py postgres BIN CACHE [--points N]       a store in PostgreSQL: connection cut, server or client killed at every message
    faults.py short BIN PRELOAD                     a little of the three, for CI; the PRELOAD of disks, the other beside it
    faults.py soak BIN [--minutes N]                mixed calls for N minutes (30): memory, descriptors and threads have to stay flat
    faults.py network BIN                           two workers in network namespaces; needs root

BIN is a build's folder of binaries, PRELOAD its libwrite_faults.so, of `clock` its libclock_jumps.so, CACHE where PostgreSQL's programs are kept
(build/postgres). Exits 1 when a promise was broken, and says which; 77 when a suite cannot run here, and says why.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import network
import postgres
import soak
from clock import ClockSuite
from disk import ERRORS, DiskSuite, make_shared, programs_under_test
from kill import KillSuite
from setting import Programs, planner, worker

SKIPPED = 77


def run_disk(programs, folder, points, errors, names=None, held=None):
    shared = folder / "shared"
    shared.mkdir()
    make_shared(programs, shared)
    suite = DiskSuite(programs, folder, held)
    with worker(programs, folder, "--cpu-devices", "1") as measuring, planner(programs, folder, folder / "none") as planning:
        for program in programs_under_test(programs, shared, measuring, planning):
            if names is None or program.name in names:
                suite.run(program, errors, points)
    print(f"disk: {suite.runs} faults, {len(suite.broken)} promises broken", flush=True)
    return suite.broken


def run_postgres(programs, folder, points, found):
    database = postgres.PostgresServer(found)
    try:
        with worker(programs, folder, "--cpu-devices", "1") as measuring:
            suite = postgres.PostgresSuite(programs, folder, database, measuring)
            suite.run(points)
    finally:
        database.stop()
    print(f"postgres: {suite.runs} faults, {len(suite.broken)} promises broken", flush=True)
    return suite.broken


def run_kill(programs, folder, moments, seed):
    suite = KillSuite(programs, folder, seed)
    suite.run(moments)
    print(f"kill -9: {sum(suite.moments.values())} moments, {len(suite.broken)} promises broken", flush=True)
    return suite.broken


def run_clock(programs, folder, seed, compute, comm):
    suite = ClockSuite(programs, folder, seed)
    suite.run_all(compute, comm)
    return suite.broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=("kill", "disk", "clock", "postgres", "short", "soak", "network"))
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("preload", type=pathlib.Path, nargs="?", metavar="PRELOAD|CACHE")
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--programs", help="disk: only these, comma-separated")
    parser.add_argument("--held", type=pathlib.Path, help="disk: faults under which promises held; they are skipped, and new ones added")
    parser.add_argument("--minutes", type=float, default=30)
    arguments = parser.parse_args()
    programs = Programs(arguments.bin, arguments.preload)
    if arguments.suite == "network" and (reason := network.why_not()):
        print(f"network: skipped: {reason}", file=sys.stderr)
        return SKIPPED
    if arguments.suite in ("disk", "clock", "short", "postgres") and arguments.preload is None:
        parser.error("PRELOAD or CACHE is missing")
    if arguments.suite == "postgres" and (postgres_programs := postgres.find_programs(arguments.preload)) is None:
        return SKIPPED
    started = time.monotonic()
    broken = []
    with tempfile.TemporaryDirectory(prefix="neuroshard-faults-") as name:
        folder = pathlib.Path(name).resolve()
        if arguments.suite == "disk":
            broken = run_disk(programs, folder, arguments.points, ERRORS, arguments.programs and arguments.programs.split(","), arguments.held)
        elif arguments.suite == "kill":
            broken = run_kill(programs, folder, arguments.moments, arguments.seed)
        elif arguments.suite == "short":
            for part in ("disk", "kill", "clock"):
                (folder / part).mkdir()
            broken = run_disk(programs, folder / "disk", 1, ("ENOSPC", "KILL"), ("plan", "import"))
            broken += run_kill(programs, folder / "kill", 2, arguments.seed)
            clocks = Programs(arguments.bin, arguments.preload.with_name("libclock_jumps.so"))
            broken += run_clock(clocks, folder / "clock", arguments.seed, 10, 0)
        elif arguments.suite == "clock":
            broken = run_clock(programs, folder, arguments.seed, 300, 40)
        elif arguments.suite == "postgres":
            broken = run_postgres(Programs(arguments.bin), folder, arguments.points, postgres_programs)
        elif arguments.suite == "soak":
            broken = soak.run(programs, folder, arguments.minutes)
        else:
            broken = network.run(programs, folder)
    print(f"{arguments.suite}: {time.monotonic() - started:.0f} s", flush=True)
    for line in broken:
        print(f"broken: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
