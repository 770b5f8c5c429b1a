#!/usr/bin/env python3
"""Writes a cost model that nobody measured, in the format neuroshard-cost-model/1 (server/networks/README.md).

Its networks are built by hand, not trained, so that what they compute is known exactly:

  compute        of a rank = overhead + g, above --knee-ms rising at 80 % of the slope; g = sum over its tables of
                 a constant + a term in dim + a term in dim x pooling factor (by straight pieces)
  backward comm  of rank r = latency + ms_per_dim * (own dim sum / 4 + largest dim sum * 3 / 4)
  forward comm   of rank r = the same + (largest start offset - own start offset)

With --base DIRECTORY the compute network (and what it was measured on) is copied from a real model and only the communication
networks are made up, for as many device counts as asked for. Standard library only.
"""

import argparse
import array
import json
import os
import shutil
import struct
import sys

KNOTS = [0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
FEATURES = sorted([f"bin_{i}" for i in range(17)]) + ["dim", "pooling_factor", "row"]
DIM_SCALE, POOLING_SCALE = 128.0, 50.0


def tensor(shape, values):
    values = array.array("f", values)
    if sys.byteorder == "big":
        values.byteswap()
    count = 1
    for extent in shape:
        count *= extent
    assert count == len(values), (shape, len(values))
    return shape, values.tobytes()


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name in sorted(tensors):
        shape, data = tensors[name]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name][1])


class Network:
    """Layers of ReLU units, each a (weights by input, bias), from raw inputs of the given means and deviations."""

    def __init__(self, prefix, mean=None, std=None):
        self.prefix, self.mean, self.std = prefix, mean, std
        self.widths, self.tensors = [], {}
        if mean is not None:
            self.widths = [len(mean)]
            self.tensors["feature_mean"] = tensor([len(mean)], mean)
            self.tensors["feature_std"] = tensor([len(std)], std)

    def add(self, inputs, units):
        if not self.widths:
            self.widths = [inputs]
        index = len(self.widths) - 1
        weights, biases = [], []
        for terms, bias in units:
            row = [0.0] * inputs
            for i, weight in terms.items():
                if index == 0 and self.mean is not None:  # the layer sees z = (x - mean) / std
                    row[i], bias = weight * self.std[i], bias + weight * self.mean[i]
                else:
                    row[i] = weight
            weights += row
            biases.append(bias)
        self.widths.append(len(units))
        self.tensors[f"{self.prefix}.{index}.weight"] = tensor([len(units), inputs], weights)
        self.tensors[f"{self.prefix}.{index}.bias"] = tensor([len(units)], biases)


def square_terms(first):
    """s^2 by straight pieces between KNOTS: weights of the units ReLU(s - knot) that start at `first`."""
    terms, slope = {}, 0.0
    for k, knot in enumerate(KNOTS):
        right = KNOTS[k + 1] if k + 1 < len(KNOTS) else knot + 2
        terms[first + k] = (knot + right) - slope  # (right^2 - knot^2) / (right - knot)
        slope = knot + right
    return terms


def compute_network(options):
    dim, pooling = FEATURES.index("dim"), FEATURES.index("pooling_factor")
    mean = [0.05] * 17 + [32.0, 10.0, 12.0]
    std = [0.1] * 17 + [40.0, 20.0, 3.0]
    table = Network("table", mean, std)
    units = []
    for terms in ({dim: 1 / DIM_SCALE, pooling: 1 / POOLING_SCALE}, {dim: 1 / DIM_SCALE}, {pooling: 1 / POOLING_SCALE}):
        units += [(terms, -knot) for knot in KNOTS]
    table.add(len(FEATURES), units)
    n = len(KNOTS)
    cost = {i: 1.5 * w for i, w in square_terms(0).items()}  # 3 ms x y = 1.5 ((x + y)^2 - x^2 - y^2)
    for first in (n, 2 * n):
        cost.update({i: -1.5 * w for i, w in square_terms(first).items()})
    cost[n] += 0.2  # the unit ReLU(x - 0)
    table.add(len(units), [(cost, 0.05), ({}, 1.0)])
    head = Network("head")
    head.add(2, [({0: 1.0}, 0.0), ({0: 1.0}, -options.knee_ms)])
    shares = (0.35, 0.65) if options.split else (1.0,)
    head.add(2, [({0: share, 1: -0.2 * share}, 0.1 * share) for share in shares])
    tensors = dict(table.tensors, **head.tensors)
    outputs = "[forward_ms, backward_ms]" if options.split else "[total_ms]"
    text = (
        "compute:\n  file: compute.safetensors\n  kind: table_sum_mlp\n"
        f"  features: [{', '.join(FEATURES)}]\n  transforms: {{row: log1p}}\n"
        f"  table_layers: {table.widths}\n  head_layers: {head.widths}\n  outputs: {outputs}\n"
    )
    return tensors, text


