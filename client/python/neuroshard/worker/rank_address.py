"""The address at which the ranks of a group meet: rank 0's; the others' only say which collectives they have."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, Sequence, Union

from .faults import Fault

# By torch.device.type.
BACKEND_NAMES = {"cpu": "torch-gloo", "cuda": "torch-nccl"}

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


class RankAddress(NamedTuple):
    backend: str
    host: str
    port: int  # 0: nobody dials this rank by its address
    token: str  # the ranks' secret

    def encode(self) -> bytes:
        return " ".join(map(str, self)).encode()


def decode_first(addresses: Sequence[bytes], backend: str, networks: Sequence[Network]) -> RankAddress:
    """Rank 0's of a group's addresses. INVALID_ARGUMENT names an address of other collectives, or one that lies outside of `networks`."""
    decoded = []
    for rank, address in enumerate(addresses):
        field = f"addresses[{rank}].address"
        words = address.decode("ascii", "replace").split(" ") if len(address) < 200 else []
        if len(words) != 4 or words[0] not in BACKEND_NAMES.values() or not words[2].isdigit():
            raise Fault.invalid(field, f"is no address of a rank with {backend}: all ranks of a group need workers with the same collectives")
        if words[0] != backend:
            raise Fault.invalid(field, f"is a rank with {words[0]}, this one has {backend}")
        decoded.append(RankAddress(words[0], words[1], int(words[2]), words[3]))
    first = decoded[0]
    try:
        inside = any(ipaddress.ip_address(first.host) in network for network in networks)
    except ValueError:
        inside = False
    if not inside:
        raise Fault.invalid("addresses[0].address", f"{first.host} is outside of the networks that this worker may dial: {', '.join(map(str, networks))}")
    if not 0 < first.port < 65536:
        raise Fault.invalid("addresses[0].address", f"port {first.port}")
    return first
