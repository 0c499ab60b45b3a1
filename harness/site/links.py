"""Links out of a page: to a cell of the matrix, to the web, and to nothing that runs."""

from collections.abc import Iterable
from urllib.parse import urlencode


def web_links(links: Iterable[str]) -> list[str]:
    """Those that a browser only opens. A `javascript:` link would run."""
    return [link for link in links if link.startswith(("https://", "http://"))]


def anchor(**values: str) -> str:
    """The part of an address after #, as static/data.js reads it."""
    return urlencode(values)
