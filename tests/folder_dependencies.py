#!/usr/bin/env python3
"""Keeps the folders of the product in one direction: folder_dependencies.txt has, for each, the folders whose headers it includes, lowest floor first.

  folder_dependencies.py            exit status 1 where the sources include what the table does not have, or no longer include what it has
  folder_dependencies.py --write    writes the table anew, for a reviewer to see what changed

Whatever the table says, folders may not include each other in a circle, nor against the direction of the layers; and folders of a layer may not, each taken
with all that is below it (server/cost, server/models, ...).
"""

import graphlib
import pathlib
import re
import sys

from product_size import LAYERS, ROOT, sources

TABLE = ROOT / "tests/folder_dependencies.txt"
LAYER_MAY_USE = {"common": (), "kernels": ("common",), "worker": ("common", "kernels"), "server": ("common",), "client": ("common",)}
HEAD = """# The folders of the product and whose headers each includes; a folder stands below all that it uses. tests/folder_dependencies.py
# compares it with the sources; --write renews it. A new dependency is a decision: look whether the code belongs to another folder.

"""


def includes():
    """Folder -> folder that it includes -> the first include of it, as FILE: HEADER."""
    found = {}
    for path in sources():
        inside = path.relative_to(ROOT)
        uses = found.setdefault(str(inside.parent), {})
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            other = str(pathlib.PurePath(header).parent)
            if header.split("/")[0] in LAYERS and other != str(inside.parent) and (ROOT / header).exists():
                uses.setdefault(other, f"{inside}: {header}")
    return found


def read_table():
    lines = (line.partition(":") for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return {folder: set(uses.split()) for folder, _, uses in lines}


def floors(graph):
    """Every folder after all that it uses; those of one floor in the order of their names."""
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    order = []
    while sorter.is_active():
        floor = sorted(sorter.get_ready())
        order += floor
        sorter.done(*floor)
    return order


def rooms(found):
    """The same of folders of a layer, each with all below it."""
    whole = {}
    for folder, uses in found.items():
        room = whole.setdefault("/".join(folder.split("/")[:2]), {})
        for other, where in uses.items():
            if "/".join(other.split("/")[:2]) != "/".join(folder.split("/")[:2]):
                room.setdefault("/".join(other.split("/")[:2]), where)
    return whole


def main():
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        sys.exit(__doc__)
    found, faults = includes(), []
    for folder, uses in found.items():
        layer = folder.split("/")[0]
        faults += [f"against the direction of layers: {where}" for other, where in uses.items()
                   if other.split("/")[0] not in (layer, *LAYER_MAY_USE[layer])]
    order = []
    for graph in (rooms(found), found):
        try:
            order = floors(graph)
        except graphlib.CycleError as circle:
            path = list(reversed(circle.args[1]))
            order = []
            faults.append("folders include each other in a circle: " + "; ".join(graph[a][b] for a, b in zip(path, path[1:])))
    if write and order:
        TABLE.write_text(HEAD + "".join(f"{folder}: {' '.join(sorted(found[folder]))}".rstrip() + "\n" for folder in order))
    table = read_table()
    for folder in sorted(found.keys() | table.keys()):
        now, then = found.get(folder, {}), table.get(folder, set())
        if folder not in found:
            faults.append(f"{folder}: there is no such folder any more; --write takes it out")
        elif folder not in table:
            faults.append(f"{folder}: a new folder; --write adds it")
        faults += [f"{folder} did not use {other} so far: {now[other]}" for other in sorted(now.keys() - then) if folder in table]
        faults += [f"{folder} no longer uses {other}; --write takes it out" for other in sorted(then - now.keys()) if folder in found]
    for fault in faults:
        print(f"tests/folder_dependencies.txt: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
