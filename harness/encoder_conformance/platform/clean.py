"""Text that others wrote, made fit to print and to store: valid Unicode, one line, no control characters, bounded.

An adapter's answers pass through here where they enter (`worker/process.py`), and manifests where they are read. What
comes after may store and print any text. Characters are replaced and never dropped, so that no name turns into another.
"""

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 4_000
"""Characters of one text. An error with its cause fits; a tensor that was printed into one does not."""
_DEEPEST = 8
"""Levels of mappings and lists within each other."""
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ADVICE = re.compile(
    r"(This file can still be loaded|Re-running `?torch\.load|[^.]*\bweights_only\b[^.]*False).*", re.DOTALL
)
_NO_ADVICE = "[advice to load the file without protection is left out: it may run any program]"
"""PyTorch's error for a file that is more than tensors says that `weights_only=False` will likely succeed. It does, by
running what the file says."""


def line(text: str, longest: int = LONGEST) -> str:
    """The text in one line of printable characters. What is cut off is counted.

    Control characters (a terminal obeys them), lone surrogates (no file can hold them) and characters that turn the
    direction of writing become U+FFFD; line breaks become spaces. PyTorch's advice to open a dangerous file is cut off.
    """
    if len(text) > longest:
        count = f"… ({len(text):,} characters)"
        text = text[: longest - len(count)] + count
    if "weights_only" in text:
        text = _ADVICE.sub(_NO_ADVICE, text)
    if text.isprintable():
        return text
    joined = _BREAKS.sub(" ", text.strip())
    return "".join(each if each.isprintable() else " " if each.isspace() else _REPLACEMENT for each in joined)


def broken(line: str, width: int) -> str:
    """A line in as many as fit `width` columns, broken between words: the further ones two columns further in."""
    if len(line) <= width:
        return line
    rest = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)


def first_names(names: Sequence[str], most: int) -> str:
    """The first few names, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def cleaned(value: Any, depth: int = _DEEPEST) -> Any:
    """A value of JSON with every text as a `line`. Levels deeper than `depth`, and numbers larger than any float, are
    texts that say so."""
    match value:
        case str():
            return line(value)
        case dict() | list() if not depth:
            return "… (nested too deep)"
        case dict():
            return {line(str(key)): cleaned(each, depth - 1) for key, each in value.items()}
        case list():
            return [cleaned(each, depth - 1) for each in value]
        case int() if abs(value) > sys.float_info.max:
            return "… (a number of more than 308 digits)"
        case _:
            return value


def within(entries: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The first entries, as many as fit into `most` characters of JSON, and under "…" the number of the others."""
    kept = dict[str, Any]()
    for key, value in entries.items():
        most -= len(json.dumps({key: value}, default=str))
        if most < 0:
            return {**kept, "…": f"{len(entries) - len(kept)} more"}
        kept[key] = value
    return kept
