"""Writes a cost model's directory (server/networks/README.md): tensors in safetensors files, model.yaml, all published in one rename."""

import array
import hashlib
import json
import os
import re
import shutil
import struct
import sys

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class ModelDirectoryError(Exception):
    """A directory that cannot be written, with its path and the reason."""


def parse_place(path):
    """(absolute path, name, version) of ROOT/NAME/VERSION."""
    place = os.path.abspath(path)
    parent, version = os.path.split(place)
    name = os.path.basename(parent)
    if not _VERSION.fullmatch(version):
        raise ModelDirectoryError(f"{path}: must end in a version, a positive integer without leading zeros, got '{version}'")
    if not _NAME.fullmatch(name) or name.endswith((".tmp", "~")):
        raise ModelDirectoryError(f"{path}: '{name}' is no name of a model (a letter or digit, then letters, digits, '.', '_', '-')")
    return place, name, int(version)


def safetensors_bytes(tensors):
    """A safetensors file of float32 tensors: name -> (shape, values in row-major order)."""
    header, blocks, offset = {}, [], 0
    for name in sorted(tensors):
        shape, values = tensors[name]
        block = array.array("f", values)
        if sys.byteorder == "big":
            block.byteswap()
        blocks.append(block.tobytes())
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(blocks[-1])]}
        offset += len(blocks[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(blocks)


def file_list(files):
    """files.sha256 of `files` (name -> bytes), by which planners tell a whole version."""
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()} {len(files[name])} {name}\n" for name in sorted(files)).encode()
    return lines + hashlib.sha256(lines).hexdigest().encode() + b"\n"


def publish(path, files, replace=False):
    """Writes `files` (name -> bytes) as the directory `path`, which appears complete or not at all.

    One that is there is left alone, unless `replace`: then it is moved aside just before the rename and removed after it.
    """
    place, _, _ = parse_place(path)
    parent, version = os.path.split(place)
    if os.path.lexists(place) and not replace:
        raise ModelDirectoryError(f"{path}: exists already; give another version, or --replace")
    new = os.path.join(parent, f".{version}.{os.getpid()}.tmp")
    old = os.path.join(parent, f".{version}.{os.getpid()}.old.tmp")
    try:
        os.makedirs(new)
        for name, data in files.items():
            with open(os.path.join(new, name), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        if replace and os.path.lexists(place):
            os.rename(place, old)
            try:
                os.rename(new, place)
            except OSError:
                os.rename(old, place)
                raise
        else:
            os.rename(new, place)  # onto a directory with files in it, made meanwhile: an error
    except OSError as fault:
        raise ModelDirectoryError(f"{path}: cannot be written: {fault.strerror or fault}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if os.path.islink(old):
            os.unlink(old)
        shutil.rmtree(old, ignore_errors=True)
