"""What a call is, whoever makes it: the address, the channel, the request, the deadline, the retries. Shared by the clients for threads and for asyncio."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import random
import re
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import grpc

from neuroshard import v1
from neuroshard.errors import Cancelled, PlannerError, Unavailable, from_status
from neuroshard.mapping import as_message
from neuroshard_programs import NotStarted, program

if TYPE_CHECKING:
    from neuroshard_programs.embedded import EmbeddedPlanner

logger: logging.Logger = logging.getLogger("neuroshard")

ShardPlanRequestLike = Union[v1.ShardPlanRequest, Mapping[str, Any]]
# A response's plan, e.g. of `PlannerClient.plan`, is a plan too.
PlanLike = Union[v1.Plan, v1.ShardPlanResponse, Mapping[str, Any]]
PredictComputeRequestLike = Union[v1.PredictComputeRequest, Mapping[str, Any]]

DEFAULT_ADDRESS = "127.0.0.1:50051"
UNIX = "unix:/"
ADDRESS_VARIABLE = "NEUROSHARD_PLANNER"
DEFAULT_TIMEOUT_S = 600.0
DEFAULT_RETRIES = 3
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 1.0

# Plans and requests of a hundred thousand tables are tens of MiB.
_MAX_MESSAGE_BYTES = 64 << 20
CHANNEL_OPTIONS: List[Tuple[str, int]] = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    # A planner that was restarted on its address is found again within about a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # What one attempt to connect may take; gRPC has no other argument for it.
    ("grpc.min_reconnect_backoff_ms", 10_000),
]


_SERVICE = "neuroshard.v1.PlannerService"
# Connections are let go when nothing was asked for so long, before the planner does so (round_robin would renew those at once). The health of a
# replica is a call as well.
_IDLE_MS = 240_000
# For what the first call waits until it is known which replicas can be used.
_SETTLE_S = 1.0
_SETTLED = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
# How often channels that connect are looked at.
LOOK_S = 0.005


Target = Tuple[str, List[Tuple[str, Any]]]


class Replicas:
    """The planner, or the replicas of a list, and whose turn it is. Thread-safe; how a channel is doing is known to who has it.

    Every address of a list has a channel of its own: gRPC checks the certificates of all addresses of one channel against one name. Every address that
    a name resolves to takes calls in turn (round_robin). Of a list, only those take calls whose health (grpc.health.v1) is good; what one name stands
    for is kept up to date by others, and may be a proxy, whose health would be one replica's. What a replica did not answer is repeated by `Attempts` alone.
    A Unix socket has one server: after the end of a connection the next call makes another, at once.
    """

    def __init__(self, address: str, server_name: Optional[str] = None, clock: Callable[[], float] = time.monotonic):
        self.addresses = address.split(",")
        self._list = address
        self._server_name = server_name
        self._clock = clock
        self._lock = threading.Lock()
        self._next = random.randrange(len(self.addresses))
        self._told: Set[int] = set()
        self._were_ready: Set[int] = set()  # these may connect again without a word
        self._settles_at: Optional[float] = None

    def targets(self) -> List[Target]:
        """gRPC's target and options of each channel."""
        if self._list.startswith(UNIX):
            return [(self._list, [*CHANNEL_OPTIONS])]
        config: Dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
        if len(self.addresses) > 1:
            config["healthCheckConfig"] = {"serviceName": _SERVICE}
        options: List[Tuple[str, Any]] = [*CHANNEL_OPTIONS, ("grpc.service_config", json.dumps(config)), ("grpc.client_idle_timeout_ms", _IDLE_MS)]
        if self._server_name:
            options.append(("grpc.ssl_target_name_override", self._server_name))
        return [(address, options) for address in self.addresses]

    def turn(self, states: Sequence[Optional[grpc.ChannelConnectivity]], attempts: Attempts) -> Optional[int]:
        """Which channel the next attempt is for: those that are ready take turns; before them, once for each, those that cannot be used, since a call to one
        fails at once with why. None: ask again in LOOK_S; some connect, and none is ready, or it is not a second yet since the first call."""
        if len(states) == 1:
            return 0
        usable = [state is grpc.ChannelConnectivity.READY for state in states]
        connecting = [state not in _SETTLED for state in states]
        with self._lock:
            if self._settles_at is None:
                self._settles_at = self._clock() + _SETTLE_S
            is_late = self._clock() >= self._settles_at
            if any(connecting) and not (is_late and any(usable)) and attempts.remaining_s() > 0:
                return None
            for replica, state in enumerate(states):
                if usable[replica]:
                    self._were_ready.add(replica)
                elif connecting[replica] and replica not in self._told | self._were_ready:
                    self._tell(replica, f"planner at {self.addresses[replica]}: no connection after {_SETTLE_S:g} s")
                elif not connecting[replica] and replica not in self._told:
                    attempts.on_unavailable = functools.partial(self._say, replica)
                    return replica
            order = [(self._next + i) % len(states) for i in range(len(states))]
            replica = next((i for i in order if usable[i]), order[0])
            self._next = replica + 1
            return replica

    def _say(self, replica: int, error: PlannerError) -> None:
        with self._lock:
            self._tell(replica, f"planner at {self.addresses[replica]}: {error.message}")

    def _tell(self, replica: int, why: str) -> None:
        if replica not in self._told:
            self._told.add(replica)
            logger.warning("%s; calls go to the others of %s", why, self._list)