def comm_network(devices, forward, options):
    """Maxima by pairs: max(a, b) = ReLU(a - b) + ReLU(b) for b >= 0; every signal is a sum of units of the layer before."""
    groups = 2 if forward else 1
    inputs = groups * devices
    network = Network("layer", [256.0] * devices + [5.0] * (inputs - devices), [128.0] * devices + [5.0] * (inputs - devices))
    passed = [{i: 1.0} for i in range(inputs)]
    maxima = [[{g * devices + i: 1.0} for i in range(devices)] for g in range(groups)]
    width = inputs
    while len(maxima[0]) > 1:
        units = [(signal, 0.0) for signal in passed]
        passed = [{i: 1.0} for i in range(inputs)]
        for g, signals in enumerate(maxima):
            merged = []
            for a, b in zip(signals[::2], signals[1::2] + [None]):
                if b is None:
                    units.append((a, 0.0))
                    merged.append({len(units) - 1: 1.0})
                    continue
                difference = dict(a)
                for unit, weight in b.items():
                    difference[unit] = difference.get(unit, 0.0) - weight
                units += [(difference, 0.0), (b, 0.0)]
                merged.append({len(units) - 2: 1.0, len(units) - 1: 1.0})
            maxima[g] = merged
        network.add(width, units)
        width = len(units)
    outputs = []
    for rank in range(devices):
        terms = {}
        wanted = [(passed[rank], 0.25 * options.ms_per_dim), (maxima[0][0], 0.75 * options.ms_per_dim)]
        if forward:
            wanted += [(passed[devices + rank], -1.0), (maxima[1][0], 1.0)]
        for signal, factor in wanted:
            for unit, weight in signal.items():
                terms[unit] = terms.get(unit, 0.0) + factor * weight
        outputs.append((terms, options.latency_ms))
    network.add(width, outputs)
    return network


def top_level_block(text, key):
    """The lines of a top-level key of a model.yaml in block style, as our writers make them."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        if line[:1] not in (" ", "-", "\n", "#"):
            inside = line.startswith(key + ":")
        if inside:
            lines.append(line)
    return "".join(lines)


def file_of_block(block):
    for line in block.splitlines():
        if line.strip().startswith("file:"):
            return line.split(":", 1)[1].strip().strip("\"'")
    raise SystemExit("the base model's manifest states no compute.file in block style")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="ROOT/NAME/VERSION; must not exist")
    parser.add_argument("--devices", default="2,4,8", help="device counts with communication networks, e.g. 2,4,8")
    parser.add_argument("--base", help="model directory whose compute network is copied")
    parser.add_argument("--ms-per-dim", type=float, default=0.01, help="communication of one column")
    parser.add_argument("--latency-ms", type=float, default=0.05, help="communication of nothing")
    parser.add_argument("--knee-ms", type=float, default=10.0, help="where fused lookups start to cost less")
    parser.add_argument("--split", action="store_true", help="forward and backward compute apart (not with --base)")
    options = parser.parse_args()

    out = os.path.abspath(options.out)
    parent, version = os.path.split(out)
    name = os.path.basename(parent)
    try:
        devices = sorted({int(count) for count in options.devices.split(",") if count})
    except ValueError:
        parser.error(f"--devices: must be integers, got '{options.devices}'")
    if any(count < 2 for count in devices):
        parser.error("--devices: every count must be at least 2")
    if not version.isdigit() or int(version) < 1 or str(int(version)) != version:
        parser.error(f"--out: must end in a version, a positive integer, got '{version}'")
    if os.path.exists(out):
        raise SystemExit(f"{out}: exists already")

    temporary = os.path.join(parent, f".{version}.{os.getpid()}.tmp")
    os.makedirs(temporary)
    try:
        text = f"format: neuroshard-cost-model/1\nname: {name}\nversion: {version}\n"
        if options.base:
            with open(os.path.join(options.base, "model.yaml"), encoding="utf-8") as file:
                manifest = file.read()
            compute = top_level_block(manifest, "compute")
            hardware = top_level_block(manifest, "hardware").splitlines(keepends=True)
            text += "".join(line for line in hardware if "collective_backend" not in line)  # communication is made up
            text += top_level_block(manifest, "conditions") + compute
            tensors_file = file_of_block(compute)
            os.makedirs(os.path.dirname(os.path.join(temporary, tensors_file)), exist_ok=True)
            shutil.copyfile(os.path.join(options.base, tensors_file), os.path.join(temporary, tensors_file))
        else:
            tensors, compute = compute_network(options)
            text += "hardware:\n  device: none (synthetic)\n"
            text += "conditions:\n  global_batch_size: 65536\n  weight_dtype: fp32\n  optimizer: sgd\n" + compute
            write_safetensors(os.path.join(temporary, "compute.safetensors"), tensors)
        for key, forward in (("forward_comm", True), ("backward_comm", False)):
            text += f"{key}:\n" if devices else ""
            for count in devices:
                network = comm_network(count, forward, options)
                file_name = f"synthetic_{key}_{count}.safetensors"
                write_safetensors(os.path.join(temporary, file_name), network.tensors)
                text += f"  - file: {file_name}\n    kind: device_count_mlp\n    num_devices: {count}\n    layers: {network.widths}\n"
        text += "provenance:\n  made_by: make_synthetic_model.py\n"
        text += f"  compute: {'copied from another model' if options.base else 'synthetic'}\n  communication: synthetic\n"
        text += f"  ms_per_dim: {options.ms_per_dim}\n  latency_ms: {options.latency_ms}\n"
        with open(os.path.join(temporary, "model.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


if __name__ == "__main__":
    main()
