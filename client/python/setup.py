"""What pyproject.toml cannot say: the gRPC stubs are generated from the protos when the package is built, and the table of synonyms beside those is copied.

The protos are those of the checkout (../../proto) or, in an sdist, its own copy (proto).
"""

import os
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

SYNONYMS = "synonyms.inc"
HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = next((folder for folder in (os.path.join(HERE, "proto"), os.path.join(HERE, "..", "..", "proto")) if os.path.isdir(folder)), None)


def protos(folder):
    """Paths below PROTO."""
    if PROTO is None:
        raise SystemExit("setup.py: there is no folder proto, neither here nor two folders up; build in a checkout or from an sdist")
    return sorted(f"{folder}/{name}" for name in os.listdir(os.path.join(PROTO, folder)) if name.endswith(".proto"))


def protoc():
    """grpcio-tools; without it what PATH has (Debian: protobuf-compiler and protobuf-compiler-grpc)."""
    try:
        import grpc_tools

        return [sys.executable, "-m", "grpc_tools.protoc", f"-I{os.path.join(os.path.dirname(grpc_tools.__file__), '_proto')}"]
    except ImportError:
        plugin = shutil.which("grpc_python_plugin")
        if not plugin or not shutil.which("protoc"):
            raise SystemExit("setup.py: needs grpcio-tools, or protoc and grpc_python_plugin in PATH") from None
        return ["protoc", f"--plugin=protoc-gen-grpc_python={plugin}"]


def generate(out):
    command = [*protoc(), f"-I{PROTO}"]
    subprocess.run([*command, f"--python_out={out}", f"--pyi_out={out}", *protos("neuroshard/v1")], check=True)
    subprocess.run([*command, f"--grpc_python_out={out}", *(f"neuroshard/v1/{name}.proto" for name in ("planner", "worker"))], check=True)
    # google.rpc is decoded in a pool of its own (errors.py), so its descriptors are data and no module.
    descriptors = os.path.join(out, "neuroshard", "google_rpc.binpb")
    subprocess.run([*command, "--include_imports", f"--descriptor_set_out={descriptors}", *protos("google/rpc")], check=True)
    shutil.copyfile(os.path.join(PROTO, SYNONYMS), os.path.join(out, "neuroshard", SYNONYMS))


class BuildPy(build_py):
    def run(self):
        super().run()
        # An editable install runs the sources where they are.
        out = HERE if getattr(self, "editable_mode", False) else self.build_lib
        os.makedirs(os.path.join(out, "neuroshard", "v1"), exist_ok=True)
        generate(out)

    def find_package_modules(self, package, package_dir):
        """Tests lie beside the code and are not installed; what an editable install generated is generated anew."""
        found = super().find_package_modules(package, package_dir)
        return [entry for entry in found if not entry[1].endswith("_test") and not entry[1].endswith(("_pb2", "_pb2_grpc"))]


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, [file for file in files if not file.endswith("_test.py")])
        for path in [*protos("neuroshard/v1"), *protos("google/rpc"), SYNONYMS]:
            target = os.path.join(base_dir, "proto", path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(PROTO, path), target)


# Not in the checkout, where what an older version left would get into the wheel.
with tempfile.TemporaryDirectory() as scratch:
    setup(cmdclass={"build_py": BuildPy, "sdist": Sdist}, options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}})