def embedded_planner(address: Optional[str], credentials: Optional[grpc.ChannelCredentials]) -> Optional[EmbeddedPlanner]:
    """The planner of this package, where no service is stated, and there is one."""
    if address is not None or credentials is not None or os.environ.get(ADDRESS_VARIABLE) or program("neuroshard-planner") is None:
        return None
    from neuroshard_programs.embedded import EmbeddedPlanner  # Unix alone

    try:
        return EmbeddedPlanner()
    except NotStarted as fault:
        raise _not_started(fault) from None


def _not_started(fault: NotStarted) -> PlannerError:
    return Unavailable(f"the embedded planner: {fault}", code=grpc.StatusCode.UNAVAILABLE)


def planner_address(address: Optional[str]) -> str:
    """`address`, else what the environment says, else where a planner listens unless told otherwise."""
    origin = "address"
    if address is None:
        origin, address = ADDRESS_VARIABLE, os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    if not isinstance(address, str):
        raise TypeError(f"address: must be a text such as 'planner:50051', got {type(address).__name__}")
    fault = _address_fault(address)
    if fault:
        raise ValueError(f"{origin}: {fault}")
    return address


def _address_fault(address: str) -> str:
    """As the command line checks it (client/cli/option_check.cc): gRPC takes a missing port for 443, and any text for a name."""
    if address.startswith(UNIX):
        return ""
    for part in address.split(","):
        host, _, port = part.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not host or re.search(r"\s", part) or (":" in host and not bracketed) or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            return f'must be HOST:PORT, got "{part}"'
    return ""


def checked_credentials(credentials: Optional[grpc.ChannelCredentials]) -> Optional[grpc.ChannelCredentials]:
    if credentials is not None and not isinstance(credentials, grpc.ChannelCredentials):
        raise TypeError(f"credentials: must be grpc.ChannelCredentials, e.g. of grpc.ssl_channel_credentials(), got {type(credentials).__name__}")
    return credentials


def checked_server_name(name: Optional[str], credentials: Optional[grpc.ChannelCredentials]) -> Optional[str]:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"tls_server_name: must be a text such as 'planner.example', got {type(name).__name__}")
    if name == "":
        raise ValueError("tls_server_name: must not be empty: leave it out for the address that is called")
    if name and credentials is None:
        raise ValueError("tls_server_name: is of certificates, which need credentials")
    return name


def checked_timeout(timeout_s: float) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise TypeError(f"timeout_s: must be a number of seconds, got {type(timeout_s).__name__}")
    if not 0 < timeout_s < math.inf:
        raise ValueError(f"timeout_s: must be above 0 and finite, got {timeout_s}")
    return float(timeout_s)


