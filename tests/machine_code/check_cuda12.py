#!/usr/bin/env python3
"""The kernels under the compiler of CUDA 12, which builds for drivers 525 to 575 are made with (deploy/README.md) and which need not be installed here.

  check_cuda12.py SOURCE ROOT TOOLS_FOLDER [--architectures compute_75,sm_90] [--version 12.1.*]

NVRTC, the same compiler as a library, and CUDA's headers come from PyPI into TOOLS_FOLDER. SOURCE is embedding_kernels.cu; of it the kernels are
compiled that LoadKernels names, for each architecture to machine code. Not compiled: the launches and CUB's sort, which are the host's code.
Exit status 77: PyPI cannot be reached, nothing was checked.
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
# What NVRTC has no headers for; sources use no more of them on devices.
STANDARD = {
    "cstddef": "namespace std { using size_t = decltype(sizeof 0); }",
    "cstdint": """
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long;
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned; using uint64_t = unsigned long;
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using size_t = decltype(sizeof 0);
}""",
    "cstring": "namespace std { using ::memcpy; }",
    "span": "namespace std { template <typename T> class span; }",
    "type_traits": """
namespace std {
template <bool b, typename T, typename F> struct conditional { using type = T; };
template <typename T, typename F> struct conditional<false, T, F> { using type = F; };
template <bool b, typename T, typename F> using conditional_t = typename conditional<b, T, F>::type;
template <typename T> inline constexpr bool is_void_v = false;
template <> inline constexpr bool is_void_v<void> = true;
}""",
}


class Nvrtc:
    def __init__(self, folder):
        (library,) = folder.rglob("libnvrtc.so.12")
        ctypes.CDLL(str(next(folder.rglob("libnvrtc-builtins.so.12*"))), ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(library))

    def _log(self, program):
        size = ctypes.c_size_t()
        self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._library.nvrtcGetProgramLog(program, text)
        return text.value.decode()

    def compile(self, source, headers, kernels, options):
        """Bytes of machine code; None and what the compiler says where it does not compile."""
        def texts(strings):
            return (ctypes.c_char_p * len(strings))(*[s.encode() for s in strings])

        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"embedding_kernels.cu", len(headers), texts(headers.values()),
                                         texts(headers.keys()))
        for kernel in kernels:
            self._library.nvrtcAddNameExpression(program, kernel.encode())
        if self._library.nvrtcCompileProgram(program, len(options), texts(options)) != 0:
            return None, self._log(program)
        self._library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        return size.value, ""


def kernels_alone(text):
    """The source without the host's functions, and the kernels that one of them loads."""
    kernels = re.findall(r"reinterpret_cast<const void\*>\(&(.+?)\)[,}]", text)

    def on_device(definition):
        if "<<<" not in definition and "cudaError_t" not in definition:
            return definition
        return "".join(re.findall(r"^\}  // namespace.*\n", definition, re.MULTILINE))  # that ended before it

    return "".join(map(on_device, re.split(r"(?<=\n\}\n)", text))), kernels


def install(folder, version):
    packages = [f"nvidia-cuda-nvrtc-cu12=={version}", f"nvidia-cuda-runtime-cu12=={version}"]
    if list(folder.rglob("libnvrtc.so.12")) and list(folder.rglob("cuda_fp16.h")):
        return True
    print(f"installing {' '.join(packages)} into {folder}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--break-system-packages", "--target", folder, *packages]
    return subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--architectures", default="compute_75,sm_90")
    parser.add_argument("--version", default="12.1.*", help="the oldest that PyPI has")
    options = parser.parse_args()
    folder = options.tools.resolve() / f"nvrtc-{options.version.rstrip('.*')}"
    if not install(folder, options.version):
        print(f"SKIPPED: kernels under CUDA 12: PyPI has no NVRTC {options.version} for this machine, or cannot be reached")
        return SKIPPED

    source, kernels = kernels_alone(options.source.read_text())
    launches = (options.root / "kernels/cuda/kernel_launches.h").read_text()
    vocabulary = (options.root / "common/domain/vocabulary.h").read_text()
    headers = {
        **STANDARD,
        "kernels/cuda/kernel_launches.h": "\n".join(re.findall(r'^#include ".*"$', launches, re.MULTILINE)),
        "common/domain/vocabulary.h": "#include <cstdint>\nnamespace neuroshard { " + re.search(r"enum class Optimizer \{.*?\};", vocabulary, re.DOTALL).group(0) + " }",
    }
    includes = next(folder.rglob("cuda_fp16.h")).parent
    nvrtc, broken = Nvrtc(folder), 0
    for architecture in options.architectures.split(","):
        flags = [f"--gpu-architecture={architecture}", "--std=c++20", "--device-as-default-execution-space", f"-I{options.root}", f"-I{includes}"]
        size, said = nvrtc.compile(source + "using namespace neuroshard::cuda;\n", headers, kernels, flags)
        if size is None:
            broken += 1
            print(f"{architecture}: does not compile\n{said}")
    print(f"{len(kernels)} kernels under NVRTC {options.version} for {options.architectures}: {broken} do not compile")
    return 1 if broken or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
