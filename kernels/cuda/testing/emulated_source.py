#!/usr/bin/env python3
"""A CUDA source for the SIMT emulator (simt_emulator.h).

  emulated_source.py SOURCE.cu OUTPUT.cc [--faults FAULTS.json [--root ROOT --header HEADER.h --headers FOLDER]]

Two things change: kernel<<<blocks, threads, shared, stream>>>(arguments) becomes a call of simt::Launch, and the read of %globaltimer
one of simt::GlobalTimer. All else is compiled as it is. With --faults the source has the faults of a list of [what, old, new] as well, the
n-th of which happens where simt::Fault(n) says so; an old text that does not occur exactly once is an error. An old text may be one of ROOT/HEADER.h
instead: FOLDER/HEADER.h is a copy with those faults.
"""

import argparse
import json
import pathlib
import re
import sys


def matching(text, begin):
    """The index after the parenthesis that closes the one at `begin`."""
    depth = 0
    for i in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("a parenthesis stays open")


def split(arguments):
    """Top-level commas' parts."""
    parts, depth = [""], 0
    for c in arguments:
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def rewrite(text):
    text = re.sub(r'asm volatile\("mov\.u64 %0, %%globaltimer;" : "=l"\((\w+)\)\);', r"\1 = simt::GlobalTimer();", text)
    while (at := text.find("<<<")) >= 0:
        begin = re.search(r"[\w:]+(<[\w\s:,]*>)?$", text[:at]).start()
        end_of_shape = text.index(">>>", at)
        end = matching(text, end_of_shape + 3)
        blocks, threads = split(text[at + 3:end_of_shape])[:2]
        call = text[begin:at] + text[end_of_shape + 3:end]
        text = f"{text[:begin]}simt::Launch({blocks}, {threads}, [&] {{ {call}; }}){text[end:]}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--faults", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path)
    parser.add_argument("--header", type=pathlib.Path)
    parser.add_argument("--headers", type=pathlib.Path)
    options = parser.parse_args()
    texts = {"source": options.source.read_text()}
    if options.header:
        texts["header"] = (options.root / options.header).read_text()
    faults = json.loads(options.faults.read_text()) if options.faults else []
    for number, (_, old, new) in enumerate(faults, start=1):
        found = [name for name, text in texts.items() for _ in range(text.count(old))]
        if len(found) != 1:
            sys.exit(f"{options.source}: {old!r} occurs {len(found)} times")
        statement = old.endswith(";")
        faulty = f"if (simt::Fault({number})) {{ {new} }} else {{ {old} }}" if statement else f"(simt::Fault({number}) ? ({new}) : ({old}))"
        texts[found[0]] = texts[found[0]].replace(old, faulty)
    if options.header:
        copy = options.headers / options.header
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(texts["header"])
    options.output.write_text(f'#include "kernels/cuda/testing/simt_cuda.h"\n#line 1 "{options.source}"\n{rewrite(texts["source"])}')


if __name__ == "__main__":
    main()
