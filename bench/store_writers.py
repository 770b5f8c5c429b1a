#!/usr/bin/env python3
"""Many processes that write records into one profile store at the same time: into a file of SQLite and into a real PostgreSQL, in turn.

    bench/store_writers.py --bin build/release/bin [--writers 1,8,64] [--seconds 10] [--rounds 3]

A writer has a sweep of its own and commits record after record (8 shards, two series of 30 times), as fast as it can: what is measured is the store, which
in a sweep waits for measurements most of the time. Both stores are on the same disk and sync every commit (PostgreSQL with fsync on, which tests turn off;
through a Unix socket). PostgreSQL is Debian's, unpacked into build/postgres where it is not installed. records/s: of all writers together; p50 and p99: of
a commit, as the writer sees it. Medians over the rounds.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/support"))

from postgres_server import SKIPPED, PostgresServer, find_programs  # noqa: E402


def round_of(binary, store, writers, samples, seconds):
    """{records_per_second, p50_ms, p99_ms, refused}"""
    processes = [
        subprocess.Popen([binary, store, f"host-{i}", str(samples)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in range(writers)
    ]
    try:
        for process in processes:
            if process.stdout.readline() != "ready\n":
                sys.exit(f"a writer did not begin; it says why above ({store})")
        for process in processes:
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        said = [process.communicate()[0].split("\n") for process in processes]
        if any(process.returncode for process in processes):
            sys.exit("a writer failed; it says why above")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    commits = sorted(float(line) for lines in said for line in lines if line[:1].isdigit())
    words = [dict(line.split() for line in lines if line[:1].isalpha()) for lines in said]
    return {
        "records_per_second": len(commits) / max(float(of_writer["seconds"]) for of_writer in words),
        "p50_ms": commits[len(commits) // 2], "p99_ms": commits[len(commits) * 99 // 100],
        "refused": sum(int(of_writer["refused"]) for of_writer in words),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of store_writer")
    parser.add_argument("--writers", default="1,8,64")
    parser.add_argument("--samples", type=int, default=20_000, help="most records of all writers in a round")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    programs = find_programs(ROOT / "build/postgres")
    if programs is None:
        return SKIPPED
    results = []
    server = PostgresServer(programs)
    try:
        server.process.send_signal(signal.SIGINT)
        server.process.wait()
        server.start("fsync=on")
        for writers in map(int, options.writers.split(",")):
            rounds = {"sqlite": [], "postgresql": []}
            for number in range(options.rounds):
                # Beside PostgreSQL's data, so that both are on the same disk.
                with tempfile.TemporaryDirectory(prefix="nswriters", dir=server.folder.parent) as folder:
                    database = f"writers_{writers}_{number}"
                    server.sql(f"CREATE DATABASE {database}")
                    for kind, store in (("sqlite", f"{folder}/s.db"), ("postgresql", server.address(database))):
                        rounds[kind].append(round_of(options.bin / "store_writer", store, writers, max(1, options.samples // writers), options.seconds))
            for kind, of_kind in rounds.items():
                results.append({"store": kind, "writers": writers, **{key: statistics.median(one[key] for one in of_kind) for key in of_kind[0]}})
    finally:
        server.stop()
    if options.format == "json":
        print(json.dumps(results, indent=2))
        return 0
    print("| store | writers | records/s | p50 of a commit, ms | p99, ms | refused |\n|---|---|---|---|---|---|")
    for result in results:
        print("| {store} | {writers} | {records_per_second:.0f} | {p50_ms:.1f} | {p99_ms:.1f} | {refused:.0f} |".format(**result))
    for sqlite, postgres in zip(results[::2], results[1::2]):
        ratio = {key: postgres[key] / sqlite[key] for key in ("records_per_second", "p99_ms")}
        print(f"\n{sqlite['writers']} writers, PostgreSQL to SQLite: {ratio['records_per_second']:.2f} times the records, {ratio['p99_ms']:.2f} times the p99", end="")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
