"""HTML in which text is escaped unless it is Markup: what files say is never taken for markup."""

import html
import re
from typing import Union

# Control characters but tab and newline, lone surrogates, and what changes the direction of the text around it.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already."""


Child = Union[str, int, None, list, tuple]


def printable(text: object, max_chars: int = 0) -> str:
    """`text` without what a reader cannot see; cut in the middle if it is longer than `max_chars` (0: any length)."""
    shown = _UNPRINTABLE.sub("\ufffd", str(text))
    if max_chars and len(shown) > max_chars:
        half = (max_chars - 1) // 2
        shown = f"{shown[:half]}…{shown[len(shown) - half:]}"
    return shown


def escaped(child: Child) -> Markup:
    """Markup as it is, other text escaped, lists joined, None as nothing."""
    if isinstance(child, Markup):
        return child
    if isinstance(child, (list, tuple)):
        return Markup("".join(escaped(one) for one in child))
    return Markup("" if child is None else html.escape(printable(child), quote=True))


def tag(element: str, /, *children: Child, **attributes: object) -> Markup:
    """An element. Attributes: `class_` for class, `_` for "-" otherwise; None leaves one out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(printable(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in ("meta", "path", "rect", "line", "circle"):
        return Markup(f"<{element}{shown}/>")
    return Markup(f"<{element}{shown}>{escaped(children)}</{element}>")
