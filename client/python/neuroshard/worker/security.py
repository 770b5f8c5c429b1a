"""Who may call the worker: mutual TLS and roles, by the words and rules of neuroshard-worker (configs/worker.yaml, `tls`)."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
import ssl
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import grpc

from .faults import Fault

# What a caller may be. admin may do everything.
ROLES = ("read", "profile", "admin")
_READ_ONLY = ("GetWorkerInfo",)
_MAX_CALLER_BYTES = 200
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


class Tls(NamedTuple):
    """Files are in PEM and are read again when they have changed, at most every reload_s. roles: by role, patterns of a caller's subject alternative names;
    `*` is any run of characters; nobody has a role without patterns."""

    certificate: str
    key: str
    client_ca: str
    reload_s: float
    roles: Dict[str, List[str]]

    def credentials(self) -> grpc.ServerCredentials:
        """Of a server that asks its callers for a certificate of client_ca. Raises Fault for files that cannot be used, which gRPC itself would find out with
        the first handshake."""
        check_files(self)
        files = _Files(self)
        return grpc.dynamic_ssl_server_credentials(files.configuration(), files.fetch, require_client_authentication=True)

    def check_role(self, rpc: str, names: List[str]) -> None:
        """Raises PERMISSION_DENIED unless one of `names` has a role that may call `rpc`."""
        roles = ROLES if rpc in _READ_ONLY else ROLES[1:]
        if any(matches(pattern, name) for role in roles for pattern in self.roles.get(role, ()) for name in names):
            return
        who = ", ".join(names) if names else "the caller (without alternative names)"
        raise Fault("PERMISSION_DENIED", f"{rpc} needs the role {' or '.join(roles)}, which the certificate of {who} does not have here")


def matches(pattern: str, text: str) -> bool:
    """Whether `*` in `pattern` can stand for runs of characters so that it becomes `text`."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def check_files(tls: Tls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An empty pass phrase, as gRPC has: nobody is asked for one.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
        raise Fault("INVALID_ARGUMENT", f"--tls-certificate {tls.certificate}, --tls-key {tls.key}: {fault}") from None
    try:
        context.load_verify_locations(tls.client_ca)
    except OSError as fault:
        raise Fault("INVALID_ARGUMENT", f"--tls-client-ca {tls.client_ca}: {fault}") from None


class _Files:
    """gRPC asks with every handshake, on a thread of its own, one at a time."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._read = self._contents()
        self._looked_at = time.monotonic()

    def _contents(self) -> Tuple[bytes, bytes, bytes]:
        def read(path: str) -> bytes:
            with open(path, "rb") as file:
                return file.read()

        return read(self._tls.key), read(self._tls.certificate), read(self._tls.client_ca)

    def configuration(self) -> Any:
        key, certificate, client_ca = self._read
        return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca)

    def fetch(self) -> Any:
        """None: as before. Files that do not belong together are left until they do."""
        if time.monotonic() - self._looked_at < self._tls.reload_s:
            return None
        self._looked_at = time.monotonic()
        try:
            now = self._contents()
            if now == self._read:
                return None
            check_files(self._tls)
        except (OSError, Fault):
            return None
        self._read = now
        return self.configuration()


class Caller:
    """Who calls, and the ids under which a call is found again: `x-request-id` and W3C `traceparent` of its metadata where they are such, else new ones.

    names: the subject alternative names of its certificate; none without TLS. name: the first of them, else the certificate's common name, else the address.
    """

    def __init__(self, context: Any) -> None:
        auth = context.auth_context()
        self.names = [name.decode(errors="replace") for name in auth.get("x509_subject_alternative_name", ())]
        common = [name.decode(errors="replace") for name in auth.get("x509_common_name", ())]
        self.peer = context.peer()
        self.name = (self.names + common + [_address(self.peer)])[0][:_MAX_CALLER_BYTES]
        metadata = context.invocation_metadata() or ()
        given = _only(metadata, "x-request-id")
        self.request_id = given if given is not None and _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self.trace_id = trace_id(_only(metadata, "traceparent")) or secrets.token_hex(16)

    def fields(self) -> Dict[str, str]:
        """Of a log line."""
        return {"request_id": self.request_id, "trace_id": self.trace_id, "caller": self.name, "peer": self.peer}


def trace_id(traceparent: Optional[str]) -> Optional[str]:
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return None
    trace, parent = (found[1], found[2]) if found[1] else (found[3], found[4])
    return trace if trace.strip("0") and parent.strip("0") else None


def reachable_from_elsewhere(host: str) -> bool:
    """Whether an address that `host` stands for is none of loopback; "" and wildcards are all. Raises OSError where there is no such host."""
    found = socket.getaddrinfo(host.strip("[]") or "0.0.0.0", None, type=socket.SOCK_STREAM)
    return not all(ipaddress.ip_address(address[4][0].partition("%")[0]).is_loopback for address in found)


def _only(metadata: Any, key: str) -> Optional[str]:
    values = [value for name, value in metadata if name == key]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _address(peer: str) -> str:
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]") if kind in ("ipv4", "ipv6") else peer
