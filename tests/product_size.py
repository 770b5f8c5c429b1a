#!/usr/bin/env python3
"""Keeps the product from growing unseen: product_size.txt has the most lines of each folder, and in how many files a concept of requests may be known.

  product_size.py            exit status 1 where more is counted than the table allows, or where the table allows much more than there is
  product_size.py --write    lowers the table to what is counted; what is counted beyond it is raised by hand, with a reason in the same line

Product C++ is every .h, .cc and .cu of common, kernels, worker, server and client that is no test (_test.cc) and not below a testing/ folder.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests/product_size.txt"
LAYERS = ("common", "kernels", "worker", "server", "client")
# Below the table by more than this: the table is to be lowered.
SLACK = {"lines": 50, "files": 0}
LINE = re.compile(r"(?P<kind>lines|files) +(?P<name>\S+) +(?P<most>\d+)(?P<rest>.*)")


def sources():
    """Every file of the product's C++."""
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu") and not path.name.endswith("_test.cc") and "testing" not in path.relative_to(ROOT).parts:
                yield path


def product():
    """Folder and text of every file."""
    for path in sources():
        inside = path.relative_to(ROOT)
        yield "/".join(inside.parts[:2]) if len(inside.parts) > 2 else inside.parts[0], path.read_text()


def main():
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    files = list(product())
    lines = {}
    for folder, text in files:
        lines[folder] = lines.get(folder, 0) + text.count("\n")
    faults, said, table = [], set(), []
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        entry = LINE.fullmatch(line)
        if not entry:
            table.append(line)
            if line and not line.startswith("#"):
                faults.append(f"line {number}: must be 'lines FOLDER MOST [# REASON]' or 'files CONCEPT MOST PATTERN [# REASON]', got: {line}")
            continue
        kind, name, most, rest = entry["kind"], entry["name"], int(entry["most"]), entry["rest"]
        if kind == "lines":
            counted = lines.get(name, 0)
            said.add(name)
        else:
            pattern = re.compile(rest.partition(" #")[0].strip())
            counted = sum(bool(pattern.search(text)) for _, text in files)
        if counted > most:
            faults.append(f"{name}: {counted} {kind}, the table allows {most}. Make it less, or raise the number and say why in its line")
        elif counted < most - SLACK[kind] and not write:
            faults.append(f"{name}: {counted} {kind}, the table allows {most}: lower it by tests/product_size.py --write")
        table.append(f"{kind} {name} {min(counted, most)}{rest}" if write else line)
    faults += [f"{folder}: {count} lines, and it is not in the table" for folder, count in lines.items() if folder not in said]
    if write:
        TABLE.write_text("\n".join(table) + "\n")
    for fault in faults:
        print(f"tests/product_size.txt: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
