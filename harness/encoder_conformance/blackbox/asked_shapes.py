"""What is asked of a whole file: a size, what is hidden, and how large its values are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from encoder_conformance.spec.axes import Bools

Kind = Literal["ordinary", "padded", "out of range", "own"]
"""Of inputs: as they are drawn; with some positions hidden; such as hardly anybody gives; and the user's own."""


@dataclass(frozen=True)
class AskedShape:
    """What is asked: a size, the positions [B, S] that are hidden, factor and offset of floating-point values.
    `by_query`: masks of each query, [B, S, S], hide other keys from each."""

    name: str
    batch: int
    sequence: int
    hidden: Bools | None = None
    scale: float = 1.0
    by_query: bool = False
    offset: float = 0.0
    others: Mapping[str, int] = field(default_factory=dict)
    """Symbol → the size that it has instead: what stands beside x may be of another length."""

    @property
    def is_padded(self) -> bool:
        return self.hidden is not None or self.by_query

    @property
    def kind(self) -> Kind:
        """One position by itself, and an item of padding alone, are no inputs of any user."""
        if (
            self.scale != 1.0
            or self.offset
            or self.sequence == 1
            or (self.hidden is not None and self.hidden.all(-1).any())
        ):
            return "out of range"
        return "padded" if self.is_padded else "ordinary"

    def size(self, role: str, symbol: str | None) -> int:
        """Of a free axis."""
        return self.others.get(symbol or "", self.batch if role == "batch" else self.sequence)
