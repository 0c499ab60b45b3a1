"""A mapping whose values are converted when they are asked for, so that all of them are never held at once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


class Converted(Mapping[str, Made], Generic[Given, Made]):
    """Each value is made anew each time."""

    def __init__(self, given: Mapping[str, Given], convert: Callable[[Given], Made]) -> None:
        self._given, self._convert = given, convert

    def __getitem__(self, name: str) -> Made:
        return self._convert(self._given[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        return name in self._given  # and converts nothing
