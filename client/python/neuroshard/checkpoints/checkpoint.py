"""Networks in the checkpoints of NeuroShard's release, and in others of the same kind under other names."""

import math
import re
import struct
from typing import NamedTuple

from neuroshard import torch_file


class CheckpointError(Exception):
    """A checkpoint that is not what it should be, with the file and the reason."""


class Layer(NamedTuple):
    """y = W x + b; weights row by row, one row a unit."""

    inputs: int
    units: int
    weights: list
    biases: list


def float32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf


def listed(names, most=12):
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") if names else "nothing"


def finite_numbers(value, what):
    """A tensor's or a list's values as float32."""
    if isinstance(value, torch_file.Tensor):
        value = value.values()
    elif not isinstance(value, (list, tuple)) or not all(type(number) in (int, float) for number in value):
        raise CheckpointError(f"{what} is neither a tensor nor a list of numbers")
    values = [float32(number) for number in value]
    if not all(map(math.isfinite, values)):
        raise CheckpointError(f"{what} has values that are not finite in float32")
    return values


class Checkpoint:
    """A state_dict, and what was saved beside it.

    The release saves {"state_dict", "feature_means", "feature_stds", and sizes}; `state_key` says where else the state_dict is. A file that is nothing but
    a state_dict is taken as one.
    """

    def __init__(self, path, state_key=None):
        self.path = path
        value = torch_file.load(path)
        if not isinstance(value, dict):
            raise CheckpointError(f"{path}: holds a {type(value).__name__}, not a dict with a state_dict")
        key = state_key or next((known for known in ("state_dict", "model_state_dict") if known in value), None)
        if key is not None and key not in value:
            raise CheckpointError(f"{path}: has no '{key}', but {listed(value)}")
        self.beside = {} if key is None else value
        state = value if key is None else value[key]
        if not isinstance(state, dict) or not state or not all(isinstance(tensor, torch_file.Tensor) for tensor in state.values()):
            raise CheckpointError(f"{path}: no state_dict; it has {listed(value)} (--state-key names the key of the state_dict)")
        if all(str(name).startswith("module.") for name in state):  # saved from a DataParallel
            state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
        self.state, self._used = state, set()

    def layers(self, prefix, names, option):
        """The layers called `names`, or where there are none prefix.0, prefix.1, ..., each taking what the one before gives."""
        if not names:
            pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.weight")
            count = sum(1 for name in self.state if pattern.fullmatch(str(name)))
            names = [f"{prefix}.{i}" for i in range(count)]
        if not names:
            raise CheckpointError(f"{self.path}: has no layers {prefix}.0, {prefix}.1, ..., but {listed(self.state)} ({option} names them)")
        layers = []
        for name in names:
            weight, bias = self._tensor(f"{name}.weight", 2, option), self._tensor(f"{name}.bias", 1, option)
            layer = Layer(weight.shape[1], weight.shape[0], finite_numbers(weight, f"{self.path}: {name}.weight"), finite_numbers(bias, f"{self.path}: {name}.bias"))
            if len(layer.biases) != layer.units:
                raise CheckpointError(f"{self.path}: {name} has {layer.units} units and {len(layer.biases)} biases")
            if layers and layer.inputs != layers[-1].units:
                raise CheckpointError(f"{self.path}: {name} takes {layer.inputs} inputs where the layer before gives {layers[-1].units}")
            layers.append(layer)
        return layers

    def _tensor(self, name, dimensions, option):
        tensor = self.state.get(name)
        if tensor is None:
            raise CheckpointError(f"{self.path}: has no tensor {name}, but {listed(self.state)} ({option} names the layers)")
        if len(tensor.shape) != dimensions or tensor.count == 0:
            raise CheckpointError(f"{self.path}: {name} has shape {list(tensor.shape)} where {dimensions} dimensions are needed")
        self._used.add(name)
        return tensor

    def unused(self):
        """Names of tensors that no layer took."""
        return [name for name in self.state if name not in self._used]

    def normalisation(self, mean_key, std_key):
        """(mean, std) saved beside the state_dict, or None where neither is."""
        present = [key for key in (mean_key, std_key) if key in self.beside]
        if not present:
            return None
        if len(present) == 1:
            raise CheckpointError(f"{self.path}: has {present[0]} but not the other of {mean_key} and {std_key}")
        return tuple(finite_numbers(self.beside[key], f"{self.path}: {key}") for key in (mean_key, std_key))
