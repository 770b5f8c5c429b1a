"""Fault: an error with its gRPC status code and, for bad input, the path of every faulty field. gRPC is imported where a fault is told to a caller:
what measures runs without it (bench/gpu/fbgemm_tbe.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, NamedTuple, Optional, Tuple

if TYPE_CHECKING:
    import grpc

# Together below the 8 KiB that gRPC allows trailers: the message is percent-encoded, the details are base64 and repeat it.
_MAX_KEPT, _MAX_MESSAGE_BYTES, _MAX_DETAILS_BYTES = 100, 1000, 2500


class Violation(NamedTuple):
    """One fault of an input: its path, and what is wrong."""

    field: str
    description: str


class Fault(Exception):
    """code: the name of a gRPC status code. Travels between processes (pickle)."""

    def __init__(self, code: str, message: str, violations: Tuple[Violation, ...] = ()) -> None:
        super().__init__(code, message, violations)
        self.code, self.message, self.violations = code, message, tuple(violations)

    @staticmethod
    def invalid(field: str, description: str) -> Fault:
        violations = Violations()
        violations.add(field, description)
        return violations.fault()

    @staticmethod
    def raise_all(faults: List[Fault]) -> None:
        """One fault with all violations; none when there are none."""
        violations = Violations()
        for fault in faults:
            for violation in fault.violations:
                violations.add(*violation)
        violations.raise_if_any()

    def below(self, prefix: str) -> Fault:
        """The same with its field paths below `prefix` ("sample.")."""
        if not self.violations:
            return self
        violations = Violations()
        for violation in self.violations:
            violations.add(prefix + violation.field, violation.description)
        return violations.fault()

    @property
    def breaks_group(self) -> bool:
        """Whether the ranks of a group may be out of step: these codes are only raised where all ranks agree."""
        return self.code not in ("CANCELLED", "INVALID_ARGUMENT", "FAILED_PRECONDITION")

    @property
    def status_code(self) -> grpc.StatusCode:
        import grpc

        return grpc.StatusCode[self.code]

    def __str__(self) -> str:
        return _cut(self.message)

    def trailers(self) -> Tuple[Tuple[str, bytes], ...]:
        """The violations as google.rpc.BadRequest, where gRPC's clients look for them."""
        if not self.violations:
            return ()
        from neuroshard.errors import _MESSAGES as GOOGLE_RPC

        bad_request, size = GOOGLE_RPC["google.rpc.BadRequest"](), 0
        for i, (field, description) in enumerate(self.violations):
            field, description = field[:200], description[:400]
            size += len(field.encode()) + len(description.encode()) + 8
            if size > _MAX_DETAILS_BYTES:
                bad_request.field_violations.add(field="...", description=f"and {len(self.violations) - i} more")
                break
            bad_request.field_violations.add(field=field, description=description)
        status = GOOGLE_RPC["google.rpc.Status"](code=self.status_code.value[0], message=str(self))
        status.details.add(type_url="type.googleapis.com/google.rpc.BadRequest", value=bad_request.SerializeToString())
        return (("grpc-status-details-bin", status.SerializeToString()),)


def _cut(message: str) -> str:
    encoded = message.encode("utf-8", "replace")
    return message if len(encoded) <= _MAX_MESSAGE_BYTES else encoded[: _MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "..."


class Violations:
    """All faults of one input."""

    def __init__(self) -> None:
        self._kept: List[Violation] = []
        self._count = 0

    def add(self, field: str, description: str) -> None:
        self._count += 1
        if len(self._kept) < _MAX_KEPT:
            self._kept.append(Violation(field, description))

    def __len__(self) -> int:
        return self._count

    def fault(self) -> Optional[Fault]:
        """None when there is no violation."""
        if not self._count:
            return None
        message = "; ".join(f"{field}: {description}" for field, description in self._kept)
        if self._count > len(self._kept):
            message += f"; and {self._count - len(self._kept)} more"
        return Fault("INVALID_ARGUMENT", message, tuple(self._kept))

    def raise_if_any(self) -> None:
        fault = self.fault()
        if fault is not None:
            raise fault
