"""What the operating system says of this host; unknown values are left out or 0. Linux."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import ipaddress
import os
import pathlib
import platform
import socket
import struct
from typing import Dict, Iterator, Optional, Tuple, Union

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B

_CGROUPS = (("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(size: float) -> str:
    unit = 0
    while abs(size) >= 1024 and unit + 1 < len(_UNITS):
        size /= 1024
        unit += 1
    return f"{size:.2f} {_UNITS[unit]}" if unit else f"{size:.0f} B"


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _field(text: str, key: str, separator: str = ":") -> str:
    for line in text.splitlines():
        name, found, value = line.partition(separator)
        if found and name.strip() == key:
            return value.strip()
    return ""


def available_memory_bytes() -> int:
    """What can still be allocated without swapping."""
    available = int((_field(_read("/proc/meminfo"), "MemAvailable") or "0 kB").split()[0]) * 1024
    for limit, used in _CGROUPS:
        if _read(limit).isdigit():
            available = min(available, max(0, int(_read(limit)) - int(_read(used) or 0)))
            break
    return available


def cpu_name() -> str:
    return _field(_read("/proc/cpuinfo"), "model name") or "unknown CPU"


def last_level_cache_bytes() -> int:
    sizes = [_read(f"/sys/devices/system/cpu/cpu0/cache/index{i}/size") for i in range(8)]
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return max([int(size[:-1]) * units[size[-1]] for size in sizes if size[:-1].isdigit() and size[-1] in units], default=32 << 20)


def version_of(*packages: str) -> Optional[str]:
    """Of the first that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


def environment() -> Dict[str, str]:
    """The part of every record that does not change while the process lives, device apart."""
    values = {
        "os": _field(_read("/etc/os-release"), "PRETTY_NAME", "=").strip('"'),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": str(len(os.sched_getaffinity(0))),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "fbgemm_gpu": version_of("fbgemm-gpu-cpu", "fbgemm-gpu"),
        "torchrec": version_of("torchrec"),
    }
    return {key: value for key, value in values.items() if value}


def hostname() -> str:
    return socket.gethostname()


def _interfaces() -> Iterator[Tuple[str, Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]]]:
    """Their names, addresses and networks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has no IPv4 address
                address, mask = (socket.inet_ntoa(fcntl.ioctl(asking, code, request)[20:24]) for code in (_SIOCGIFADDR, _SIOCGIFNETMASK))
                yield name, ipaddress.IPv4Interface(f"{address}/{mask}")
    for line in _read("/proc/net/if_inet6").splitlines():
        address, _, bits, _, _, name = line.split()
        yield name, ipaddress.IPv6Interface((int(address, 16), int(bits, 16)))


def network_of(address: str) -> Dict[str, str]:
    """Of an IP address of this host, as properties of records: itself, and its network and interface as far as they are known."""
    own = ipaddress.ip_address(address)
    loopback = own.version == 4 and own.is_loopback
    for name, interface in _interfaces():
        if interface.ip == own or (loopback and interface.ip.is_loopback and interface.version == 4):
            return {"network_interface": name, "network_address": address, "network": str(interface.network)}
    return {"network_address": address, "network": str(ipaddress.ip_network(own))}
