"""The word that somebody who misspelt it, or knows it by another project's name, meant, as common/base/similar_word.h finds it."""

from __future__ import annotations

import ast
import difflib
import functools
import pkgutil
import re
from typing import List, Sequence, Tuple

_LONGEST = 64


@functools.lru_cache(maxsize=None)
def _synonyms() -> List[Tuple[str, str, str]]:
    """proto/synonyms.inc: (as it is written, meaning, what else differs)."""
    text = (pkgutil.get_data("neuroshard", "synonyms.inc") or b"").decode()
    return [ast.literal_eval(f"({line.strip().strip('{},')})") for line in text.splitlines() if line.startswith("{")]


def _plain(text: str) -> str:
    """Without case and signs, and of a path its end ("torch.float32", "ShardingType.COLUMN_WISE")."""
    return re.sub("[^a-z0-9]", "", text.rpartition(".")[2].lower())


def _parts(text: str) -> List[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _meaning(text: str, words: Sequence[str]) -> Tuple[str, str]:
    plain = _plain(text)
    if not plain or len(text) > _LONGEST:
        return "", ""
    for word in words:
        if _plain(word) == plain:
            return word, ""
    for written, meant, difference in _synonyms():
        if _plain(written) == plain and meant in words:
            return meant, difference
    near = difflib.get_close_matches(text.lower(), words, n=1, cutoff=0.75)
    if near:
        return near[0], ""
    given = _parts(text)
    for word in words:
        parts = _parts(word)
        if len(given) <= len(parts) <= 2 * len(given) and given in (parts[: len(given)], parts[-len(given) :]):
            return word, ""
    return "", ""


def did_you_mean(text: str, words: Sequence[str]) -> str:
    """The end of an error message: "; did you mean plan?", or empty."""
    word, difference = _meaning(text, words)
    return f"; did you mean {word}{f' ({difference})' if difference else ''}?" if word else ""
