#!/usr/bin/env python3
"""deploy/kubernetes: against the published schemas, against our programs, and against itself. No cluster is asked.

    kubernetes_test.py BIN CACHE

BIN has the programs. kubernetes-validate, which brings the schemas, is installed from PyPI into CACHE. Exits 77, which ctest shows as skipped, where
it cannot be fetched.
"""

import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

BIN, CACHE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
VALIDATOR = "kubernetes-validate==1.37.0"
KUBERNETES = ("1.29", "1.33", "1.37")
SKIPPED = 77
CERTIFICATES = "/etc/neuroshard-tls"


def enter_environment():
    """Goes on in an environment that has the schemas; false where it cannot be made."""
    folder = CACHE / VALIDATOR
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = CACHE / "part"
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run(["/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3", "-m", "venv", "--system-site-packages", part], check=True)
        if subprocess.run([part / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", VALIDATOR]).returncode != 0:
            return False
        part.rename(folder)
    if pathlib.Path(sys.prefix).resolve() != folder:
        os.execv(folder / "bin/python", [folder / "bin/python", "-B", *sys.argv])
    return True


def step_into(where, part):
    return where[int(part)] if isinstance(where, list) else where[part]


def apply_patch(resource, operations):
    """JSON 6902, as much of it as the manifests use."""
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        where = resource
        for part in parents:
            where = step_into(where, part)
        if operation["op"] == "add" and last == "-":
            where.append(operation["value"])
        elif operation["op"] == "replace" and last in where:
            where[last] = operation["value"]
        else:
            raise ValueError(operation)


def build(folder):
    """What `kubectl kustomize FOLDER` makes of the fields that the manifests use, without suffixes of generated names; and the files it read."""
    file = folder / "kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    unknown = set(kustomization) - {"apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator", "images", "patches"}
    assert not unknown, f"{file}: {unknown}"
    resources, files = [], {file}
    for path in kustomization.get("resources", []):
        if (folder / path).is_dir():
            made, read = build((folder / path).resolve())
            resources, files = resources + made, files | read
        else:
            resources += yaml.safe_load_all((folder / path).read_text())
            files.add(folder / path)
    for generated in kustomization.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generated["files"]}
        resources.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
        files |= {folder / name for name in generated["files"]}
    for path in kustomization.get("components", []):
        component = (folder / path).resolve()
        made, read = build(component)
        resources, files = resources + made, files | read
        for patch in yaml.safe_load((component / "kustomization.yaml").read_text())["patches"]:
            targets = [found for found in resources if (found["kind"], found["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"])]
            assert targets, patch["target"]
            for target in targets:
                apply_patch(target, yaml.safe_load(patch["patch"]))
    for resource in resources:
        if "namespace" in kustomization:
            resource["metadata"]["namespace"] = kustomization["namespace"]
    return resources, files


def of_kind(resources, *kinds):
    return [resource for resource in resources if resource["kind"] in kinds]


def pods(resources):
    return [(resource, resource["spec"]["template"]) for resource in of_kind(resources, "Deployment", "DaemonSet", "Job")]


def containers(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="neuroshard-kubernetes-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([ROOT / "deploy/make_dev_certs.sh", cls.folder / "made", "server=DNS:localhost"], check=True)
        (cls.folder / "tls").mkdir()
        for made, name in (("server.pem", "tls.crt"), ("server.key", "tls.key"), ("ca.pem", "ca.crt")):
            shutil.copy(cls.folder / "made" / made, cls.folder / "tls" / name)
        cls.builds = {name: build(MANIFESTS / name)[0] for name in ("planner", "worker", "sweep", "secured")}

    def test_every_file_belongs_to_a_kustomization(self):
        used = set().union(*(build(path.parent)[1] for path in MANIFESTS.glob("*/kustomization.yaml")))
        self.assertEqual({path for path in MANIFESTS.rglob("*") if path.is_file()} - {MANIFESTS / "README.md"}, used)

    def test_schemas(self):
        for name, resources in self.builds.items():
            for resource in resources:
                for version in KUBERNETES:
                    with self.subTest(build=name, resource=resource["metadata"]["name"], kind=resource["kind"], version=version):
                        kubernetes_validate.validate(resource, version, strict=True)

    def test_the_schemas_would_notice(self):
        deployment = copy.deepcopy(of_kind(self.builds["planner"], "Deployment")[0])
        deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["grpc"]["servce"] = "x"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)

    def test_what_is_named_is_there(self):
        for resources in self.builds.values():
            self.assertEqual({resource["metadata"].get("namespace") for resource in resources}, {"neuroshard"})
            there = {(resource["kind"], resource["metadata"]["name"]): resource for resource in resources}
            for resource, pod in pods(resources):
                volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
                for volume in volumes.values():
                    if "configMap" in volume:
                        self.assertIn(("ConfigMap", volume["configMap"]["name"]), there)
                    if "persistentVolumeClaim" in volume:
                        self.assertIn(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]), there)
                for container in containers(pod):
                    self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, set(volumes))
                if resource["kind"] != "Job":
                    self.assertEqual(resource["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"])
            labels = [pod["metadata"]["labels"] for _, pod in pods(resources)]
            for service in of_kind(resources, "Service"):
                pod = next(pod for _, pod in pods(resources) if pod["metadata"]["labels"] == service["spec"]["selector"])
                ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
                self.assertEqual({port["targetPort"]: port["port"] for port in service["spec"]["ports"]}, ports)
            for selecting in of_kind(resources, "PodDisruptionBudget"):
                self.assertIn(selecting["spec"]["selector"]["matchLabels"], labels)
            for policy in of_kind(resources, "NetworkPolicy"):
                pod = next(pod for _, pod in pods(resources) if pod["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"])
                named = {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])}
                self.assertEqual(named, {port["name"] for port in pod["spec"]["containers"][0]["ports"]})

    def test_pods_may_do_no_more_than_they_need(self):
        for resources in self.builds.values():
            for _, pod in pods(resources):
                spec = pod["spec"]
                self.assertEqual((spec["automountServiceAccountToken"], spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["seccompProfile"]),
                                 (False, True, {"type": "RuntimeDefault"}))
                for container in containers(pod):
                    self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})
                    self.assertLessEqual({"requests", "limits"}, set(container["resources"]))

    def server_configs(self):
        """(name, pod, text of its configuration) of every server in every build."""
        for resources in self.builds.values():
            maps = {found["metadata"]["name"]: found["data"] for found in of_kind(resources, "ConfigMap")}
            for resource, pod in pods(resources):
                if resource["kind"] != "Job":
                    container = pod["spec"]["containers"][0]
                    name = container["args"][1].rsplit("/", 1)[1]
                    config = next(volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if volume["name"] == "config")
                    yield resource["metadata"]["name"], pod, maps[config][name]

    def command(self, pod, text):
        """The container's command line with its files, on ports that the system chooses, and without a GPU."""
        container = pod["spec"]["containers"][0]
        for old, new in ((CERTIFICATES, str(self.folder / "tls")), ("/models", str(ROOT / "configs/models")), ("backend: cuda", "backend: cpu")):
            text = text.replace(old, new)
        file = self.folder / "config.yaml"
        file.write_text(re.sub(r"(listen: \S+:)\d+", r"\g<1>0", text))
        arguments = [{"$(POD_IP)": "127.0.0.1"}.get(argument, argument) for argument in container["args"]]
        arguments[1] = file
        return [BIN / container["command"][0], *arguments]

    def test_programs_accept_their_options(self):
        seen = []
        for name, pod, text in self.server_configs():
            command = self.command(pod, text)
            checked = subprocess.run([*command, "--check-config"], capture_output=True, text=True)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            seen.append(name)
        self.assertEqual(sorted(seen), ["neuroshard-planner"] * 2 + ["neuroshard-worker"] * 2)

    def test_pods_live_as_long_as_their_drain(self):
        for _, pod, text in self.server_configs():
            rpc = yaml.safe_load(text)["rpc"]
            drain_s = (rpc.get("drain_notice_ms", 0) + rpc["drain_grace_ms"]) / 1000
            self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"], drain_s + 5)

    def test_certificates_change_nothing_else(self):
        plain, secured = {}, {}
        for name, pod, text in self.server_configs():
            config = yaml.safe_load(text)
            (secured if config.pop("tls", None) else plain)[name] = config
        for config in plain.values():
            self.assertTrue(config.pop("insecure"))
        self.assertEqual(plain, secured)

    def test_probes_ask_for_what_servers_answer(self):
        asked = []
        for _, pod, text in self.server_configs():
            container = pod["spec"]["containers"][0]
            probes = [container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
            with open(self.folder / "log", "w", encoding="utf-8") as log:
                server = subprocess.Popen(self.command(pod, text), stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                port = server.stdout.readline().rsplit(":", 1)[-1].strip()
                self.assertTrue(port, (self.folder / "log").read_text())
                for probe in probes:
                    ports = [port["containerPort"] for port in container["ports"]]  # of calls, of metrics
                    self.assertEqual(probe.get("grpc", probe.get("httpGet"))["port"], ports[0 if "grpc" in probe else 1])
                    if "grpc" in probe:
                        service = probe["grpc"].get("service", "").encode()
                        asked.append(service.decode())
                        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                            check = channel.unary_unary("/grpc.health.v1.Health/Check")
                            # HealthCheckRequest {string service = 1}; HealthCheckResponse {status = 1}, SERVING = 1.
                            self.assertEqual(check(b"\n" + bytes([len(service)]) + service, timeout=20, wait_for_ready=True), b"\x08\x01")
                    else:
                        self.assertIn("tls:", text)
                        metrics = re.search(r"metrics_listening address=\S+:(\d+)", (self.folder / "log").read_text())[1]
                        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}{probe['httpGet']['path']}", timeout=20) as answer:
                            self.assertEqual(answer.status, 200)
            finally:
                server.kill()
                server.wait()
                server.stdout.close()
        self.assertEqual(asked, ["", "", "neuroshard.v1.PlannerService", "", "", "neuroshard.v1.WorkerService"])

    def test_sweep_calls_every_worker(self):
        """With names from a `getent` of our own: there is no cluster to have them."""
        for name, text in (("getent", "echo '10.1.0.12 STREAM neuroshard-worker'; echo '10.1.0.12 DGRAM'; echo '10.1.0.3 STREAM'"), ("neuroshard", 'echo "$NEUROSHARD_WORKERS" "$@"')):
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)
        environment = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        for container in containers(pods(self.builds["sweep"])[0][1]):
            interpreter, script, *arguments = container["command"]
            self.assertEqual(script, "/etc/neuroshard/sweep.sh")
            run = subprocess.run([interpreter, MANIFESTS / "sweep/sweep.sh", *arguments], env=environment, capture_output=True, text=True, check=True)
            domain = "neuroshard-worker.neuroshard.svc:50061"
            self.assertEqual(run.stdout.split(), [f"10-1-0-12.{domain},10-1-0-3.{domain}", "sweep", *arguments])
            config = arguments[1].replace("/usr/share/neuroshard", str(ROOT))
            real = subprocess.run([BIN / "neuroshard", "sweep", arguments[0], config, "--workers=127.0.0.1:1", "--reconnect-s=0", f"--store={self.folder}/{arguments[0]}.db"],
                                  capture_output=True, text=True)
            self.assertEqual(real.returncode, 1, real.stderr)  # 2 would be the command line or the file


if __name__ == "__main__":
    if not enter_environment():
        print("SKIPPED: kubernetes-validate cannot be fetched; deploy/kubernetes was not validated")
        sys.exit(SKIPPED)
    import grpc
    import kubernetes_validate
    import yaml

    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
