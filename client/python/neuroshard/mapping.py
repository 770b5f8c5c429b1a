"""Requests given as mappings: what a YAML or JSON file of a request holds, with the field names of the .proto."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterator, List, Mapping, Type, TypeVar, Union

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from neuroshard.errors import FieldViolation, InvalidRequest
from neuroshard.similar_word import did_you_mean

M = TypeVar("M", bound=Message)

_MOST_FAULTS = 100

_EXPECTED = {
    FieldDescriptor.CPPTYPE_STRING: "a text",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_INT32: "an integer of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "an integer of 64 bits",
    FieldDescriptor.CPPTYPE_UINT32: "an integer from 0 to 2^32 - 1",
    FieldDescriptor.CPPTYPE_UINT64: "an integer from 0 to 2^64 - 1",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}


def as_message(kind: Type[M], value: Union[Message, Mapping[str, Any]], path: str = "") -> M:
    """`value` as a message: itself, or parsed by protobuf's JSON mapping. `path`: its own place in a larger request.

    Raises InvalidRequest for a mapping with unknown fields or values of wrong types, all of them at once, and TypeError for what is neither.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{path or 'request'}: must be a {kind.DESCRIPTOR.full_name} or a dict of the same shape, got {type(value).__name__}")
    plain = _plain(value)
    try:
        return json_format.ParseDict(plain, kind())
    except Exception as fault:  # of many types, by the version of protobuf; it names one fault, without its place in lists
        faults = list(itertools.islice(_faults(kind, plain, path), _MOST_FAULTS + 1)) or [FieldViolation(path, str(fault))]
    if len(faults) > _MOST_FAULTS:
        faults[-1] = FieldViolation("...", "and more")
    raise InvalidRequest("; ".join(map(str, faults)), code=grpc.StatusCode.INVALID_ARGUMENT, violations=faults) from None


def _plain(value: Any) -> Any:
    """Of dicts and lists: some versions of protobuf take other mappings and sequences, some do not."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _faults(kind: Type[Message], mapping: Dict[str, Any], path: str) -> Iterator[FieldViolation]:
    fields = {name: field for field in kind.DESCRIPTOR.fields for name in (field.json_name, field.name)}
    for key, value in mapping.items():
        place = f"{path}.{key}" if path else str(key)
        field = fields.get(key)
        if field is None:
            names = [field.name for field in kind.DESCRIPTOR.fields]
            # With the one that was meant, the others are noise.
            yield FieldViolation(place, "unknown field" + (did_you_mean(str(key), names) or f"; known: {', '.join(names)}"))
        elif value is None:
            continue  # absent
        elif not _is_repeated(field):
            yield from _faults_of_value(kind, field, value, place)
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                yield from _faults_of_value(kind, field, entry, f"{place}[{i}]")
        else:
            yield FieldViolation(place, f"must be a list, got {_shown(value)}")


def _faults_of_value(kind: Type[Message], field: FieldDescriptor, value: Any, place: str) -> Iterator[FieldViolation]:
    if field.message_type is not None:
        if isinstance(value, dict):
            yield from _faults(type(getattr(kind(), field.name).add() if _is_repeated(field) else getattr(kind(), field.name)), value, place)
        else:
            yield FieldViolation(place, f"must be a mapping, got {_shown(value)}")
        return
    one: List[Any] = [value]
    try:
        json_format.ParseDict({field.name: one if _is_repeated(field) else value}, kind())
    except Exception:
        yield FieldViolation(place, f"must be {_EXPECTED[field.cpp_type]}, got {_shown(value)}")


def _is_repeated(field: FieldDescriptor) -> bool:
    # `label` is deprecated since protobuf 6, which `is_repeated` came with.
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
