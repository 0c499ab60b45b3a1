"""What a value of the graph is, for the flow: a view of something named, or on the way to becoming it.

Everything is worked out at one concrete batch B and sequence S, element by element: a `View` says of each element of a
graph value which element of its root it is, so that no reshaping, transposition, split or slice has to be understood,
only carried out. A root of features is [N, F], N = B · S positions (item-major) of F features; the context of
attention counts its features head by head. A root of pairs is [B, H, Q, K].
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Source:
    """Numbers that are a parameter, or part of one: `elements` numbers each by the initializers' elements counted
    through, None where they are computed from them by more than rearrangement."""

    value: Array
    elements: Array | None

    def take(self, *at: Any) -> "Source":
        return Source(self.value[at], None if self.elements is None else self.elements[at])

    def key(self) -> bytes:
        held = self.value if self.elements is None else self.elements
        return held.tobytes()


@dataclass(eq=False)
class Root:
    """Something named. `tensors` are the graph values that show it, with the node that made each."""

    shape: tuple[int, ...]
    name: str
    """The graph value that it was first seen at."""


@dataclass(eq=False)
class Given(Root):
    """The input x, as features."""


@dataclass(eq=False)
class Norm(Root):
    of: "View"
    kind: str
    epsilon: float
    gain: Source | None
    shift: Source | None
    evidence: str
    off: float = 0.0
    """By how much, relatively, it is not the specification's norm."""


@dataclass(eq=False)
class Linear(Root):
    """of · weight + bias; weight [in, out]. `shared` by the heads: one map of the features of each head."""

    of: "View"
    weight: Source
    bias: Source | None
    heads: int = 1


@dataclass(eq=False)
class Activation(Root):
    of: "View"
    function: str
    off: float = 0.0


@dataclass(eq=False)
class Scores(Root):
    """Pairs. `first` and `second` are the sides of the product, [H, d] the features of each head in its root."""

    first: "View"
    second: "View"
    first_heads: Array
    second_heads: Array
    attention: dict[str, Any] = field(default_factory=dict)
    """What an Attention operator says of itself: its node, scale, is_causal."""


@dataclass(eq=False)
class Weights(Root):
    of: Scores
    scale: float
    query_first: bool
    constant: Array | None
    """What is added to the scores in the file itself, [B, H, Q, K]; None for nothing."""


@dataclass(eq=False)
class Context(Root):
    of: Weights
    value: "View"
    value_heads: Array
    """[H, d], the features of value."""


@dataclass(eq=False)
class Sum(Root):
    one: "View"
    other: "View"


@dataclass(frozen=True)
class View:
    """`index` has the value's shape: the flat element of the root. `factor` is what the root is multiplied by."""

    root: Root
    index: Array
    factor: float = 1.0


@dataclass(frozen=True)
class Local:
    """A function of one root, each element depending on one element of it, or (`rowwise`) on one row.

    `index` is as a view's; where `reduced`, each element belongs to a row as a whole, and `index` is the row's number.
    `axis` is the one that rows run along: -1, and of pairs also -2.
    """

    root: Root
    index: Array
    rowwise: bool
    reduced: bool
    axis: int = -1


@dataclass(frozen=True)
class Fixed:
    """Does not depend on x: a constant, a size, or what becomes of a mask that hides nothing."""

    value: Array


@dataclass(frozen=True)
class Unknown:
    """`reason` says what was not understood, at the node where it began."""

    reason: str
    node: str


Value = View | Local | Fixed | Unknown


class NotUnderstood(Exception):
    """What a node does with x has no place in an encoder layer as the specification knows it."""


def broadcast_index(index: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(index, shape)


def rows_of(root: Root, index: Array, axis: int) -> Array:
    """The number of the row along `axis` that each element is in."""
    if axis == -1:
        return index // root.shape[-1]
    Q, K = root.shape[-2:]
    return index // (Q * K) * K + index % K
