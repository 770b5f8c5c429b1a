"""A planner without a service: the program as a child process on a Unix socket, shared by all processes of this user on this host.

A folder that only the user may enter has, for each program and model root, a socket and a lock. Whoever uses the planner holds the lock (flock, shared) until
its process ends. The planner waits to have it alone and then ends, so it outlives whichever user started it, and none of them has to say goodbye:
the kernel takes the lock from processes that are killed. Forks hold the lock of their parent. Starting is serialised by a lock of the folder.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import platform
import re
import select
import socket
import stat
import subprocess
import threading
import time
from typing import Dict, List, Tuple

from neuroshard_programs import FOLDER_VARIABLE, NotStarted, program

LOG_VARIABLE = "NEUROSHARD_PLANNER_LOG"
# sockaddr_un.sun_path without its 0.
MOST_PATH_BYTES = 107
# A planner starts in 50 ms; its models may lie on a slow disk, and one that drains may have calls in flight.
PATIENCE_S = 60.0


_mutex = threading.Lock()
_leases: Dict[str, Tuple[int, EmbeddedPlanner]] = {}  # by the lock's path; open until this process ends
_children: List[int] = []


class EmbeddedPlanner:
    """What this process's environment asks for: the program, NEUROSHARD_MODELS (else the program's own models), TMPDIR. `ensure` starts it.

    models, folder: a folder of models in place of the environment's; a private one for socket and lock in place of TMPDIR's.
    """

    def __init__(self, models: str = "", folder: str = "") -> None:
        path = program("neuroshard-planner")
        try:
            found = os.stat(path or "")
        except OSError as fault:
            raise NotStarted(f"no program to embed, {path or 'none is installed'} ({FOLDER_VARIABLE} names its folder): {fault.strerror}") from None
        models = models or os.environ.get("NEUROSHARD_MODELS") or ""
        self._command = [path or ""] + (["--models", os.path.abspath(models)] if models else [])
        # Another version in the same place is another planner.
        identity = repr((self._command, found.st_ino, found.st_mtime_ns, found.st_size))
        self._folder = folder or os.path.join(os.path.abspath(os.environ.get("TMPDIR") or "/tmp"), f"neuroshard-{os.getuid()}")
        stem = os.path.join(self._folder, hashlib.sha256(identity.encode()).hexdigest()[:12])
        self._socket, self._lock = stem + ".sock", stem + ".lock"
        self.address = "unix:" + self._socket
        size = len(os.fsencode(self._socket))
        if size > MOST_PATH_BYTES:
            raise NotStarted(f"the socket {self._socket} would have a path of {size} bytes, and a Unix socket's may have {MOST_PATH_BYTES}: "
                             "let TMPDIR name a shorter folder")

    def ensure(self, beyond_exec: bool = False) -> None:
        """Returns when the planner answers; starts it where it does not. NotStarted says why it cannot.

        beyond_exec: the program that takes this process's place is its user, too.
        """
        if self._lock in _leases and not beyond_exec and self._answers():
            return
        with _mutex:
            try:
                self._ensure()
            except OSError as fault:
                raise NotStarted(f"{fault.filename or self._folder}: {fault.strerror} (TMPDIR names another folder for sockets)") from None
            if beyond_exec:
                os.set_inheritable(_leases[self._lock][0], True)

    def _ensure(self) -> None:
        folder = self._private_folder()
        try:
            _locked(folder, fcntl.LOCK_EX, self._folder)
            if not self._holds_lock():
                lease = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    _locked(lease, fcntl.LOCK_SH, self._lock)  # waits for the end of a planner that nobody used any more
                except BaseException:
                    os.close(lease)
                    raise
                _leases[self._lock] = lease, self
            if not self._answers():
                self._start()
        finally:
            _unlock(folder)

    def _holds_lock(self) -> bool:
        """Daemons close all their files as they begin, and cleaners of temporary folders remove old ones."""
        try:
            return os.path.samestat(os.fstat(_leases[self._lock][0]), os.stat(self._lock))
        except (KeyError, OSError):
            return False

    def _private_folder(self) -> int:
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(descriptor)
            raise NotStarted(f"{self._folder} must be a folder of user {os.getuid()} with mode 0700, and is of user {found.st_uid} with mode "
                             f"{stat.S_IMODE(found.st_mode):04o}: remove it, or let TMPDIR name another folder")
        return descriptor

    def _answers(self) -> bool:
        """By the first byte, as HTTP/2 servers speak first: the kernel takes connections for a process that was killed until it is gone."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            try:
                probe.connect(self._socket)
                return bool(probe.recv(1))
            except socket.timeout:  # a planner that is stopped or overloaded is one; calls have deadlines
                return True
            except OSError:
                return False

    def _start(self) -> None:
        self._remove_socket()
        _reap()
        asked = os.environ.get(LOG_VARIABLE)
        command = [*self._command, "--listen", self.address, "--metrics", "", "--until-unlocked", self._lock, "--log-level", "info" if asked else "warn"]
        log = subprocess.STDOUT
        try:
            if asked:
                log = os.open(asked, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            # A session of its own: signals of the terminal are for its users, some of which may go on.
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        except OSError as fault:
            raise NotStarted(f"cannot start a planner: {fault.filename or self._command[0]}: {fault.strerror}") from None
        finally:
            if log != subprocess.STDOUT:
                os.close(log)
        with child:
            said = _output(child)
            if b"listening on " in said:
                _children.append(child.pid)
                child.returncode = 0  # it outlives this object: `_reap` waits for it
                return
            child.kill()
        text = said.decode(errors="replace").strip()
        newest = max(re.findall(r"GLIBC_(\d+)\.(\d+)", text), key=lambda version: (int(version[0]), int(version[1])), default=None)
        if newest:
            raise NotStarted(f"{command[0]} needs glibc {'.'.join(newest)} or newer, and this host has {platform.libc_ver()[1]}: ask a planner "
                             "elsewhere (address, NEUROSHARD_PLANNER)")
        where = f"{asked} says why" if asked else f"{LOG_VARIABLE}=FILE has its log"
        raise NotStarted(f"{text.splitlines()[-1] if text else f'{command[0]} did not start'} ({where})")

    def _remove_socket(self) -> None:
        """That of a planner that was killed."""
        try:
            os.unlink(self._socket)
        except FileNotFoundError:
            pass

    def leave_nothing(self) -> None:
        """At the end of this process: a planner that was killed has left its socket."""
        if self._answers():
            return
        folder = self._private_folder()
        try:
            _locked(folder, fcntl.LOCK_EX, self._folder)
            if not self._answers():
                self._remove_socket()
        finally:
            _unlock(folder)


def _output(child: subprocess.Popen[bytes]) -> bytes:
    """What it wrote until it listened, ended, or said nothing for too long."""
    assert child.stdout is not None
    said = b""
    ready = select.poll()
    ready.register(child.stdout, select.POLLIN)
    while b"listening on " not in said and ready.poll(PATIENCE_S * 1000):
        more = os.read(child.stdout.fileno(), 65_536)
        if not more:
            break
        said += more
    return said


def _locked(descriptor: int, kind: int, path: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise NotStarted(f"another process has had {path} locked for {PATIENCE_S:.0f} s") from None
        time.sleep(0.002)


def _unlock(descriptor: int) -> None:
    """Also for a fork that another thread made meanwhile."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _reap() -> None:
    """Planners that ended, of those that this process started."""
    for child in list(_children):
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                _children.remove(child)
        except ChildProcessError:  # a fork's parent's
            _children.remove(child)


@atexit.register
def _at_exit() -> None:
    for _, planner in _leases.values():
        try:
            planner.leave_nothing()
        except (OSError, NotStarted):
            pass


def _after_fork() -> None:
    global _mutex
    _mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
