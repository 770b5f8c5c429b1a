"""Tensors in the files of `torch.save`, without PyTorch: the zip format (since PyTorch 1.6) and the one before it.

Opening a file reads its pickle alone (pickle_values: nothing is imported or run); tensors know where in the file their values are.
"""

import io
import math
import os
import struct
import zipfile
import zlib

from neuroshard.torch_file.pickle_values import Attributed, Name, PickleError, read_pickle

MAX_PICKLE_BYTES = 64 << 20
MAX_VALUES = 4 << 20  # of a tensor that is read as a list
MAX_DIMENSIONS = 8

# struct codes by the name of PyTorch's storage class; bfloat16 has none and is widened.
_CODES = {
    "Float": "f", "Double": "d", "Half": "e", "BFloat16": "bf", "Long": "q", "Int": "i", "Short": "h", "Char": "b", "Byte": "B", "Bool": "?",
}
_SIZES = {code: 2 if code == "bf" else struct.calcsize("<" + code) for code in _CODES.values()}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001


class TorchFileError(Exception):
    """A file that cannot be read, with its path and the reason."""


class Storage:
    """Values one after the other in the file: `count` of type `code`, from byte `file_offset`."""

    def __init__(self, path, code, count, byte_order):
        self.path, self.code, self.count, self.byte_order = path, code, count, byte_order
        self.item_bytes = _SIZES[code]
        self.file_offset = None

    def read(self, first, count):
        """`count` values from the `first` on, as bytes."""
        with open(self.path, "rb") as file:
            file.seek(self.file_offset + first * self.item_bytes)
            data = file.read(count * self.item_bytes)
        if len(data) != count * self.item_bytes:
            raise TorchFileError(f"{self.path}: ends inside a tensor")
        return data


class Tensor:
    """A view of a storage: value [i, j, ...] is at offset + i * stride[0] + j * stride[1] + ..."""

    def __init__(self, storage, offset, shape, stride):
        if not isinstance(storage, Storage):
            raise PickleError("a tensor without a storage")
        shape, stride = tuple(shape), tuple(stride)
        if len(shape) != len(stride) or len(shape) > MAX_DIMENSIONS:
            raise PickleError(f"a tensor of shape {shape} and strides {stride}")
        if any(type(value) is not int or value < 0 for value in (offset, *shape, *stride)):
            raise PickleError(f"a tensor with a negative or broken offset, shape or stride: {offset}, {shape}, {stride}")
        self.storage, self.offset, self.shape, self.stride = storage, offset, shape, stride
        self.count = math.prod(shape)
        last = offset + sum((extent - 1) * step for extent, step in zip(shape, stride))
        if self.count > 0 and last >= storage.count:
            raise PickleError(f"a tensor of shape {shape} that reaches value {last} of a storage of {storage.count}")

    @property
    def is_integer(self):
        return self.storage.code in "qihbB"

    @property
    def is_contiguous(self):
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.stride)):
            if extent != 1 and stride != step:
                return False
            step *= extent
        return True

    def values(self):
        """All values in row-major order; bfloat16 and half widened, bools as 0 and 1."""
        if self.count > MAX_VALUES:
            raise TorchFileError(f"{self.storage.path}: a tensor of {self.count} values where at most {MAX_VALUES} are expected")
        if self.count == 0:
            return []
        span = 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.stride))
        if span > MAX_VALUES:
            raise TorchFileError(f"{self.storage.path}: a tensor spread over {span} values where at most {MAX_VALUES} are expected")
        flat = _unpack(self.storage, self.storage.read(self.offset, span))
        places = [0]
        for extent, step in zip(self.shape, self.stride):
            places = [place + i * step for place in places for i in range(extent)]
        return [flat[place] for place in places]


def _unpack(storage, data):
    mark = "<" if storage.byte_order == "little" else ">"
    if storage.code == "bf":
        halves = struct.unpack(f"{mark}{len(data) // 2}H", data)
        return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *[half << 16 for half in halves]))
    return struct.unpack(f"{mark}{len(data) // storage.item_bytes}{storage.code}", data)