def checked_retries(retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise TypeError(f"retries: must be an integer, got {type(retries).__name__}")
    if retries < 0:
        raise ValueError(f"retries: must not be negative, got {retries}")
    return retries


def shard_plan_request(request: ShardPlanRequestLike) -> v1.ShardPlanRequest:
    return as_message(v1.ShardPlanRequest, request)


def predict_compute_request(request: PredictComputeRequestLike) -> v1.PredictComputeRequest:
    return as_message(v1.PredictComputeRequest, request)


def evaluate_request(request: ShardPlanRequestLike, plan: PlanLike) -> v1.EvaluatePlanRequest:
    if isinstance(plan, v1.ShardPlanResponse):
        plan = plan.plan
    return v1.EvaluatePlanRequest(request=as_message(v1.ShardPlanRequest, request, "request"), plan=as_message(v1.Plan, plan, "plan"))


class Attempts:
    """The attempts of one call. Calls are repeatable (plans are functions of the request), so UNAVAILABLE is retried, and so is whatever the
    server asks to be tried again (google.rpc.RetryInfo, as an overloaded planner does), within the call's deadline.

    The n-th wait is uniform in [c/2, c] with c = min(0.1 s * 2^n, 1 s), so that clients that failed together do not come back together; it comes on top of
    what the server asks for. Not thread-safe.
    """

    def __init__(
        self,
        timeout_s: float,
        retries: int,
        embedded: Optional[EmbeddedPlanner] = None,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ):
        self._embedded = embedded
        self._clock = clock
        self._uniform = uniform
        self._deadline = clock() + timeout_s
        self._left = retries
        self._ceiling_s = FIRST_BACKOFF_S
        # Told why this attempt found nobody; others are there for the next one, at once.
        self.on_unavailable: Optional[Callable[[PlannerError], None]] = None

    def begin(self) -> float:
        """Before each attempt; the embedded planner is there then, started anew if somebody killed it. What is left for the attempt."""
        if self._embedded is not None:
            try:
                self._embedded.ensure()
            except NotStarted as fault:
                raise _not_started(fault) from None
        return self.remaining_s()

    def remaining_s(self) -> float:
        """What is left for the next attempt; not below 0, which gRPC answers with DEADLINE_EXCEEDED."""
        return max(0.0, self._deadline - self._clock())

    def wait_s(self, error: PlannerError) -> float:
        """How long to wait before the next attempt. Raises `error` where there is none."""
        told, self.on_unavailable = self.on_unavailable, None
        if told is not None and error.code is grpc.StatusCode.UNAVAILABLE:
            told(error)
            return 0.0
        may_help = error.code is grpc.StatusCode.UNAVAILABLE or error.retry_delay_s is not None
        if not may_help or self._left <= 0:
            raise error
        self._left -= 1
        wait = self._uniform(self._ceiling_s / 2, self._ceiling_s) + (error.retry_delay_s or 0.0)
        self._ceiling_s = min(2 * self._ceiling_s, LONGEST_BACKOFF_S)
        if wait >= self.remaining_s():
            raise error
        return wait


def planner_error(fault: Any, address: str) -> PlannerError:
    """`fault`: a grpc.RpcError of either kind of client; both have these methods."""
    code, text = fault.code(), fault.details()
    # gRPC's servers answer CANCELLED, without a word, to calls that arrive while they shut down; whoever cancels says why (proto/README.md).
    if code is grpc.StatusCode.CANCELLED and text in (None, "", "CANCELLED"):
        code, text = grpc.StatusCode.UNAVAILABLE, "the server ended the call, as one that stops does"
    if address == DEFAULT_ADDRESS and "Connection refused" in (text or "") and program("neuroshard-planner") is None:
        text = "nothing listens there, and this package has no planner of its own: the wheel for x86-64 Linux brings one"
    return from_status(code, text, fault.trailing_metadata(), address)


def unfinished(address: str) -> PlannerError:
    return PlannerError("the stream ended without a final plan", code=grpc.StatusCode.INTERNAL, address=address)


def cancelled(address: str) -> PlannerError:
    return Cancelled("cancelled by the caller", code=grpc.StatusCode.CANCELLED, address=address)
