"""python -m neuroshard.worker: the command line and the wiring."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import ipaddress
import logging
import os
import signal
import socket
import sys
from typing import List, Optional, Sequence, Tuple

import grpc

from neuroshard.command_line import parse_arguments
from neuroshard_programs import program, run

from . import host
from .faults import Fault
from .logs import FORMATS, LEVELS, Log, Others
from .security import ROLES, Tls, reachable_from_elsewhere

_DRAIN_GRACE_S = 10.0
_MAX_MESSAGE_BYTES = 64 << 20
_SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    # A client that vanishes is noticed within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]


def parse(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m neuroshard.worker",
                                     description="Measures FBGEMM's embedding operators and torch.distributed's collectives on this host's devices.")
    parser.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto", help="auto (default): the GPUs that torch finds, else the CPU")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:50061",
                        help="of the RPC server; port 0: choose and print; beyond loopback only with TLS, or --insecure (default: %(default)s)")
    for word, what in (("certificate", "the worker's, with its chain"), ("key", "the certificate's"), ("client-ca", "callers need a certificate of these")):
        parser.add_argument(f"--tls-{word}", metavar="FILE", default=None, help=f"PEM: {what}; all three, or plaintext")
    parser.add_argument("--tls-reload-s", type=_in_range(1, 86_400), default=60, metavar="N", help="how often the files are read again (default: 60)")
    parser.add_argument("--tls-role", type=_role, action="append", default=[], metavar="ROLE=PATTERN,...",
                        help="read, profile or admin, and patterns of the subject alternative names of callers that are it; * is any run of characters; nobody by "
                        "default; may be repeated")
    parser.add_argument("--insecure", action="store_true", help="serve without TLS also where other hosts reach the address")
    parser.add_argument("--metrics", metavar="HOST:PORT", default="", help="of http /metrics; port 0: choose, \"\": none (default)")
    parser.add_argument("--cpu-devices", type=_in_range(1, 1024), default=None, metavar="N",
                        help="devices of the cpu backend (default: 1); implies --backend cpu")
    parser.add_argument("--threads", type=_in_range(1, 1024), default=1, metavar="N",
                        help="of torch in each device's process: what OMP_NUM_THREADS is in the trainer's ranks; torchrun's default is 1 (default: 1)")
    parser.add_argument("--memory-bytes", type=_in_range(1 << 20, 1 << 50), default=None, metavar="N",
                        help="that measurements may use on each device (default: a third of what is available, split over the devices, at most 8 GiB; "
                        "on a GPU nine tenths)")
    parser.add_argument("--collective-host", type=_address, default="127.0.0.1", metavar="ADDRESS",
                        help="IP address that the ranks of comm groups listen on and that other hosts can reach (default: %(default)s)")
    parser.add_argument("--collective-networks", type=_networks, default=None, metavar="NETWORK,...",
                        help="of the peers, e.g. 10.1.0.0/16: addresses outside of them are not connected to, whoever asks for it; to be given with a "
                        "--collective-host that is not loopback (default: 127.0.0.0/8,::1/128)")
    parser.add_argument("--log-level", choices=LEVELS, type=lambda level: "warn" if level == "warning" else level, default="info", help="least severe lines that are written (default: info)")
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="key=value lines, or a JSON object a line (default: text)")
    parser.add_argument("--version", action="version", version=_version())
    options = parse_arguments(parser, arguments, may_be_empty=("--metrics",))
    if options.cpu_devices is not None and options.backend == "auto":
        options.backend = "cpu"
    files = (options.tls_certificate, options.tls_key, options.tls_client_ca)
    if any(files) and not all(files):
        parser.error("arguments --tls-certificate, --tls-key, --tls-client-ca: all three, or none")
    options.tls = None
    if all(files):
        roles = {role: [pattern for name, patterns in options.tls_role if name == role for pattern in patterns] for role in ROLES}
        options.tls = Tls(*files, options.tls_reload_s, roles)
    elif options.tls_role:
        parser.error("argument --tls-role: only with --tls-certificate, --tls-key and --tls-client-ca")
    if options.collective_networks is None:
        if not ipaddress.ip_address(options.collective_host).is_loopback:
            parser.error(f"argument --collective-networks: must be given with --collective-host {options.collective_host}")
        options.collective_networks = _networks("127.0.0.0/8,::1/128")
    return options


def _in_range(low: int, high: int):  # type: ignore[no-untyped-def]
    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be in [{low}, {high}], got {value}")
        return value

    return number


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None


def _networks(text: str) -> Tuple[object, ...]:
    try:
        return tuple(ipaddress.ip_network(one.strip()) for one in text.split(","))
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None


def _role(text: str) -> Tuple[str, List[str]]:
    role, separator, patterns = text.partition("=")
    if role not in ROLES or not separator or not patterns:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(ROLES)}, '=' and patterns, got {text!r}")
    return role, patterns.split(",")


def _version() -> str:
    import neuroshard

    return neuroshard.__version__


async def serve(options: argparse.Namespace, log: Log) -> None:
    """Until SIGTERM or SIGINT. Raises Fault when it cannot begin."""
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from prometheus_client import CollectorRegistry, start_http_server

    from neuroshard.v1.worker_pb2_grpc import add_WorkerServiceServicer_to_server

    from .comm_groups import CommGroups
    from .devices import DeviceInventory, ProcessServer
    from .metrics import RpcMetrics, WorkerMetrics
    from .service import MAX_IN_FLIGHT, RPCS, CallLog, UnknownCalls, WorkerService

    registry = CollectorRegistry()
    calls = CallLog(log, RpcMetrics(registry, RPCS, MAX_IN_FLIGHT))
    server = grpc.aio.server(interceptors=[UnknownCalls(calls)], options=_SERVER_OPTIONS)
    where, _, _ = options.listen.rpartition(":")
    try:
        if options.tls is not None:
            port = server.add_secure_port(options.listen, options.tls.credentials())
        elif not options.insecure and reachable_from_elsewhere(where):
            raise Fault("FAILED_PRECONDITION", f"--listen {options.listen}: can be reached from other hosts, and without TLS everybody there may call this "
                        "worker: give --tls-certificate, --tls-key and --tls-client-ca, listen on 127.0.0.1, or say --insecure")
        else:
            port = server.add_insecure_port(options.listen)
            if options.insecure and reachable_from_elsewhere(where):
                log.warn("insecure", address=options.listen, reason="no TLS: whoever reaches this address may call the worker")
    except (RuntimeError, OSError) as fault:
        raise Fault("UNAVAILABLE", f"--listen {options.listen}: {str(fault).splitlines()[0]}") from None
    if options.metrics:
        metrics_host, _, metrics_port = options.metrics.rpartition(":")
        listener, _ = start_http_server(int(metrics_port), metrics_host, registry)
        log.info("metrics_listening", address=f"{metrics_host}:{listener.server_port}")

    processes = ProcessServer()
    devices = await _find_devices(options, processes)
    metrics = WorkerMetrics(registry)
    inventory = DeviceInventory(devices, processes, options.threads, options.collective_host, metrics.set_busy)
    groups = CommGroups(inventory, options.collective_networks, metrics.set_open_groups)
    service = WorkerService(inventory, groups, calls, metrics, _version(), options.tls)
    add_WorkerServiceServicer_to_server(service, server)
    health_service = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    await server.start()
    await health_service.set("", health_pb2.HealthCheckResponse.SERVING)

    drain = asyncio.Event()
    # Not add_signal_handler: when that handler is removed, a signal kills the process for a moment.
    signalled, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    asyncio.get_running_loop().add_reader(signalled, drain.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    print(f"listening on {where}:{port}", flush=True)
    log.info("serving", address=f"{where}:{port}", devices=len(devices), name=devices[0].name, backend=devices[0].backend,
             collective_backend=devices[0].collective_backend, threads=options.threads)
    await drain.wait()
    asyncio.get_running_loop().remove_reader(signalled)

    log.info("draining")
    service.draining = True
    await health_service.enter_graceful_shutdown()
    await server.stop(_DRAIN_GRACE_S)
    await groups.close_all()
    await inventory.settle()
    for number in (signal.SIGTERM, signal.SIGINT):  # the interpreter's end would let a second one kill it
        signal.signal(number, signal.SIG_IGN)
    log.info("stopped")


async def _find_devices(options: argparse.Namespace, processes):  # type: ignore[no-untyped-def]
    from .devices import Device

    probe = await processes.start("probe", options.backend)
    try:
        found: List[Tuple[str, str, int]] = await probe.answer()
    except Fault as fault:
        raise Fault(fault.code, f"cannot measure with torch and FBGEMM here: {fault.message}") from None
    finally:
        await probe.close()
    if found[0][0] == "cpu":
        count = options.cpu_devices or 1
        fair = min(max(host.available_memory_bytes() // 3 // count, 16 << 20), 8 << 30)
        return [Device(i, "cpu", found[0][1], options.memory_bytes or fair) for i in range(count)]
    return [Device(i, where, name, options.memory_bytes or memory_bytes) for i, (where, name, memory_bytes) in enumerate(found)]


def main() -> int:
    if importlib.util.find_spec("torch") is None and program("neuroshard-worker"):
        print("neuroshard.worker: without torch neuroshard-worker measures, whose kernels are this project's", file=sys.stderr, flush=True)
        run("neuroshard-worker", sys.argv[1:])
    options = parse()
    # Before torch is imported: its processes inherit it.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)
    log = Log(options.log_level, options.log_format)
    logging.basicConfig(handlers=[Others(log)])
    try:
        asyncio.run(serve(options, log))
    except (Fault, ImportError, OSError) as fault:
        print(f"neuroshard.worker: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
