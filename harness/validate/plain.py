"""Text that a file or a worker chose, made safe to print: a terminal obeys control characters and newlines."""

from typing import Annotated

from pydantic import AfterValidator


def plain(text: str) -> str:
    """The text on one line, each character that is not printable as its escape: `\\n`, `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


Plain = Annotated[str, AfterValidator(plain)]
