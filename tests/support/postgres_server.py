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
import urllib.parse

SKIPPED = 77
PACKAGES = ("postgresql-15", "postgresql-client-15")
PROGRAMS = "usr/lib/postgresql/15/bin"


def find_programs(cache):
    """The folder of initdb and postgres; None where there are none."""
    installed = pathlib.Path("/", PROGRAMS)
    if (installed / "initdb").exists():
        return installed
    cache = pathlib.Path(cache).resolve()
    if not (cache / PROGRAMS / "initdb").exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            return None
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            fetched = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True, timeout=120)
            packages = list(pathlib.Path(folder).glob("*.deb"))
            if fetched.returncode != 0 or len(packages) < len(PACKAGES):
                return None
            for package in packages:
                subprocess.run(["dpkg", "-x", package, f"{folder}/unpacked"], check=True)
            shutil.rmtree(cache, ignore_errors=True)
            pathlib.Path(folder, "unpacked").rename(cache)
    return cache / PROGRAMS


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
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", self.folder, *options], cwd=self.folder, stdout=log, stderr=log, **unprivileged())
        while subprocess.run([self.programs / "pg_isready", "-q", "-h", self.folder], check=False).returncode != 0:
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())

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
        print("no PostgreSQL here, and Debian's mirrors cannot be reached")
        return SKIPPED
    server = PostgresServer(programs)
    try:
        return subprocess.run(sys.argv[2:], env={**os.environ, "NEUROSHARD_TEST_POSTGRES": server.address()}, check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
