#!/usr/bin/env python3
"""Machine code of the CUDA kernels against the table beside this file: registers, bytes of stack (spills) and loads in flight.

  check_machine_code.py OBJECT TOOLS_FOLDER [--write]

OBJECT is embedding_kernels.cu as the build compiled it. Disassemblers come from PATH, else from PyPI into TOOLS_FOLDER.
Loads in flight are those of one width that are issued before the first of them is waited for: what keeps a memory busy.
A kernel fails that has more registers or stack, or fewer loads in flight, than the table says. Another nvcc compiles otherwise:
then, and without disassemblers, nothing is checked (exit status 77). --write makes the table what OBJECT has.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
TABLE = pathlib.Path(__file__).with_name("machine_code.json")
MORE_REGISTERS = 4  # allowed beyond the table
FEWEST_IN_FLIGHT = 4  # groups of fewer loads are of no interest
PACKAGES = ("nvidia-cuda-cuobjdump==13.*", "nvidia-cuda-nvdisasm==13.*")
REGISTER = re.compile(r"\bR(\d+)\b")


class Skip(Exception):
    """Why nothing was checked."""


def find_tool(name, folder):
    if found := shutil.which(name):
        return found
    if not list(folder.rglob(name)):
        print(f"{name}: not in PATH; installing {' '.join(PACKAGES)} into {folder}", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--break-system-packages", "--target", folder, *PACKAGES]
        if subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Skip(f"neither PATH nor PyPI has {name}")
    (tool,) = [path for path in folder.rglob(name) if path.is_file()]
    tool.chmod(0o755)
    return str(tool)


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def kernel_name(mangled):
    """UpdateKernel<2, PlainOccurrence> of its mangled name."""
    name = output("c++filt", mangled).strip().split("(anonymous namespace)::", 1)[-1]
    return name.split("(")[0].replace("neuroshard::cuda::", "")


def instructions(sass):
    """The instructions of each function in nvdisasm's text, without predicates."""
    functions, current = {}, None
    for line in sass.splitlines():
        if found := re.match(r"\.text\.(\S+):", line.strip()):
            current = functions.setdefault(found.group(1), [])
        elif current is not None and (found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?);", line)):
            current.append(found.group(1))
    return functions


def loads_in_flight(code):
    """Sizes of the groups of loads that are all issued before one of their registers is used, by width in bits."""
    groups, waiting = collections.defaultdict(list), {}  # first register -> registers

    def used(registers):
        return any(first <= r < first + count for r in registers for first, count in waiting.items())

    def close():
        for count, loads in collections.Counter(waiting.values()).items():
            if loads >= FEWEST_IN_FLIGHT:
                groups[32 * count].append(loads)
        waiting.clear()

    for instruction in code:
        operation, _, operands = instruction.partition(" ")
        registers = [int(r) for r in REGISTER.findall(operands)]
        if not operation.startswith("LDG"):
            if used(registers):
                close()
            continue
        destination, addresses = registers[0], registers[1:]
        count = 4 if ".128" in operation else 2 if ".64" in operation else 1
        if used([*range(destination, destination + count), *addresses]):
            close()
        waiting[destination] = count
    close()
    return {str(width): sorted(sizes, reverse=True) for width, sizes in sorted(groups.items()) if width > 32}


def describe(path, cuobjdump, nvdisasm):
    """{architecture: {kernel: {registers, stack, in_flight}}} of an object file."""
    described = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", "all", path], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for cubin in sorted(pathlib.Path(folder).glob("*.cubin")):
            architecture = re.search(r"sm_\d+", cubin.name).group(0)
            kernels = described.setdefault(architecture, {})
            usage = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", output(cuobjdump, "-res-usage", cubin, stderr=subprocess.STDOUT))
            code = instructions(output(nvdisasm, "-c", cubin))
            for mangled, registers, stack in usage:
                kernels[kernel_name(mangled)] = {
                    "registers": int(registers), "stack": int(stack), "in_flight": loads_in_flight(code[mangled])}
    return described


def faults(expected, found):
    for architecture in sorted(set(expected) & set(found)):
        want, have = expected[architecture], found[architecture]
        for kernel in sorted(set(want) ^ set(have)):
            yield f"{architecture} {kernel}: {'not compiled' if kernel in want else 'not in the table'}"
        for kernel in sorted(set(want) & set(have)):
            where = f"{architecture} {kernel}"
            w, h = want[kernel], have[kernel]
            if h["registers"] > w["registers"] + MORE_REGISTERS:
                yield f"{where}: {h['registers']} registers, {w['registers']} in the table"
            if h["stack"] > w["stack"]:
                yield f"{where}: {h['stack']} bytes of stack, {w['stack']} in the table"
            for width, sizes in w["in_flight"].items():
                now = h["in_flight"].get(width, [])
                if len(now) < len(sizes) or any(n < s for n, s in zip(now, sizes)):
                    yield f"{where}: loads of {width} bits in flight {now}, {sizes} in the table"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("object", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tools = options.tools.resolve()
    nvcc = re.search(r"release (\S+),", output("nvcc", "--version")).group(1)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"nvcc": None, "kernels": {}}
    try:
        if not options.write and nvcc != table["nvcc"]:
            raise Skip(f"the table is of nvcc {table['nvcc']}, here is {nvcc}")
        found = describe(options.object.resolve(), find_tool("cuobjdump", tools), find_tool("nvdisasm", tools))
    except Skip as reason:
        print(f"SKIPPED: machine code of kernels: {reason}")
        return SKIPPED
    if options.write:
        TABLE.write_text(json.dumps({"nvcc": nvcc, "kernels": found}, indent=1, sort_keys=True) + "\n")
        return 0
    wrong = list(faults(table["kernels"], found))
    if not set(found) & set(table["kernels"]):
        wrong.append(f"none of {', '.join(sorted(table['kernels']))} was compiled")
    for fault in wrong:
        print(fault)
    print(f"{sum(map(len, found.values()))} kernels of {', '.join(sorted(found))}: {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
