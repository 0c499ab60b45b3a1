"""The masks of a run, as a Python adapter is given them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Masks:
    """Each is None or bool, true where a query may attend to a key (clauses M-1, M-2, M-5).

    `padding` is [B, 1, 1, S], the same for every head and query; `attention` [B or 1, H or 1, S, S], the query before
    the key. A framework that takes both takes them as they are; for one that takes a single mask there is `joined`.
    """

    padding: Array | None
    attention: Array | None

    def joined(self) -> Array | None:
        """[B or 1, H or 1, S or 1, S], true where every mask that there is is true; None if there is none."""
        if self.padding is None or self.attention is None:
            return self.attention if self.padding is None else self.padding
        return self.padding & self.attention
