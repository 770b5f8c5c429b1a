#!/usr/bin/env python3
"""A real PostgreSQL 15 for tests, with a data directory and a socket of its own.

    postgres_server.py CACHE COMMAND...

runs COMMAND with NEUROSHARD_TEST_POSTGRES, the address of a server that ends with it. Debian's programs are taken from where the package
installs them, else the package is unpacked into CACHE, not installed. Exits 77, which ctest shows as skipped, where there are none and Debian's
mirrors cannot be reached.
"""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

from debian_packages import unpacked

SKIPPED = 77
PACKAGES = ("postgresql-15", "postgresql-client-15")
PROGRAMS = "usr/lib/postgresql/15/bin"
PROMPT_S = 30


def find_programs(cache):
    """The folder of initdb and postgres; None, having said why, where there are none."""
    installed = pathlib.Path("/", PROGRAMS)
    if (installed / "initdb").exists():
        return installed
    found = unpacked(cache, PACKAGES, f"{PROGRAMS}/initdb")
    if found is None:
        print("SKIPPED: no PostgreSQL here, and Debian's mirrors cannot be reached", flush=True)
        return None
    try:
        subprocess.run([found / PROGRAMS / "postgres", "--version"], cwd="/", capture_output=True, check=True, **unprivileged())
    except PermissionError:
        print(f"SKIPPED: PostgreSQL does not run as root, and nobody cannot reach {found}", flush=True)
        return None
    except subprocess.CalledProcessError as failed:
        print(f"SKIPPED: the PostgreSQL of {found} does not start here: {failed.stderr.decode().strip()}", flush=True)
        return None
    return found / PROGRAMS


def unprivileged():
    """Arguments of subprocess that give up root, as which PostgreSQL does not run."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class PostgresServer:
    """Listens on a Unix socket only. The role `neuroshard` owns everything and needs no password."""

    def __init__(self, programs):
        self.programs = programs
        # Not below the caller's temporary directory: a socket's path has at most 107 bytes, and `nobody` must reach it.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nspg", dir="/tmp"))
        self.data = self.folder / "data"
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        self.process = None
        self._run("initdb", "-D", self.data, "-U", "neuroshard", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
        self.start()

    def _run(self, program, *arguments):
        done = subprocess.run([self.programs / program, *arguments], cwd=self.folder, capture_output=True, text=True, **unprivileged())
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self, *settings):
        """Returns when it takes connections. `settings` as in "max_connections=5". Without fsync: what a process wrote outlives it all the same."""
        options = [option for setting in ("listen_addresses=", "max_connections=120", "fsync=off", *settings) for option in ("-c", setting)]
        deadline = time.monotonic() + PROMPT_S
        while True:
            with open(self.folder / "log", "w") as log:
                self.process = subprocess.Popen(
                    [self.programs / "postgres", "-D", self.data, "-k", self.folder, *options], cwd=self.folder, stdout=log, stderr=log, **unprivileged())
            while self.process.poll() is None:
                if subprocess.run([self.programs / "pg_isready", "-q", "-h", self.folder], check=False).returncode == 0:
                    return
                time.sleep(0.05)
            said = (self.folder / "log").read_text()
            # A backend of a server that was killed has not ended yet.
            if "shared memory block" not in said or time.monotonic() > deadline:
                raise RuntimeError(said)

    def address(self, database="postgres"):
        return f"postgresql://neuroshard@{urllib.parse.quote(str(self.folder), safe='')}/{database}"

    def sql(self, text, database="postgres"):
        """What psql prints, without headings."""
        return self._run("psql", "-h", self.folder, "-U", "neuroshard", "-d", database, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def kill(self):
        """As a power cut of its processes would end it: nothing is written any more."""
        pids = [int(pid) for pid in self.sql("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").split()]
        self.process.send_signal(signal.SIGKILL)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # without waiting for clients
            self.process.wait()
        shutil.rmtree(self.folder)


def main():
    programs = find_programs(sys.argv[1])
    if programs is None:
        return SKIPPED
    server = PostgresServer(programs)
    try:
        return subprocess.run(sys.argv[2:], env={**os.environ, "NEUROSHARD_TEST_POSTGRES": server.address()}, check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
