"""The last few things that were made, kept for when one of them is asked for again."""

import json
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """The last `kept` things that were made, by what they were made for. Threads may share it.

    A run asks the layers in turns, and making something for one may take seconds: a model that is exported, a session
    that is opened, the noise of a wrong layer. An adapter keeps what it made for a layer, and no parameters: `build`
    puts those of each request into it.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self._made: dict[str, Made] = {}
        self._one_at_a_time = threading.Lock()

    def get(self, key: Any, make: Callable[[], Made]) -> Made:
        """What was made for this key, which can be written as JSON; made now if it was not, or is no longer kept. A
        second thread that asks for the same waits for what the first has begun."""
        text = json.dumps(key, sort_keys=True)
        with self._one_at_a_time:
            made = self._made.pop(text, None)
            if made is None:
                made = make()
            self._made[text] = made  # the last one used is the last one to go
            if len(self._made) > self.kept:
                del self._made[next(iter(self._made))]
            return made
