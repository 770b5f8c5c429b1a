"""Turns checkpoints of the original NeuroShard (PyTorch, .pt) into a cost model that the planner serves.

  neuroshard-convert-checkpoints --models models/ --out ROOT/NAME/VERSION
  neuroshard-convert-checkpoints --compute compute.pt --forward-comm comm_4_fw.pt --backward-comm comm_4_bw.pt --out ROOT/NAME/VERSION

Neither PyTorch nor NumPy is needed, and nothing in a .pt file is executed: files that hold more than tensors, texts and numbers are refused. README.md
of client/python says what is read, and what to do with networks whose parameters have other names.
"""

import argparse
import hashlib
import json
import os
import re
import sys

from neuroshard.checkpoints import feature_statistics
from neuroshard.checkpoints.checkpoint import Checkpoint, CheckpointError, listed
from neuroshard.checkpoints.model_directory import ModelDirectoryError, file_list, parse_place, publish, safetensors_bytes
from neuroshard.command_line import parse_arguments
from neuroshard.torch_file import TorchFileError

FEATURES = sorted(f"bin_{i}" for i in range(17)) + ["dim", "pooling_factor", "row"]
MAX_BATCH = 1 << 40


def comma_separated(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    files = parser.add_argument_group("what to read")
    files.add_argument("--models", metavar="DIR", help="a folder with the release's file names: compute.pt, comm_<D>_fw.pt, comm_<D>_bw.pt")
    files.add_argument("--compute", metavar="FILE", help="the compute network")
    files.add_argument("--forward-comm", metavar="FILE", action="append", default=[], help="a forward communication network; once for each device count")
    files.add_argument("--backward-comm", metavar="FILE", action="append", default=[], help="a backward communication network; once for each device count")
    out = parser.add_argument_group("what to write")
    out.add_argument("--out", metavar="ROOT/NAME/VERSION", required=True)
    out.add_argument("--replace", action="store_true", help="replace the model that is there")
    measured = parser.add_argument_group("what the costs were measured on (as in the release unless given)")
    measured.add_argument("--global-batch-size", type=int, default=65536, metavar="N")
    measured.add_argument("--weight-dtype", choices=["fp32", "fp16", "bf16"], default="fp32")
    measured.add_argument("--optimizer", choices=["sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam", "lamb", "lars_sgd"], default="sgd")
    measured.add_argument("--device", metavar="TEXT", help="e.g. 'NVIDIA GeForce RTX 2080 Ti'")
    measured.add_argument("--backend", default="fbgemm-cuda", metavar="TEXT", help="whose embedding kernels (default: fbgemm-cuda)")
    measured.add_argument("--collective-backend", default="nccl", metavar="TEXT", help="whose collectives (default: nccl)")
    names = parser.add_argument_group("networks under other names")
    names.add_argument("--state-key", metavar="KEY", help="key of the state_dict in the file (default: state_dict or model_state_dict, else the whole file)")
    names.add_argument("--table-layers", type=comma_separated, metavar="NAME,...", help="layers before the sum over tables (default: t_hidden.0, ...)")
    names.add_argument("--head-layers", type=comma_separated, metavar="NAME,...", help="layers after it (default: c_hidden.0, ...)")
    names.add_argument("--comm-layers", type=comma_separated, metavar="NAME,...", help="layers of communication networks (default: hidden.0, ...)")
    names.add_argument("--features", type=comma_separated, default=FEATURES, metavar="NAME,...", help="input columns of the compute network (default: the release's 20)")
    names.add_argument("--outputs", type=comma_separated, default=["total_ms"], metavar="NAME[,NAME]", help="total_ms (default), or forward_ms,backward_ms")
    names.add_argument("--mean-key", default="feature_means", metavar="KEY")
    names.add_argument("--std-key", default="feature_stds", metavar="KEY")
    stats = parser.add_argument_group("mean and standard deviation of the inputs, where a checkpoint has none")
    stats.add_argument("--tables", metavar="CSV", help="compute: from the statistics of tables (configs/workloads/dlrm_2021_tables856.csv), at every dim")
    stats.add_argument("--max-dim", type=int, default=128, metavar="N", help="the largest of those dims (default 128)")
    stats.add_argument("--compute-stats", metavar="FILE", help="a .json or .pt file with the two keys above")
    stats.add_argument("--forward-comm-stats", metavar="FILE", action="append", default=[], help="as often as --forward-comm, in its order")
    stats.add_argument("--backward-comm-stats", metavar="FILE", action="append", default=[], help="as often as --backward-comm, in its order")
    options = parse_arguments(parser)
    if not options.models and not options.compute:
        parser.error("--models or --compute must be given")
    if options.models and (options.compute or options.forward_comm or options.backward_comm):
        parser.error("--models stands for --compute, --forward-comm and --backward-comm; give one or the other")
    if not 1 <= options.global_batch_size <= MAX_BATCH:
        parser.error(f"--global-batch-size: must be 1 to {MAX_BATCH}, got {options.global_batch_size}")
    if options.outputs not in (["total_ms"], ["forward_ms", "backward_ms"]):
        parser.error("--outputs: must be total_ms or forward_ms,backward_ms")
    unknown = [name for name in options.features if name not in FEATURES]
    if unknown or len(set(options.features)) != len(options.features) or not options.features:
        parser.error(f"--features: each of {', '.join(FEATURES)} at most once, got {', '.join(options.features) or 'none'}")
    if options.tables and options.compute_stats:
        parser.error("--tables and --compute-stats are two answers to one question")
    return options


def find_files(options):
    """The release's file names in --models, into the options of single files."""
    try:
        present = sorted(os.listdir(options.models))
    except OSError as fault:
        raise CheckpointError(f"{options.models}: {fault.strerror}") from None
    if "compute.pt" not in present:
        raise CheckpointError(f"{options.models}: has no compute.pt, but {listed(present)}")
    options.compute = os.path.join(options.models, "compute.pt")
    by_count = sorted((int(match[1]), name) for name in present if (match := re.fullmatch(r"comm_(\d+)_(?:fw|bw)\.pt", name)))
    options.forward_comm = [os.path.join(options.models, name) for _, name in by_count if name.endswith("_fw.pt")]
    options.backward_comm = [os.path.join(options.models, name) for _, name in by_count if name.endswith("_bw.pt")]


def checked_normalisation(pair, inputs, path, how):
    if pair is None:
        raise CheckpointError(f"{path}: has no mean and standard deviation of its inputs; give {how}")
    mean, std = pair
    if len(mean) != inputs or len(std) != inputs:
        raise CheckpointError(f"{path}: the network has {inputs} inputs, their mean has {len(mean)} values and their standard deviation {len(std)}")
    if min(std) <= 0:
        raise CheckpointError(f"{path}: a standard deviation is not above 0")
    return {"feature_mean": ([inputs], mean), "feature_std": ([inputs], std)}


def layer_tensors(prefix, layers):
    tensors = {}
    for i, layer in enumerate(layers):
        tensors[f"{prefix}.{i}.weight"] = ([layer.units, layer.inputs], layer.weights)
        tensors[f"{prefix}.{i}.bias"] = ([layer.units], layer.biases)
    return tensors


def widths(layers):
    return [layers[0].inputs] + [layer.units for layer in layers]


def check_unused(checkpoint, named):
    unused = checkpoint.unused()
    if unused and not named:
        raise CheckpointError(
            f"{checkpoint.path}: has more than such a network: {listed(unused)}. If they have no part in its costs, name the layers that have (--help)"
        )
    if unused:
        print(f"{checkpoint.path}: left out, no layer takes them: {listed(unused)}", file=sys.stderr)


def convert_compute(options):
    checkpoint = Checkpoint(options.compute, options.state_key)
    table = checkpoint.layers("t_hidden", options.table_layers, "--table-layers")
    head = checkpoint.layers("c_hidden", options.head_layers, "--head-layers")
    check_unused(checkpoint, options.table_layers or options.head_layers)
    path, inputs = options.compute, table[0].inputs
    if inputs != len(options.features):
        raise CheckpointError(f"{path}: the network has {inputs} inputs and --features names {len(options.features)}; only these features can be served")
    if head[0].inputs != table[-1].units:
        raise CheckpointError(f"{path}: the head takes {head[0].inputs} inputs and the sum over tables has {table[-1].units}")
    if head[-1].units != len(options.outputs):
        raise CheckpointError(f"{path}: the head gives {head[-1].units} outputs and --outputs names {len(options.outputs)}")
    pair = checkpoint.normalisation(options.mean_key, options.std_key)
    if options.compute_stats:
        pair = feature_statistics.from_file(options.compute_stats, options.mean_key, options.std_key)
    elif options.tables:
        pair = feature_statistics.from_tables(options.tables, options.features, options.max_dim)
    tensors = checked_normalisation(pair, inputs, path, "--tables or --compute-stats")
    tensors.update(layer_tensors("table", table))
    tensors.update(layer_tensors("head", head))
    section = {
        "file": "compute.safetensors", "kind": "table_sum_mlp", "features": options.features,
        "table_layers": widths(table), "head_layers": widths(head), "outputs": options.outputs,
    }
    return section, tensors


def convert_comm(path, stats, inputs_per_device, options):
    checkpoint = Checkpoint(path, options.state_key)
    layers = checkpoint.layers("hidden", options.comm_layers, "--comm-layers")
    check_unused(checkpoint, options.comm_layers)
    inputs, devices = layers[0].inputs, layers[-1].units
    if devices < 2 or inputs != inputs_per_device * devices:
        kind = "dim sums and start offsets" if inputs_per_device == 2 else "dim sums"
        raise CheckpointError(f"{path}: has {inputs} inputs and {devices} outputs; {kind} of {devices} devices would be {inputs_per_device * devices}")
    stated = checkpoint.beside.get("ndevices", devices)
    if stated != devices:
        raise CheckpointError(f"{path}: says it is for {stated} devices and has {devices} outputs")
    pair = checkpoint.normalisation(options.mean_key, options.std_key)
    if stats:
        pair = feature_statistics.from_file(stats, options.mean_key, options.std_key)
    direction = "forward" if inputs_per_device == 2 else "backward"
    tensors = checked_normalisation(pair, inputs, path, f"--{direction}-comm-stats")
    tensors.update(layer_tensors("layer", layers))
    section = {"file": f"{direction}_comm_{devices}.safetensors", "kind": "device_count_mlp", "num_devices": devices, "layers": widths(layers)}
    return section, tensors


def convert_direction(paths, stats, inputs_per_device, options):
    direction = "forward" if inputs_per_device == 2 else "backward"
    if stats and len(stats) != len(paths):
        raise CheckpointError(f"--{direction}-comm-stats: {len(stats)} files for {len(paths)} networks")
    converted = [convert_comm(path, stats[i] if stats else None, inputs_per_device, options) for i, path in enumerate(paths)]
    counts = [section["num_devices"] for section, _ in converted]
    if len(set(counts)) != len(counts):
        raise CheckpointError(f"two {direction} communication networks for one device count: {counts}")
    return sorted(converted, key=lambda pair: pair[0]["num_devices"])


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def convert(options):
    place, name, version = parse_place(options.out)
    if os.path.lexists(place) and not options.replace:
        raise ModelDirectoryError(f"{options.out}: exists already; give another version, or --replace")
    if options.models:
        find_files(options)
    compute, compute_tensors = convert_compute(options)
    forward = convert_direction(options.forward_comm, options.forward_comm_stats, 2, options)
    backward = convert_direction(options.backward_comm, options.backward_comm_stats, 1, options)

    hardware = {"device": options.device} if options.device else {}
    hardware["backend"] = options.backend
    if forward or backward:
        hardware["collective_backend"] = options.collective_backend
    manifest = {
        "format": "neuroshard-cost-model/2", "name": name, "version": version, "hardware": hardware,
        "conditions": {"global_batch_size": options.global_batch_size, "weight_dtype": options.weight_dtype, "optimizer": options.optimizer},
        "compute": compute,
    }
    if forward:
        manifest["forward_comm"] = [section for section, _ in forward]
    if backward:
        manifest["backward_comm"] = [section for section, _ in backward]
    sources = [options.compute, *options.forward_comm, *options.backward_comm]
    manifest["provenance"] = {
        "made_by": "neuroshard-convert-checkpoints", "what": "networks of a PyTorch checkpoint, converted; conditions are what the converter was told",
        "sources": {f"file_{i}": {"name": os.path.basename(path), "sha256": sha256(path)} for i, path in enumerate(sources)},
    }
    files = {compute["file"]: safetensors_bytes(compute_tensors)}
    files.update({section["file"]: safetensors_bytes(tensors) for section, tensors in forward + backward})
    # JSON is YAML, line by line so that a person can read it.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in manifest.items()]
    files["model.yaml"] = "".join(lines).encode("utf-8", "replace")
    files["files.sha256"] = file_list(files)
    publish(options.out, files, options.replace)

    forward_counts, backward_counts = ([section["num_devices"] for section, _ in direction] for direction in (forward, backward))
    print(f"{options.out}: compute {compute['table_layers']} + {compute['head_layers']}; communication of {forward_counts} devices forward, {backward_counts} backward")
    for count in sorted(set(forward_counts) ^ set(backward_counts)):
        print(f"{count} devices have a network for one direction only; plans for {count} ranks cannot be priced", file=sys.stderr)


def main():
    try:
        convert(arguments())
    except (CheckpointError, ModelDirectoryError, TorchFileError, OSError) as fault:
        raise SystemExit(f"neuroshard-convert-checkpoints: {fault}") from None


if __name__ == "__main__":
    main()
