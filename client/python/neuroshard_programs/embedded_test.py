"""The embedded planner: real processes that are forked, spawned and killed, and what is left of them.

  embedded_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard, of one folder
"""

import contextlib
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import grpc
from planner_process import MODELS, PlannerProcess

import neuroshard
from neuroshard_programs import _ASKING

REQUEST = {
    "tables": [{"name": f"t{i}", "num_embeddings": 100_000 * (i + 1), "embedding_dim": 64, "pooling_factor": 3} for i in range(8)],
    "topology": {"hosts": [{"num_devices": 2, "memory_bytes": 1 << 33}]},
    "cost_model": {"name": "cpu-amd-epyc"},
}
# A user of the planner: plans, says so, and does what it is told: plans again, or ends.
USER = f"""
import sys
import neuroshard
client = neuroshard.PlannerClient(timeout_s=60, retries=1)
for line in sys.stdin:
    print(client.plan({REQUEST!r}).plan.SerializeToString(deterministic=True).hex(), flush=True)
"""


def wait_until(holds):
    give_up = time.monotonic() + 30
    while not (found := holds()):
        if time.monotonic() > give_up:
            raise TimeoutError("it did not come about")
        time.sleep(0.005)
    return found


class User:
    """A process that plans when it is asked to."""

    def __init__(self, program=USER):
        self.process = subprocess.Popen([sys.executable, "-B", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self):
        self.process.stdin.write("plan\n")
        self.process.stdin.flush()
        return self

    def answer(self):
        return bytes.fromhex(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0

    def close(self):
        self.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


class Setting(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ns-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        kept = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(kept)))
        os.environ.update(TMPDIR=folder.name, NEUROSHARD_BIN=BIN, NEUROSHARD_MODELS=MODELS)
        os.environ.pop("NEUROSHARD_PLANNER", None)

    def user(self, program=USER):
        user = User(program)
        self.addCleanup(user.close)
        return user

    def planners(self):
        """Those of this test that run: one that is no zombie has a command line."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (line := (entry / "cmdline").read_bytes()) and b"neuroshard-planner" in line and bytes(self.folder) in line:
                    found.append(int(entry.name))
        return found

    def sockets(self):
        return [path for path in self.folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]

    def assert_nothing_is_left(self):
        wait_until(lambda: not self.planners())
        self.assertEqual(self.sockets(), [])

    def fault(self, **environment):
        """What a first call says, in a process of its own."""
        done = subprocess.run([sys.executable, "-B", "-c", f"""
import neuroshard
try:
    neuroshard.PlannerClient().plan({REQUEST!r})
except neuroshard.Unavailable as error:
    print(error)
"""], env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        return done.stdout


class EmbeddedTest(Setting):
    def test_gives_the_bytes_of_a_service(self):
        user = self.user().ask()
        with PlannerProcess(os.path.join(BIN, "neuroshard-planner")) as service, neuroshard.PlannerClient(service.address) as client:
            self.assertEqual(user.answer(), client.plan(REQUEST).plan.SerializeToString(deterministic=True))
        user.end()
        self.assert_nothing_is_left()

    def test_eight_ranks_start_one_which_outlives_any_of_them(self):
        ranks = [self.user() for _ in range(8)]
        answers = {rank.ask() and rank.answer() for rank in [rank.ask() for rank in ranks]}
        self.assertEqual(len(answers), 1)
        planner = self.planners()
        self.assertEqual(len(planner), 1)
        (path,) = self.sockets()
        self.assertEqual([stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)], [0o600, 0o700])
        for rank in ranks[:-1]:  # whichever of them started it
            rank.kill()
        self.assertEqual([ranks[-1].answer(), ranks[-1].ask().answer()], [*answers, *answers])
        self.assertEqual(self.planners(), planner)
        ranks[-1].kill()
        self.assert_nothing_is_left()

    def test_starts_again_where_it_was_killed(self):
        user = self.user()
        first = user.ask().answer()
        (planner,) = self.planners()
        os.kill(planner, signal.SIGKILL)
        self.assertEqual(user.ask().answer(), first)
        self.assertNotIn(planner, self.planners())
        os.kill(self.planners()[0], signal.SIGKILL)
        user.end()
        self.assert_nothing_is_left()

    def test_is_killed_within_a_call(self):
        user = self.user(f"""
import os, signal, sys
import neuroshard
client = neuroshard.PlannerClient(timeout_s=60)
request = {{**{REQUEST!r}, "search": {{"time_budget_ms": 30_000}}}}
request["tables"] = [{{**request["tables"][0], "name": f"n{{i}}", "num_embeddings": 1000 + 977 * i}} for i in range(400)]
request["topology"] = {{"hosts": [{{"num_devices": 8, "memory_bytes": 1 << 33}}] * 8}}
try:
    updates = client.plan_stream(request)
    print(next(updates).final, flush=True)
    sys.stdin.readline()
    for update in updates:
        pass
except neuroshard.Unavailable:
    print(client.plan({REQUEST!r}).plan.SerializeToString(deterministic=True).hex(), flush=True)
sys.stdin.readline()
""")
        self.assertEqual(user.process.stdout.readline(), "False\n")
        os.kill(self.planners()[0], signal.SIGKILL)
        self.assertTrue(user.ask().answer())
        user.end()
        self.assert_nothing_is_left()

    def test_forks_hold_the_planner_of_their_parent(self):
        user = self.user(f"""
import os, signal, sys
import neuroshard
plan = lambda: neuroshard.PlannerClient(timeout_s=60).plan({REQUEST!r}).plan.SerializeToString(deterministic=True).hex()
# gRPC does not survive a fork: the parent of one that calls has not called.
from neuroshard_programs.embedded import EmbeddedPlanner
EmbeddedPlanner().ensure()
if os.fork() == 0:
    sys.stdin.readline()
    print(plan(), flush=True)
    sys.stdin.readline()
    os._exit(0)
print("00", flush=True)
signal.pause()
""")
        self.assertEqual(user.answer(), b"\0")
        planner = self.planners()
        self.assertEqual(len(planner), 1)
        user.kill()  # the parent; its fork goes on
        self.assertTrue(user.ask().answer())
        self.assertEqual(self.planners(), planner)
        user.ask()  # the fork ends
        self.assert_nothing_is_left()

    def test_a_daemon_that_closed_its_files_holds_another_lock(self):
        user = self.user(f"""
import os, sys
from neuroshard_programs.embedded import EmbeddedPlanner
EmbeddedPlanner().ensure()
os.closerange(3, 1000)
""" + USER.replace("import neuroshard\n", "import neuroshard, os\n", 1).replace("for line", "os.open('/dev/null', os.O_RDONLY)\nfor line"))
        answer = user.ask().answer()  # which the planner that ends may be too late to give: another one does
        self.assertTrue(answer)
        self.assertEqual(user.ask().answer(), answer)
        user.kill()
        self.assert_nothing_is_left()

    def test_spawned_processes_find_it(self):
        program = self.folder / "spawning.py"
        program.write_text(f"""
import multiprocessing
import neuroshard
def plan(_):
    return neuroshard.PlannerClient(timeout_s=60).plan({REQUEST!r}).plan.SerializeToString(deterministic=True).hex()
if __name__ == "__main__":
    mine = plan(0)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(plan, range(2)) == [mine, mine]
    print(mine, flush=True)
    input()
""")
        user = self.user(f"import runpy, sys\nsys.argv = [{str(program)!r}]\nrunpy.run_path(sys.argv[0], run_name='__main__')")
        self.assertTrue(user.answer())
        self.assertEqual(len(self.planners()), 1)
        user.ask().end()
        self.assert_nothing_is_left()

    def test_for_asyncio(self):
        user = self.user(f"""
import asyncio
import neuroshard
async def main():
    async with neuroshard.aio.PlannerClient() as client:
        async for update in client.plan_stream({REQUEST!r}):
            pass
        assert update.best.plan == (await client.plan({REQUEST!r})).plan
asyncio.run(main())
""")
        user.end()
        self.assert_nothing_is_left()

    def test_an_address_is_asked_instead(self):
        with neuroshard.PlannerClient("127.0.0.1:1", retries=0) as client, self.assertRaises(neuroshard.Unavailable):
            client.models(timeout_s=5)
        self.assertEqual(neuroshard.PlannerClient(credentials=grpc.ssl_channel_credentials()).address, "127.0.0.1:50051")
        os.environ["NEUROSHARD_PLANNER"] = "127.0.0.1:1"
        self.assertEqual(neuroshard.PlannerClient().address, "127.0.0.1:1")
        self.assertFalse(any(self.folder.iterdir()))

    def test_another_model_root_is_another_planner(self):
        first = neuroshard.PlannerClient().address
        del os.environ["NEUROSHARD_MODELS"]
        self.assertNotEqual(neuroshard.PlannerClient().address, first)

    def test_says_what_is_wrong(self):
        long = str(self.folder / ("d" * 90))
        self.assertRegex(self.fault(TMPDIR=long), f"the socket {long}/neuroshard-\\d+/\\w+.sock would have a path of 1\\d\\d bytes, and a Unix socket's may have 107")
        self.assertIn('models.root', missing := self.fault(NEUROSHARD_MODELS="/no/such/root"))
        self.assertIn('"/no/such/root"', missing)
        self.assertIn("/no/such/bin/neuroshard-planner", self.fault(NEUROSHARD_BIN="/no/such/bin"))
        self.assertIn("/no/such/tmp/neuroshard-", self.fault(TMPDIR="/no/such/tmp"))
        self.assertIn("/no/log: No such file or directory\n", self.fault(NEUROSHARD_PLANNER_LOG=str(self.folder / "no/log")))
        old = self.folder / "neuroshard-planner"
        old.write_text("#!/bin/sh\necho \"$0: libc.so.6: version \\`GLIBC_2.35' not found\" >&2\nexit 1\n")
        old.chmod(0o755)
        self.assertIn("needs glibc 2.35 or newer, and this host has 2.", self.fault(NEUROSHARD_BIN=str(self.folder)))
        own = self.folder / f"neuroshard-{os.getuid()}"
        own.chmod(0o755)
        self.assertRegex(self.fault(), f"{own} must be a folder of user \\d+ with mode 0700, and is of user \\d+ with mode 0755")
        self.assert_nothing_is_left()

    def test_a_full_and_a_read_only_folder(self):
        inside = ["unshare", "--user", "--map-root-user", "--mount"]
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("mounting needs user namespaces")
        for options, words in (("size=4k,nr_inodes=1", "No space left on device"), ("ro", "Read-only file system")):
            done = subprocess.run([*inside, "sh", "-c", f"mount -t tmpfs -o {options} none {self.folder} && exec \"$@\"", "sh", sys.executable, "-B", "-c",
                                   "import neuroshard\nneuroshard.PlannerClient().models()"], capture_output=True, text=True, check=False)
            self.assertIn(f"{self.folder}/neuroshard-0: {words} (TMPDIR", done.stderr)

    @unittest.skipIf(os.getuid() != 0, "becoming another user needs root")
    def test_two_users_have_a_planner_each(self):
        self.folder.chmod(0o1777)
        one = self.user()
        self.assertTrue(one.ask().answer())
        # Imported as root, whose Python others may not read.
        other = self.user("import os\nimport neuroshard\nfrom neuroshard_programs import embedded\nos.setgid(65534)\nos.setuid(65534)\n" + USER)
        self.assertEqual(other.ask().answer(), one.ask().answer())
        self.assertEqual(len(self.planners()), 2)
        (path,) = [path for path in self.sockets() if path.stat().st_uid == 0]
        refused = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/env", "python3", "-c", f"""
import socket
socket.socket(socket.AF_UNIX).connect({str(path)!r})"""], capture_output=True, text=True, check=False)
        self.assertIn("PermissionError", refused.stderr)
        one.end()
        other.end()
        self.assert_nothing_is_left()

    def test_logs_where_it_is_asked_to(self):
        log = self.folder / "log"
        os.environ["NEUROSHARD_PLANNER_LOG"] = str(log)
        user = self.user()
        user.ask().answer()
        user.end()
        self.assert_nothing_is_left()
        self.assertRegex(log.read_text(), "(?s)serving address=unix:.*plan_made.*stopped")


class CommandTest(Setting):
    def command(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", "-c", "import sys, neuroshard_programs\nsys.argv[0] = '/venv/bin/neuroshard'\nneuroshard_programs.main()",
                               *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False)

    def test_plans_without_a_planner(self):
        request = self.folder / "request.yaml"
        request.write_text(str(REQUEST))
        done = self.command("plan", str(request), "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"^neuroshard: no --planner and no NEUROSHARD_PLANNER: asking the embedded planner unix:\S+\n")
        self.assertIn('"embedding_cost_ms"', done.stdout)
        self.assert_nothing_is_left()
        done = self.command("plan", str(request), "--planner", "127.0.0.1:1")
        self.assertEqual((done.returncode, "embedded" in done.stderr), (1, False))
        done = self.command("plan", str(request), NEUROSHARD_MODELS="/no/such/root")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r'^neuroshard: .*models.root: no such directory: "/no/such/root".*\n$')

    def test_embeds_for_the_commands_that_ask(self):
        listed = subprocess.run([os.path.join(BIN, "neuroshard"), "--help"], capture_output=True, text=True, check=True).stdout
        names = [line.split()[0] for line in listed.partition("Subcommands:\n")[2].splitlines() if line.startswith("  ") and not line.startswith("   ")]
        below = {"models": ["list"], "predict": ["compute"]}
        asking = {name for name in names if "Planner to ask" in self.command(name, *below.get(name, []), "--help").stdout}
        self.assertEqual(asking, set(_ASKING))
        self.assert_nothing_is_left()


if __name__ == "__main__":
    BIN = os.path.dirname(os.path.abspath(sys.argv[1]))
    unittest.main(argv=sys.argv[:1])
