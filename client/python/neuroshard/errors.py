"""Failed calls as exceptions. proto/README.md has the status codes and what they mean."""

from __future__ import annotations

import pkgutil
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type

import grpc
from google.protobuf import descriptor_pb2, message, message_factory


class FieldViolation(NamedTuple):
    """One fault of a request."""

    # Path in the request, e.g. "tables[3].embedding_dim". "..." counts faults that did not fit into the answer.
    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class PlannerError(Exception):
    """A call that failed. The subclasses are those that callers handle differently; other codes are a PlannerError itself.

    code: the gRPC status.
    message: the server's words, or gRPC's where no server answered.
    violations: every fault of an InvalidRequest, the demands that conflict of an Infeasible, the limits of a LimitExceeded; may be empty.
    reason: why, as proto/README.md lists it (google.rpc.ErrorInfo.reason), e.g. "OUT_OF_MEMORY". None where the server sent none.
    retry_delay_s: google.rpc.RetryInfo.retry_delay in seconds. None where the server sent none.
    address: the planner that was asked. None where the request never left this process.
    request_id: under which the planner's log has the call (`request_id=...`). None where no planner answered.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        violations: Sequence[FieldViolation] = (),
        reason: Optional[str] = None,
        retry_delay_s: Optional[float] = None,
        address: Optional[str] = None,
        request_id: Optional[str] = None,
    ):
        super().__init__(message)
        self.message = message
        self.code = code
        self.violations: List[FieldViolation] = list(violations)
        self.reason = reason
        self.retry_delay_s = retry_delay_s
        self.address = address
        self.request_id = request_id

    def __str__(self) -> str:
        head = f"planner at {self.address}: {self.message}" if self.address else self.message
        if self.request_id and self.code in _LOG_TELLS_MORE:
            head += f" (request id {self.request_id})"
        # A single fault is the message too.
        faults = [str(violation) for violation in self.violations]
        return "\n  ".join([head, *(fault for fault in faults if fault not in self.message)])

    def __reduce__(self) -> Any:
        return _restore, (type(self), self.message, {**self.__dict__, "message": self.message})


def _restore(kind: Type[PlannerError], text: str, state: Dict[str, Any]) -> PlannerError:
    error = kind(text)
    error.__dict__.update(state)
    return error


class InvalidRequest(PlannerError):
    """INVALID_ARGUMENT: the request is wrong, and `violations` lists where."""


class Infeasible(PlannerError):
    """FAILED_PRECONDITION: no plan can exist, or none was found; the message says which, and why."""


class NoModel(PlannerError):
    """FAILED_PRECONDITION for the reason NO_MODEL or MODEL_UNFIT: there is no such cost model, or it cannot price the request. An Infeasible where the server
    sent no reason."""


class LimitExceeded(PlannerError):
    """RESOURCE_EXHAUSTED: a limit of the server, quoted in the message."""


class DeadlineExceeded(PlannerError):
    """DEADLINE_EXCEEDED: no plan was ready in time."""


class Unavailable(PlannerError):
    """UNAVAILABLE: nobody listens at the address, the connection broke, or the planner drains. Was retried already."""


class Cancelled(PlannerError):
    """CANCELLED: by the caller."""


# Failures that are not about the request.
_LOG_TELLS_MORE = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)

_KINDS: Dict[grpc.StatusCode, Type[PlannerError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.FAILED_PRECONDITION: Infeasible,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Cancelled,
}


def _google_rpc() -> Dict[str, Any]:
    """Message classes of google.rpc by full name, in a descriptor pool of their own: other packages (googleapis-common-protos) register their version of these
    files in the default pool, and two versions of one file in a pool are an error."""
    files = descriptor_pb2.FileDescriptorSet.FromString(pkgutil.get_data("neuroshard", "google_rpc.binpb") or b"")
    return message_factory.GetMessages(files.file)


_MESSAGES = _google_rpc()


def _details(serialized: bytes) -> Dict[str, List[Any]]:
    """Details of a google.rpc.Status by full name of their type. What cannot be read is left out: it came over the network and only explains."""
    found: Dict[str, List[Any]] = {}
    try:
        entries = _MESSAGES["google.rpc.Status"].FromString(serialized).details
    except message.DecodeError:
        return found
    for entry in entries:
        name = entry.type_url.rpartition("/")[2]
        if name in _MESSAGES:
            try:
                found.setdefault(name, []).append(_MESSAGES[name].FromString(entry.value))
            except message.DecodeError:
                continue
    return found


def plainer(text: str, address: str = "") -> str:
    """What gRPC says when there is no connection, in words for whoever has to mend it: those of the command line (client/stub/channel.cc)."""
    for parts, words in (
        (("http1.x server",), "what listens there speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps"),
        (("Failed parsing HTTP/2",), "what listens there does not speak gRPC"),
        (("Connection refused",), "nothing listens there (Connection refused)"),
        (
            ("Socket closed", "Connection reset by peer", "Broken pipe"),
            "the connection was closed: the server ended"
            + ("" if address.startswith("unix:") else ", or one of the two has TLS and the other has not (credentials=), or it does not "
               "trust whoever signed the caller's certificate"),
        ),
        (
            ("not in peer certificate", "Hostname Verification"),
            "the server's certificate does not name this address (tls_server_name= says what it names)",
        ),
        (
            ("certificate verify failed", "CERTIFICATE_VERIFY_FAILED"),
            "the server's certificate has expired, or is of none of the authorities that are trusted here (credentials=)",
        ),
        (("backend unhealthy",), "no replica that answers is ready: each drains, or lacks its default model (ask one alone: models())"),
        (("DNS resolution failed", "Domain name not found", "DNS query cancelled"), "there is no host of that name (DNS resolution failed)"),
    ):
        if any(part in text for part in parts):
            return words
    return "no answer within the time that the caller allowed" if text == "Deadline Exceeded" else text


def from_status(code: grpc.StatusCode, text: Optional[str], metadata: Optional[Sequence[Tuple[str, Any]]], address: str) -> PlannerError:
    """The exception for a call's status and trailing metadata."""
    serialized = next((value for key, value in metadata or () if key == "grpc-status-details-bin"), b"")
    details = _details(serialized)
    violations = [FieldViolation(fault.field, fault.description) for entry in details.get("google.rpc.BadRequest", ()) for fault in entry.field_violations]
    reason = next((info.reason for info in details.get("google.rpc.ErrorInfo", ()) if info.reason), None)
    delays = [info.retry_delay for info in details.get("google.rpc.RetryInfo", ()) if info.HasField("retry_delay")]
    request_id = next((value for key, value in metadata or () if key == "x-request-id" and isinstance(value, str)), None)
    kind = _KINDS.get(code, PlannerError)
    if kind is Infeasible and reason in ("NO_MODEL", "MODEL_UNFIT"):
        kind = NoModel
    if not text:
        text = code.name
        if code is grpc.StatusCode.UNIMPLEMENTED:  # gRPC itself answers calls that a server does not know
            text = "what listens there does not know this call: no planner, or an older one"
    return kind(
        text if code is grpc.StatusCode.ABORTED else plainer(text, address or ""),  # of two ranks, by a worker: never gRPC's own
        code=code,
        violations=violations,
        reason=reason,
        retry_delay_s=delays[0].seconds + delays[0].nanos / 1e9 if delays else None,
        address=address,
        request_id=request_id,
    )
