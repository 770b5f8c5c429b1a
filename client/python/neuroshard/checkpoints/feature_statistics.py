"""Mean and standard deviation of a network's inputs, where a checkpoint does not have them."""

import csv
import json
import math
import statistics

from neuroshard import torch_file
from neuroshard.checkpoints.checkpoint import CheckpointError, finite_numbers

EPSILON = 1e-6  # the original adds it to every deviation, so that constant columns can be divided by it


def from_file(path, mean_key, std_key):
    """(mean, std) of a JSON or .pt file with a list, or tensor, under each of the two keys; taken as they are."""
    if path.endswith(".json"):
        try:
            with open(path, encoding="utf-8") as file:
                value = json.load(file)
        except (OSError, ValueError) as fault:
            raise CheckpointError(f"{path}: {fault}") from None
    else:
        value = torch_file.load(path)
    if not isinstance(value, dict) or mean_key not in value or std_key not in value:
        raise CheckpointError(f"{path}: has no {mean_key} and {std_key}")
    return tuple(finite_numbers(value[key], f"{path}: {key}") for key in (mean_key, std_key))


def halved_dims(max_dim):
    """128 -> 128, 64, 32, 16, 8, 4: halved while what is left is a multiple of 4."""
    dims = []
    while max_dim >= 4 and max_dim % 4 == 0:
        dims.append(max_dim)
        max_dim //= 2
    return dims


def from_tables(path, features, max_dim):
    """(mean, std) as the original has them: over the tables of the CSV file at every dim, std with n - 1, plus EPSILON."""
    dims = halved_dims(max_dim)
    if not dims:
        raise CheckpointError(f"--max-dim: must be a positive multiple of 4, got {max_dim}")
    columns = {feature: [] for feature in features}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for feature in features:
                    values = dims if feature == "dim" else [float(row[feature])] * len(dims)
                    columns[feature].extend(values)
    except OSError as fault:
        raise CheckpointError(f"{path}: {fault.strerror}") from None
    except (KeyError, TypeError, ValueError) as fault:
        raise CheckpointError(f"{path}: no table of numbers with the columns {', '.join(name for name in features if name != 'dim')} ({fault})") from None
    if any(len(column) < 2 or not all(map(math.isfinite, column)) for column in columns.values()):
        raise CheckpointError(f"{path}: has no tables, or values that are not finite")
    mean = [statistics.fmean(columns[feature]) for feature in features]
    std = [statistics.stdev(columns[feature]) + EPSILON for feature in features]
    return finite_numbers(mean, path), finite_numbers(std, path)
