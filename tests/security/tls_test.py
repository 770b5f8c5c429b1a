#!/usr/bin/env python3
"""Real servers under TLS: who gets in, who may do what, and certificates that change under way.

    tls_test.py NEUROSHARD_PLANNER NEUROSHARD_WORKER NEUROSHARD
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
from neuroshard import PlannerClient, errors, v1
from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub
from planner_process import MODELS, NativeWorkerProcess, PlannerProcess

PLANNER, WORKER, NEUROSHARD = sys.argv[1:]
MAKE_CERTS = pathlib.Path(__file__).resolve().parents[2] / "deploy/make_dev_certs.sh"
ROLES = {"read": ["dashboard-*"], "plan": ["spiffe://example.org/trainer/*"], "profile": ["operator.example.org"], "admin": ["root.example.org"]}
NAMES = {
    "server": "DNS:localhost,IP:127.0.0.1", "trainer": "URI:spiffe://example.org/trainer/1", "operator": "DNS:operator.example.org",
    "stranger": "URI:spiffe://example.org/trainers/1", "root": "DNS:root.example.org", "dashboard": "DNS:dashboard-1",
}


def make_certs(folder, days=30, **names):
    subprocess.run([MAKE_CERTS, folder, *(f"{name}={san}" for name, san in names.items())], check=True, env=os.environ | {"NEUROSHARD_CERT_DAYS": str(days)})


def sign(folder, name, extensions, key="EC -pkeyopt ec_paramgen_curve:P-256", authority="ca", days=9):
    """NAME.pem and NAME.key of an authority of the folder, as make_dev_certs.sh would not make them."""
    script = f"""openssl genpkey -algorithm {key} -out {name}.key
        openssl req -new -key {name}.key -out request -subj /CN={name}
        openssl x509 -req -in request -CA {authority}.pem -CAkey {authority}.key -set_serial 0x$(openssl rand -hex 8) -days {days} -extfile extensions -out {name}.pem"""
    (folder / "extensions").write_text(extensions)
    subprocess.run(["bash", "-ec", script], cwd=folder, check=True, capture_output=True)


def credentials(folder, name, ca=None):
    def read(file):
        return (folder / file).read_bytes()

    return grpc.ssl_channel_credentials((ca or folder / "ca.pem").read_bytes(), read(f"{name}.key"), read(f"{name}.pem"))


def request():
    return v1.ShardPlanRequest(
        tables=[v1.Table(name=f"t{i}", num_embeddings=1000, embedding_dim=16, pooling_factor=4) for i in range(4)], global_batch_size=1024,
        topology=v1.Topology(hosts=[v1.HostGroup(num_devices=2, memory_bytes=1 << 30)]), cost_model=v1.CostModelRef(name="analytic"),
        search=v1.SearchOptions(strategy="size_greedy"))


class TlsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        make_certs(self.folder, **NAMES)

    def configuration(self, **more):
        tls = {"certificate": str(self.folder / "server.pem"), "key": str(self.folder / "server.key"), "client_ca": str(self.folder / "ca.pem"),
               "reload_s": 1, "roles": ROLES}
        return json.dumps({"tls": tls | more})

    def start(self, **more):
        planner = PlannerProcess(PLANNER, config=self.configuration(**more))
        self.addCleanup(planner.stop)
        return planner

    def client(self, planner, name, folder=None, ca=None, retries=0):
        client = PlannerClient("localhost:" + planner.address.rsplit(":")[-1], credentials=credentials(folder or self.folder, name, ca), timeout_s=30, retries=retries)
        self.addCleanup(client.close)
        return client

    def replicas(self, **names):
        """One planner for each certificate's name, which has such alternative names."""
        make_certs(self.folder, **names)
        return [self.start(certificate=str(self.folder / f"{name}.pem"), key=str(self.folder / f"{name}.key")) for name in names]

    def models_list(self, addresses, *options, prefix=""):
        files = [f"--tls-{option}={self.folder / (prefix + file)}" for option, file in (("ca", "ca.pem"), ("cert", "trainer.pem"), ("key", "trainer.key"))]
        return subprocess.run([NEUROSHARD, "models", "list", "--planner", addresses, *files, *options], capture_output=True, text=True, timeout=60)

    def test_every_replica_of_a_list_shows_a_certificate_of_its_own(self):
        by_address, by_name, other = self.replicas(one="IP:127.0.0.1", two="DNS:localhost", three="DNS:elsewhere.example")
        replicas = [by_address.address, "localhost:" + by_name.address.rpartition(":")[2], other.address]
        listed = self.models_list(",".join(replicas))
        self.assertEqual(listed.returncode, 0, listed.stderr)
        # The third is said once, and why; nothing is said of the others.
        self.assertEqual(listed.stderr.count("warning: planner at "), 1, listed.stderr)
        self.assertRegex(listed.stderr, f"warning: planner at {other.address}: the server's certificate does not name this address .*; calls go to the others of {','.join(replicas)}")
        with PlannerClient(",".join(replicas), credentials=credentials(self.folder, "trainer"), timeout_s=30) as client:
            with self.assertLogs("neuroshard", "WARNING") as log:
                for _ in range(4):
                    client.models()
            self.assertEqual(len(log.output), 1, log.output)
            self.assertIn(f"planner at {other.address}: the server's certificate does not name this address ", log.output[0])
            with self.assertLogs("neuroshard", "WARNING") as log:  # each of the two took calls: one that is lost is noticed
                by_address.kill()
                for _ in range(4):
                    client.models()
            self.assertIn(f"planner at {by_address.address}: ", log.output[0])
        self.assertEqual(self.models_list(other.address).returncode, 1)

    def test_one_name_may_stand_for_every_replica(self):
        replicas = self.replicas(one="DNS:planner.example", two="DNS:planner.example")
        addresses = ",".join(replica.address for replica in replicas)
        self.assertEqual(self.models_list(addresses).returncode, 1)
        listed = self.models_list(addresses, "--tls-server-name", "planner.example")
        self.assertEqual((listed.returncode, listed.stderr), (0, ""))
        with PlannerClient(addresses, credentials=credentials(self.folder, "trainer"), tls_server_name="planner.example", timeout_s=30) as client:
            with self.assertNoLogs("neuroshard", "WARNING"):
                client.models()

    def test_a_role_is_what_a_caller_may_do(self):
        planner = self.start()
        trainer = self.client(planner, "trainer")
        trainer.models()
        self.assertEqual(len(trainer.plan(request()).plan.tables), 4)
        for name in ("operator", "stranger"):
            with self.assertRaisesRegex(errors.PlannerError, "ShardPlan needs the role plan or admin, which the certificate of .* does not have here") as caught:
                self.client(planner, name).plan(request())
            self.assertEqual(caught.exception.code, grpc.StatusCode.PERMISSION_DENIED)
        self.client(planner, "root").plan(request())

    def test_the_command_line(self):
        planner = self.start()
        address = "localhost:" + planner.address.rsplit(":")[-1]
        files = {"NEUROSHARD_TLS_CA": "ca.pem", "NEUROSHARD_TLS_CERT": "trainer.pem", "NEUROSHARD_TLS_KEY": "trainer.key"}

        def run(*options, environment=None):
            command = [NEUROSHARD, "models", "list", "--planner", address, *options]
            return subprocess.run(command, capture_output=True, text=True, env=os.environ | (environment or {}), timeout=60)

        by_flags = run("--tls-ca", self.folder / "ca.pem", "--tls-cert", self.folder / "trainer.pem", "--tls-key", self.folder / "trainer.key")
        self.assertIn("cpu-amd-epyc", by_flags.stdout, by_flags.stderr)
        by_environment = run(environment={name: str(self.folder / file) for name, file in files.items()})
        self.assertIn("cpu-amd-epyc", by_environment.stdout, by_environment.stderr)
        without = run()
        self.assertEqual((without.returncode, "one of the two has TLS and the other has not" in without.stderr), (1, True), without.stderr)
        alone = run("--tls-ca", self.folder / "ca.pem")
        self.assertEqual((alone.returncode, "--tls-" in alone.stderr), (2, True), alone.stderr)
        none = run("--tls-ca", self.folder / "none.pem", "--tls-cert", self.folder / "ca.key", "--tls-key", self.folder / "ca.key")
        self.assertEqual(none.returncode, 2)
        self.assertIn("none.pem", none.stderr)

    def command(self, *arguments, folder=None, name="trainer", ca=None):
        folder = folder or self.folder
        files = ["--tls-ca", ca or folder / "ca.pem", "--tls-cert", folder / f"{name}.pem", "--tls-key", folder / f"{name}.key"]
        return subprocess.run([NEUROSHARD, *arguments, *files], capture_output=True, text=True, timeout=60)

    def certificates_of_this_authority(self, name, **more):
        folder = self.folder / name
        folder.mkdir()
        for file in ("ca.pem", "ca.key"):
            (folder / file).write_bytes((self.folder / file).read_bytes())
        make_certs(folder, **more)
        return folder

    def test_the_client_says_what_is_wrong_with_its_own_certificate(self):
        expired = self.certificates_of_this_authority("expired", days=-1, trainer=NAMES["trainer"])
        said = self.command("models", "list", "--planner", "127.0.0.1:1", folder=expired)
        self.assertEqual(said.returncode, 2)
        self.assertRegex(said.stderr, r"trainer.pem expired at 20\d\d-\d\d-\d\dT")
        for cert, key, says in (("trainer.pem", "root.key", "root.key is not the key of .*trainer.pem"), ("trainer.key", "trainer.pem", "trainer.key has no certificate in PEM")):
            files = ["--tls-ca", self.folder / "ca.pem", "--tls-cert", self.folder / cert, "--tls-key", self.folder / key]
            said = subprocess.run([NEUROSHARD, "models", "list", "--planner", "127.0.0.1:1", *files], capture_output=True, text=True, timeout=60)
            self.assertEqual(said.returncode, 2)
            self.assertRegex(said.stderr, says)

    def test_the_client_says_what_is_wrong_with_the_server_s_certificate(self):
        other = self.folder / "other"
        make_certs(other, **NAMES)
        planner = self.start()
        address = "localhost:" + planner.address.rsplit(":")[-1]
        said = self.command("models", "list", "--planner", address, ca=other / "ca.pem")
        self.assertEqual(said.returncode, 1)
        self.assertRegex(" ".join(said.stderr.split()), f"the certificate of {address} is not from an authority that the caller trusts")
        short = self.certificates_of_this_authority("short", days=2, server=NAMES["server"], trainer=NAMES["trainer"])
        planner = self.start(certificate=str(short / "server.pem"), key=str(short / "server.key"))
        address = "localhost:" + planner.address.rsplit(":")[-1]
        said = json.loads(self.command("doctor", "--planner", address, "--format", "json", folder=short).stdout)
        notes = [(check["check"], check["message"]) for check in said["checks"] if check["status"] == "note"]
        for check in ("planner", "tls"):
            self.assertRegex(str(notes), f"'{check}', 'its certificate ends at 20")
        said = json.loads(self.command("doctor", "--planner", address, "--format", "json", name="dashboard").stdout)
        notes = [check["message"] for check in said["checks"] if check["status"] == "note"]
        self.assertIn("this caller may look, but not ask for plans", notes)

    def test_who_does_not_get_in(self):
        planner = self.start()
        other = self.folder / "other"
        make_certs(other, **NAMES)
        expired = self.folder / "expired"
        expired.mkdir()
        for file in ("ca.pem", "ca.key"):
            (expired / file).write_bytes((self.folder / file).read_bytes())
        make_certs(expired, days=-1, trainer=NAMES["trainer"])
        for folder, ca in ((other, self.folder / "ca.pem"), (expired, None), (self.folder, other / "ca.pem")):
            with self.subTest(folder=folder.name, ca=ca), self.assertRaises(errors.PlannerError) as caught:
                self.client(planner, "trainer", folder, ca).models()
            self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)
        only_trusting = grpc.ssl_channel_credentials((self.folder / "ca.pem").read_bytes())
        for credential in (None, only_trusting):  # in the clear; no certificate at all
            with self.subTest(credential=credential), self.assertRaises(errors.PlannerError) as caught:
                PlannerClient("localhost:" + planner.address.rsplit(":")[-1], timeout_s=10, retries=0, credentials=credential).models()
            self.assertIn(caught.exception.code, (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
        self.client(planner, "trainer").models()

    def test_certificates_rotate_under_a_stream(self):
        planner = self.start()
        long = request()
        long.search.strategy, long.search.time_budget_ms = "refine", 8000
        long.search.refine_steps = 1 << 40
        results = []
        old = self.client(planner, "trainer")
        stream = threading.Thread(target=lambda: results.append(list(old.plan_stream(long))))
        stream.start()
        planner.wait_for_metric('neuroshard_rpc_in_flight{rpc="ShardPlanStream"} 1')
        fresh = self.folder / "fresh"
        make_certs(fresh, **NAMES)  # of another authority
        for file in ("server.key", "server.pem", "ca.pem"):
            (self.folder / f"{file}.part").write_bytes((fresh / file).read_bytes())
            os.replace(self.folder / f"{file}.part", self.folder / file)
        give_up = time.monotonic() + 60
        while True:  # until the server has read them
            try:
                self.client(planner, "trainer", fresh).models()
                break
            except errors.PlannerError:
                self.assertLess(time.monotonic(), give_up)
                time.sleep(0.1)
        stream.join()
        self.assertTrue(results and results[0], "the stream of before ended well")
        with self.assertRaises(errors.PlannerError) as caught:  # those of the old authority are strangers now
            self.client(planner, "trainer", self.folder, fresh / "ca.pem").models()
        self.assertEqual(caught.exception.code, grpc.StatusCode.UNAVAILABLE)

    def failures(self, planner):
        return float(re.search(r"^neuroshard_tls_reload_failures_total (\S+)$", planner.metrics(), re.MULTILINE)[1])

    def test_files_that_cannot_be_used_are_not_taken(self):
        planner = self.start()
        good = {file: (self.folder / file).read_bytes() for file in ("server.pem", "server.key", "ca.pem")}
        ends = re.search(r'^neuroshard_tls_not_after_seconds\{file="certificate"\} (\S+)$', planner.metrics(), re.MULTILINE)[1]
        self.assertAlmostEqual(float(ends), time.time() + 30 * 86400, delta=3600)
        expired = self.folder / "expired"
        expired.mkdir()
        for file in ("ca.pem", "ca.key"):
            (expired / file).write_bytes((self.folder / file).read_bytes())
        make_certs(expired, days=-1, server=NAMES["server"])
        names = "subjectAltName=DNS:localhost\n"
        sign(self.folder, "weak", names, key="RSA -pkeyopt rsa_keygen_bits:1024")
        sign(self.folder, "client", names + "extendedKeyUsage=clientAuth\n")
        sign(self.folder, "between", "basicConstraints=critical,CA:true\n", days=-1)
        sign(self.folder, "leaf", names, authority="between")

        def pair(name, chain=b""):
            return {"server.pem": (self.folder / f"{name}.pem").read_bytes() + chain, "server.key": (self.folder / f"{name}.key").read_bytes()}

        for what, files in {
            "half of a chain": {"server.pem": good["server.pem"] + good["ca.pem"][:300]},
            "half of the authorities": {"ca.pem": good["ca.pem"] + good["server.pem"][:300]},
            "a key that OpenSSL holds for too small": pair("weak"),
            "a certificate for clients": pair("client"),
            "a chain that has expired": pair("leaf", (self.folder / "between.pem").read_bytes()),
            "garbage": {"server.pem": b"garbage\n"},
            "the key of another certificate": {"server.key": (self.folder / "trainer.key").read_bytes()},
            "half a key": {"server.key": good["server.key"][:100]},
            "half a certificate": {"server.pem": good["server.pem"][:300]},
            "an empty authority": {"ca.pem": b""},
            "a key as authority": {"ca.pem": good["server.key"]},
            "an expired certificate": {file: (expired / file).read_bytes() for file in ("server.pem", "server.key")},
            "no certificate": {"server.pem": None},
        }.items():
            with self.subTest(what=what):
                for file, content in files.items():
                    (self.folder / file).unlink() if content is None else (self.folder / file).write_bytes(content)
                before = self.failures(planner)
                while self.failures(planner) < before + 2:  # two readings, so the second began after the file was written
                    time.sleep(0.05)
                for name in ("trainer", "operator"):
                    with grpc.secure_channel("localhost:" + planner.address.rsplit(":")[-1], grpc.ssl_channel_credentials(
                            good["ca.pem"], (self.folder / f"{name}.key").read_bytes(), (self.folder / f"{name}.pem").read_bytes())) as channel:
                        grpc.channel_ready_future(channel).result(timeout=20)
                for file, content in good.items():
                    (self.folder / file).write_bytes(content)
        give_up = time.monotonic() + 30
        while re.findall(r" (tls_reload\w+)", planner.log())[-1] != "tls_reloaded":  # the good files are back
            self.assertLess(time.monotonic(), give_up)
        self.assertIn("error tls_reload_failed", planner.log())
        for said in ("server.key is not the key of", "server.pem has 1 certificate and one that cannot be read", "ca.pem has 1 certificate and one that cannot",
                     "server.pem is not taken for TLS: ee key too small", "server.pem is not for servers", "server.pem has certificate 2, which expired at"):
            self.assertIn(said, planner.log())

    def test_files_of_other_systems(self):
        for what, change in {"lines of Windows": lambda text: text.replace(b"\n", b"\r\n"), "a byte order mark": lambda text: b"\xef\xbb\xbf" + text}.items():
            with self.subTest(what=what):
                for file in ("ca.pem", "server.pem", "server.key", "trainer.pem", "trainer.key"):
                    (self.folder / f"other-{file}").write_bytes(change((self.folder / file).read_bytes()))
                planner = self.start(certificate=str(self.folder / "other-server.pem"), key=str(self.folder / "other-server.key"), client_ca=str(self.folder / "other-ca.pem"))
                listed = self.models_list(planner.address, prefix="other-")
                self.assertEqual((listed.returncode, listed.stderr), (0, ""))
                self.client(planner, "trainer").models()

    def test_a_client_names_its_file_that_cannot_be_used(self):
        planner = self.start()
        good = {file: (self.folder / file).read_bytes() for file in ("ca.pem", "trainer.pem", "trainer.key")}
        expired = self.folder / "expired"
        expired.mkdir()
        for file in ("ca.pem", "ca.key"):
            (expired / file).write_bytes((self.folder / file).read_bytes())
        make_certs(expired, days=-1, trainer=NAMES["trainer"])
        sign(self.folder, "server-only", "extendedKeyUsage=serverAuth\n")
        for files, said in (
            ({"trainer.key": (self.folder / "server.key").read_bytes()}, "--tls-key: .*trainer.key is not the key of .*trainer.pem"),
            ({"trainer.key": good["trainer.key"][:100]}, "--tls-key: .*trainer.key has no private key in PEM"),
            ({"trainer.pem": good["trainer.pem"][:300]}, "--tls-cert: .*trainer.pem has no certificate in PEM"),
            ({"ca.pem": good["ca.pem"][:300]}, "--tls-ca: .*ca.pem has no certificate in PEM"),
            ({file: (expired / file).read_bytes() for file in ("trainer.pem", "trainer.key")}, "--tls-cert: .*trainer.pem expired at 20"),
            ({f"trainer.{part}": (self.folder / f"server-only.{part}").read_bytes() for part in ("pem", "key")}, "--tls-cert: .*trainer.pem is not for clients"),
        ):
            with self.subTest(said=said):
                for file, content in (good | files).items():
                    (self.folder / file).write_bytes(content)
                listed = self.models_list(planner.address)
                self.assertEqual(listed.returncode, 2, listed.stderr)
                self.assertRegex(listed.stderr, said)
        for file, content in good.items():
            (self.folder / file).write_bytes(content)
        other = self.folder / "other"
        make_certs(other, **NAMES)
        (self.folder / "ca.pem").write_bytes((other / "ca.pem").read_bytes())
        self.assertIn("is not from an authority that the caller trusts (", self.models_list(planner.address).stderr)

    def test_an_expired_certificate_is_named_before_the_start(self):
        for days, says in ((-1, "expired at"),):
            folder = self.folder / "other"
            folder.mkdir()
            for file in ("ca.pem", "ca.key"):
                (folder / file).write_bytes((self.folder / file).read_bytes())
            make_certs(folder, days=days, server=NAMES["server"])
            config = self.configuration(certificate=str(folder / "server.pem"), key=str(folder / "server.key"))
            status, said = self.run_planner("127.0.0.1:0", config, "--check-config")
            self.assertEqual(status, 2)
            self.assertRegex(said, f"tls.certificate: .*server.pem {says} 20")

    def test_a_worker(self):
        with NativeWorkerProcess(WORKER, config=self.configuration()) as worker:
            address = "localhost:" + worker.address.rsplit(":")[-1]
            for name, allowed in (("operator", True), ("trainer", False)):
                with grpc.secure_channel(address, credentials(self.folder, name)) as channel:
                    try:
                        WorkerServiceStub(channel).GetWorkerInfo(v1.GetWorkerInfoRequest(), timeout=30)
                        self.assertTrue(allowed)
                    except grpc.RpcError as fault:
                        self.assertEqual((fault.code(), allowed), (grpc.StatusCode.PERMISSION_DENIED, False))

    def run_planner(self, listen, config, *more):
        path = self.folder / "planner.yaml"
        path.write_text(config)
        done = subprocess.run([PLANNER, "--config", path, "--models", MODELS, "--listen", listen, "--metrics", "127.0.0.1:0", *more], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def test_a_server_that_would_be_open_does_not_start(self):
        status, said = self.run_planner("0.0.0.0:0", "{}")
        self.assertEqual(status, 1)
        self.assertRegex(said, "0.0.0.0:0 can be reached from other hosts, and without TLS everybody there may call this server")
        status, said = self.run_planner("no.such.host.invalid:0", "{}")
        self.assertEqual((status, "reached from other hosts" in said), (1, False), said)
        planner = PlannerProcess(PLANNER, listen="0.0.0.0:0", config="insecure: true")
        self.addCleanup(planner.stop)
        self.assertIn("warning insecure", planner.log())
        status, said = self.run_planner("127.0.0.1:0", self.configuration(key=str(self.folder / "trainer.key")))
        self.assertEqual(status, 1)
        self.assertRegex(said, "tls.key: .*trainer.key is not the key of .*server.pem")

    def test_check_config_knows_what_keeps_it_from_starting(self):
        for listen, config, fault in (
            ("0.0.0.0:0", "{}", "listen: 0.0.0.0:0 can be reached from other hosts"),
            ("127.0.0.1:0", self.configuration(key="none.key"), "tls.key: cannot read none.key"),
        ):
            status, said = self.run_planner(listen, config, "--check-config")
            self.assertEqual((status, fault in said), (2, True), said)
        self.assertEqual(self.run_planner("0.0.0.0:0", "{}", "--check-config", "--insecure")[0], 0)
        self.assertEqual(self.run_planner("0.0.0.0:0", self.configuration(), "--check-config")[0], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
