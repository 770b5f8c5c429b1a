"""Logs by the words of the C++ servers (common/README.md): one line an event on stderr, key=value or a JSON object, in ASCII."""

from __future__ import annotations

import datetime
import json
import logging
import math
import re
import sys
import time
from typing import Any, Callable, Dict, Optional, TextIO

LEVELS = ("debug", "info", "warn", "error", "off")
FORMATS = ("text", "json")
_WRITTEN = {"warn": "warning"}
_MAX_VALUE_BYTES = 2000
_BARE = re.compile(r'[!#-<>-\[\]-~]+')


class Log:
    """level: the least severe that is written. Thread-safe: a line is one write."""

    def __init__(self, level: str = "info", form: str = "text", out: Optional[TextIO] = None,
                 now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.timezone.utc)) -> None:
        self._least, self._json, self._out, self._now = LEVELS.index(level), form == "json", out or sys.stderr, now

    def writes(self, level: str) -> bool:
        return LEVELS.index(level) >= self._least and level != "off"

    def debug(self, event: str, **fields: Any) -> None:
        self.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self.write("info", event, fields)

    def warn(self, event: str, **fields: Any) -> None:
        self.write("warn", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self.write("error", event, fields)

    def audit(self, event: str, **fields: Any) -> None:
        """Who did what to what others share: written whatever the level, but for "off"."""
        if LEVELS[self._least] != "off":
            self._line("info", event, {**fields, "audit": True})

    def write(self, level: str, event: str, fields: Dict[str, Any]) -> None:
        if self.writes(level):
            self._line(level, event, fields)

    def _line(self, level: str, event: str, fields: Dict[str, Any]) -> None:
        at = self._now().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        level = _WRITTEN.get(level, level)
        if self._json:
            line = json.dumps({"time": at, "level": level, "event": event, **{key: _json_value(value) for key, value in fields.items()}},
                              separators=(",", ":"))
        else:
            line = " ".join([at, level, event, *(f"{key}={_word(value)}" for key, value in fields.items())])
        self._out.write(line + "\n")
        self._out.flush()


class Others(logging.Handler):
    """What libraries say by `logging`, as the event `library`."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.write("error" if record.levelno >= logging.ERROR else "warn", "library", {"name": record.name, "message": self.format(record)})


class FailureLines:
    """At most so many lines a second of what callers can cause without end."""

    def __init__(self, a_second: int = 100, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = a_second, clock
        self._since, self._logged, self._not_logged = clock(), 0, 0

    def admit(self) -> Optional[Dict[str, int]]:
        """None: do not write. Else a field for the line: how many were not written before it, if any."""
        now = self._clock()
        if now - self._since >= 1:
            self._since, self._logged = now, 0
        if self._logged == self._most:
            self._not_logged += 1
            return None
        self._logged += 1
        not_logged, self._not_logged = self._not_logged, 0
        return {"not_logged": not_logged} if not_logged else {}


def _json_value(value: Any) -> Any:
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    shown = text.encode("utf-8", "replace")
    return text if len(shown) <= _MAX_VALUE_BYTES else shown[:_MAX_VALUE_BYTES].decode("utf-8", "ignore") + "..."


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = str(value).encode("utf-8", "replace")
    cut = len(shown) > _MAX_VALUE_BYTES
    text = shown[:_MAX_VALUE_BYTES].decode("latin-1")  # a character a byte
    if not cut and _BARE.fullmatch(text):
        return text
    escaped = "".join(
        "\\" + c if c in '"\\' else "\\n" if c == "\n" else c if " " <= c <= "~" else f"\\x{ord(c):02x}" for c in text)
    return f'"{escaped}{"..." if cut else ""}"'