def load(path):
    """The value that was saved: dicts, lists, tuples, numbers, texts, and Tensor. TorchFileError otherwise."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
        if start[:2] == b"\x1f\x8b":
            raise TorchFileError(f"{path}: is compressed with gzip; decompress it first (gunzip)")
        return _load_zip(path) if start == b"PK\x03\x04" else _load_legacy(path)
    except (PickleError, zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError, OverflowError) as fault:
        raise TorchFileError(f"{path}: {fault}") from None
    except OSError as fault:
        raise TorchFileError(f"{path}: {fault.strerror or fault}") from None


def _names(storages, make_storage):
    """What a checkpoint's pickle may build, and the function for its persistent ids."""

    def ordered_dict(pairs=()):
        return Attributed(pairs)

    def rebuild(storage, offset, shape, stride, *_):
        return Tensor(storage, offset, shape, stride)

    def parameter(tensor, *_):
        if not isinstance(tensor, Tensor):
            raise PickleError("a parameter without a tensor")
        return tensor

    def no_instance(*_):
        raise PickleError("a storage inside the pickle")

    named = {
        ("collections", "OrderedDict"): ordered_dict,
        ("torch._utils", "_rebuild_tensor"): rebuild,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        ("torch._utils", "_rebuild_parameter"): parameter,
        ("torch", "Size"): lambda extents=(): tuple(extents),
    }
    for kind in _CODES:
        named[("torch", kind + "Storage")] = no_instance

    def persistent(identifier):
        if not isinstance(identifier, tuple) or len(identifier) not in (5, 6) or identifier[0] != "storage" or not isinstance(identifier[1], Name):
            raise PickleError("a reference to something other than a tensor's storage")
        _, kind, key, _, count, *view = identifier
        code = _CODES.get(kind.text.removeprefix("torch.").removesuffix("Storage"))
        if code is None or not isinstance(key, str) or type(count) is not int or count < 0:
            raise PickleError(f"a reference to a broken storage ({kind.text})")
        if view and view[0] is not None:
            raise PickleError("a storage that is a view of another, as only PyTorch before 0.4 wrote it; save the file again")
        storage = storages.get(key)
        if storage is None:
            storage = storages[key] = make_storage(key, code, count)
        elif (storage.code, storage.count) != (code, count):
            raise PickleError(f"storage {key} with two types or sizes")
        return storage

    return named, persistent


def _load_zip(path):
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        members = {member.filename: member for member in archive.infolist()}
        pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise TorchFileError(f"{path}: a zip file without one data.pkl; not written by torch.save")
        prefix = pickles[0].removesuffix("data.pkl")
        if prefix + "constants.pkl" in members:
            raise TorchFileError(f"{path}: a TorchScript archive; save its state_dict() instead")
        if members[pickles[0]].file_size > MAX_PICKLE_BYTES:
            raise TorchFileError(f"{path}: its pickle has more than {MAX_PICKLE_BYTES} bytes")
        byte_order = "little"
        if prefix + "byteorder" in members:
            text = archive.open(prefix + "byteorder").read(16)
            if text not in (b"little", b"big"):
                raise TorchFileError(f"{path}: byteorder is neither little nor big")
            byte_order = text.decode()

        def make_storage(key, code, count):
            member = members.get(f"{prefix}data/{key}")
            storage = Storage(path, code, count, byte_order)
            if member is None:
                raise PickleError(f"storage {key} is missing from the file")
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 or member.file_size != count * storage.item_bytes:
                raise PickleError(f"storage {key} is compressed, encrypted or has not the {count * storage.item_bytes} bytes it should")
            file.seek(member.header_offset)
            header = file.read(30)
            if len(header) != 30 or header[:4] != b"PK\x03\x04":
                raise PickleError(f"storage {key} is not where the file's directory says")
            storage.file_offset = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
            return storage

        named, persistent = _names({}, make_storage)
        return read_pickle(io.BytesIO(archive.read(members[pickles[0]])), named, persistent)


def _load_legacy(path):
    """Five pickles (magic, protocol, system, value, keys of storages), then for each key a count and the values.

    PyTorch writes them little-endian on every machine, whatever the system's entry says.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        try:
            known = read_pickle(file, {}) == _LEGACY_MAGIC
        except PickleError:
            known = False
        if not known:
            raise TorchFileError(f"{path}: neither format of torch.save (no zip file, and not the magic number of the older one)")
        if read_pickle(file, {}) != _LEGACY_PROTOCOL:
            raise TorchFileError(f"{path}: another protocol than {_LEGACY_PROTOCOL}")
        read_pickle(file, {})
        storages = {}
        named, persistent = _names(storages, lambda _, code, count: Storage(path, code, count, "little"))
        value = read_pickle(file, named, persistent)
        keys = read_pickle(file, {})
        if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(storages):
            raise TorchFileError(f"{path}: its list of storages is not that of its tensors")
        for key in keys:
            storage = storages[key]
            count = file.read(8)
            if len(count) != 8 or struct.unpack("<q", count)[0] != storage.count:
                raise TorchFileError(f"{path}: storage {key} has not the {storage.count} values it should")
            storage.file_offset = file.tell()
            end = storage.file_offset + storage.count * storage.item_bytes
            if end > size:
                raise TorchFileError(f"{path}: ends inside storage {key}")
            file.seek(end)
        return value
