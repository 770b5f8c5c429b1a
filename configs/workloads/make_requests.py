#!/usr/bin/env python3
"""Writes the ready-to-run ShardPlanRequest files of this folder from sources/ and dlrm_2021_tables856.csv.

    make_requests.py            writes them
    make_requests.py --check    exit status 1 if one of them is not what would be written

Standard library only; the sources are read line by line, which their one-line entries allow.
"""

import argparse
import csv
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The device decides which cost model answers, and has its own memory and bandwidths.
EIGHT_H100 = ["  hosts: [{num_devices: 8, device: h100-sxm}]"]
TWO_CPUS = ["  compute_device: cpu", "  hosts: [{num_devices: 2, memory_bytes: 2GiB}]"]
ZIPF_EXPONENT = 1.05
DEDUPLICATED_ZIPF_EXPONENT = 0.5
HISTOGRAM_BINS = 17


def inline_mapping(line):
    """The entries of a line like `- {rows: 10, nnz: [1, 30], shared: true}`, as text."""
    body = line[line.index("{") + 1 : line.rindex("}")]
    return dict(re.findall(r"(\w+): (\[[^\]]*\]|[^,\s]+)", body))


def power_law_table(name, rows, dim, hotness, features):
    """A table that is read by one input for every entry of `hotness`."""
    return [
        f"  - name: {name}",
        f"    num_embeddings: {rows}",
        f"    embedding_dim: {dim}",
        f"    pooling_factor: {sum(hotness)}",
        f"    zipf_exponent: {ZIPF_EXPONENT}",
        f"    features: [{', '.join(features)}]",
    ]


def mlperf_tables():
    lines = []
    for line in (HERE / "sources/mlperf_dlrm_dcnv2.yaml").read_text().splitlines():
        if line.lstrip().startswith("- {id:"):
            entry = inline_mapping(line)
            lines += power_law_table(
                entry["name"], entry["rows"], entry["dim"], [int(entry["hotness"])], [entry["name"]]
            )
    return lines


def dlrmv4_tables():
    """The tables of one EmbeddingCollection. What is left of hot ids once each rank sends an id once is a flatter power law."""
    lines = []
    for line in (HERE / "sources/mlperf_dlrmv4_hstu.yaml").read_text().splitlines():
        if line.lstrip().startswith("- {name:"):
            entry = inline_mapping(line)
            lines += [
                f"  - name: {entry['name']}",
                f"    num_embeddings: {entry['rows']}",
                "    embedding_dim: 512",
                "    kind: embedding",
                f"    features: {entry['features']}",
                f"    pooling_factors: {entry['ids']}",
                f"    zipf_exponent: {DEDUPLICATED_ZIPF_EXPONENT}",
            ]
    return lines


def synthetic_groups(model):
    """(tables, rows, columns, hotness of the inputs that read each of them) for each group of alike tables of NVIDIA's model."""
    inside = False
    for line in (HERE / "sources/synthetic_models.yaml").read_text().splitlines():
        if re.match(r"  \w+:$", line):
            inside = line == f"  {model}:"
        if inside and line.lstrip().startswith("- {num_tables:"):
            entry = inline_mapping(line)
            hotness = [int(n) for n in entry["nnz"].strip("[]").split(",")]
            yield int(entry["num_tables"]), int(entry["rows"]), int(entry["width"]), hotness


def synthetic_tables(model):
    lines = []
    for group, (tables, rows, width, hotness) in enumerate(synthetic_groups(model)):
        for table in range(tables):
            name = f"group{group}_table{table}"
            features = [f"{name}_hot{n}" for n in hotness]
            lines += power_law_table(name, rows, width, hotness, features)
    return lines


def quickstart_tables():
    """Twelve tables of the public trace, small enough that two ranks of a laptop hold them."""
    lines, dims = [], [16, 32, 64]
    with open(HERE / "dlrm_2021_tables856.csv", newline="") as file:
        rows = [r for r in csv.DictReader(file) if 50_000 <= int(r["row"]) <= 600_000]
    rows = [r for r in rows if 1 <= float(r["pooling_factor"]) <= 20][:12]
    for position, row in enumerate(rows):
        histogram = ", ".join(row[f"bin_{b}"] for b in range(HISTOGRAM_BINS))
        lines += [
            f"  - name: table_{row['index']}",
            f"    num_embeddings: {row['row']}",
            f"    embedding_dim: {dims[position % len(dims)]}",
            f"    pooling_factor: {row['pooling_factor']}",
            f"    reuse_histogram: [{histogram}]",
        ]
    return lines


def request(comment, topology, batch, optimizer, tables, more=()):
    return "\n".join(
        [f"# {line}" for line in comment]
        + [
            "# Written by make_requests.py; edit that, not this.",
            f"global_batch_size: {batch}",
            f"optimizer: {optimizer}",
            *more,
            "topology:",
        ]
        + topology
        + [
            "tables:",
        ]
        + tables
        + [""]
    )


def requests():
    power_law = f"Ids are assumed to follow a power law, p(k) ~ k^-{ZIPF_EXPONENT}"
    shared = "A table that several inputs share is looked up by the sum of their hotness."
    yield "mlperf_dlrm_dcnv2_8x80gb.yaml", request(
        [
            "MLPerf Training DLRM-DCNv2 (Criteo 1TB, multi-hot) on 8 H100 of 80 GB; see sources/mlperf_dlrm_dcnv2.yaml.",
            power_law + ": the real ids are not public statistics.",
        ],
        EIGHT_H100, 65536, "adagrad", mlperf_tables(),
    )
    for ranks in (8, 16, 32):
        yield f"mlperf_dlrmv4_hstu_{ranks}x180gb.yaml", request(
            [
                f"MLPerf Training DLRMv4 (HSTU on Yambda-5b, unpooled, ids deduplicated) on {ranks} B200 of 180 GB;",
                "see sources/mlperf_dlrmv4_hstu.yaml. Ids are assumed to follow p(k) ~ k^-"
                f"{DEDUPLICATED_ZIPF_EXPONENT}: how often they repeat between ranks is not in the reference.",
            ],
            [f"  hosts: [{{count: {ranks // 8}, num_devices: 8, device: b200}}]"], 1024 * ranks, "rowwise_adagrad", dlrmv4_tables(),
            more=["quantized_comms: {forward_dtype: fp16, backward_dtype: fp16}"],
        )
    for model in ("tiny", "small"):
        yield f"distributed_embeddings_{model}_8.yaml", request(
            [
                f"NVIDIA Merlin distributed-embeddings' synthetic model {model.capitalize()} V3 on 8 H100 of 80 GB; see",
                "sources/synthetic_models.yaml. " + shared,
                power_law + ", as its generator draws them.",
            ],
            EIGHT_H100, 65536, "adagrad", synthetic_tables(model),
        )
    yield "quickstart_2x2gib.yaml", request(
        [
            "Twelve tables of the public DLRM 2021 trace on 2 devices of 2 GiB: a plan that two CPU workers can run.",
            "The reuse histograms are those of the trace at batch 65536.",
        ],
        TWO_CPUS, 1024, "sgd", quickstart_tables(),
    )


def main():
    parser = argparse.ArgumentParser(description="Writes the request files of this folder.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = []
    for name, text in requests():
        path = HERE / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print("not as make_requests.py writes them: " + ", ".join(stale), file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
