"""The kinds of graph values in the symbolic trace: a view of an operation, a function of one, a constant, or unknown.

The trace works at one concrete batch B and sequence S, element by element. A `View` maps each element of a graph value
to an element of its operation, so reshapes, transpositions, splits and slices are executed on the numbers of elements.

An operation on features has shape [N, F]: N = B · S positions, item by item, of F features. The context of attention
has its features head by head. An operation on pairs has shape [B, H, Q, K].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder_conformance.readers.onnx_file.graph.integers import Integers
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class WeightSource:
    """The numbers of a parameter or of a part of it.

    `elements` are the numbers of the initializer elements that they come from, as `Graph.offsets` counts them; None
    where they are computed by more than rearrangement. `integers` says how they are stored, where that is as integers.
    """

    value: Array
    elements: Array | None
    integers: Integers | None = None

    def take(self, *at: Any) -> "WeightSource":
        return self.arranged(lambda values: values[at])

    def reshape(self, *shape: int) -> "WeightSource":
        return self.arranged(lambda values: values.reshape(shape))

    def arranged(self, arrange: Callable[[Array], Array]) -> "WeightSource":
        """Values and elements, each as `arrange` moves them."""
        elements = None if self.elements is None else arrange(self.elements)
        return WeightSource(arrange(self.value), elements, self.integers)

    def key(self) -> bytes:
        return (self.value if self.elements is None else self.elements).tobytes()


@dataclass(eq=False)
class Operation:
    """A step of an encoder layer; `name` is the graph value that first shows it."""

    shape: tuple[int, ...]
    name: str


@dataclass(eq=False)
class TracedInput(Operation):
    """The input x, as features."""


@dataclass(frozen=True)
class NormForm:
    """Which norm it is, times `factor`. `error` is the relative distance from the specification's. `form`: of the
    wrong forms of a norm the one that it has, where that is known; "" for none."""

    kind: str
    epsilon: float
    gain: WeightSource | None
    shift: WeightSource | None
    evidence: str
    error: float = 0.0
    factor: float = 1.0
    form: str = ""


@dataclass(eq=False)
class TracedNorm(Operation):
    of: "View"
    form: NormForm
    width: int = 0
    """The features that it norms together, where they are fewer than all: those of a head."""
    made: str = ""
    """The graph value that is made of it first: it is named after the one that was asked for, which may be moved."""

    @property
    def features(self) -> int:
        """The number of features that it norms together."""
        return self.width or self.shape[-1]


@dataclass(eq=False)
class Linear(Operation):
    """of · weight + bias; weight [in, out]. `heads` > 1: one map that these heads share, of the features of each."""

    of: "View"
    weight: WeightSource
    bias: WeightSource | None
    heads: int = 1
    taken: Array | None = None
    """The features [in] that it takes, where it takes some of them alone."""


@dataclass(eq=False)
class Activation(Operation):
    of: "View"
    function: str
    error: float = 0.0
    """The largest distance from `function`."""
    formula: str = ""
    """What it is of each element x where it is not `function`; "" where that is not known."""


@dataclass(frozen=True)
class Gain:
    """Each feature is multiplied by its own number, [F] or those of each head, wherever it stands."""

    factors: Array
    source: WeightSource | None = None
    """The vector [F] that holds the numbers, where the file has one."""

    @property
    def is_whole(self) -> bool:
        """Whether each feature has its own number, whatever its head."""
        return self.source is not None


@dataclass(frozen=True)
class Rotation:
    """Pairs of features are turned by an angle that grows with the position: rotary positions (RoPE).

    Pair k turns by scale · theta^(-2k / size) radians a position; the first row is at position `first`.
    """

    pairing: str
    """`halves`, `interleaved`, or how far apart the two features of a pair are."""
    size: int
    """The features that are turned, of `width` in a head."""
    width: int
    theta: float
    scale: float
    first: float

    @property
    def is_plain(self) -> bool:
        """Whether the layer language has it (E-22): from position 0, one radian a position at the first pair."""
        paired = self.pairing in ("halves", "interleaved")
        return paired and self.leads and abs(self.first) < 1e-3 and abs(self.scale - 1) < 1e-3

    leads: bool = True
    """Whether the features that are turned are the first ones of a head."""


@dataclass(frozen=True)
class OtherMap:
    """A linear map within a row that is neither; `text` says what it is."""

    text: str


class OtherRotation(OtherMap):
    """A rotation whose angles are not those of rotary positions as they were published."""


@dataclass(eq=False)
class RowMap(Operation):
    """A linear map of the features of each row by numbers of the file's own, the same in every item and head."""

    of: "View"
    form: Gain | Rotation | OtherMap


@dataclass(eq=False)
class Weighed(Operation):
    """An operation times a number, in a residual sum."""

    of: "View"
    factor: float


@dataclass(eq=False)
class Gate(Operation):
    """The product of two operations, element by element; `*_columns` [F]: the features of each that it takes."""

    one: "View"
    other: "View"
    one_columns: Array
    other_columns: Array

    @property
    def sides(self) -> tuple[tuple["View", Array], tuple["View", Array]]:
        return (self.one, self.one_columns), (self.other, self.other_columns)


@dataclass(eq=False)
class Appended(Operation):
    """Keys or values, and one of each head that no position has (E-44): [B · (S + 1), F], item by item. `vector` [F]:
    its numbers. `leads`: whether it stands before those of the positions, and not behind them."""

    of: "View"
    vector: WeightSource
    leads: bool


@dataclass(eq=False)
class Scores(Operation):
    """The product of `first` and `second`; `*_heads` [H, d] are the features of each head in that side's operation."""

    first: "View"
    second: "View"
    first_heads: Array
    second_heads: Array
    fused_in: str = ""
    """The Attention node that computes scores, weights and context in one; "" where each is a node."""

    @property
    def appended(self) -> Appended | None:
        """The keys, where one of them is no position's."""
        sides = self.first.operation, self.second.operation
        return next((side for side in sides if isinstance(side, Appended)), None)


@dataclass(eq=False)
class Weights(Operation):
    of: Scores
    scale: float
    query_first: bool
    constant: Array | None
    """A constant that the file adds to the scores, [B, H, Q, K], of the positions' keys."""
    scaled: str
    """The graph value that is the scores, or a query's or a key's features, times a number."""
    cap: float = 0.0
    """Scores become cap · tanh(score / cap) after the scale and what prefers positions; 0: they are not capped."""
    added: tuple[str, ...] = ()
    """The graph values that are added to the scores and do not depend on x, where any of them prefers positions."""
    mask: str = ""
    """The mask of an Attention node; "" for none, and where each step is a node."""
    near: tuple[int, int] | None = None
    """The keys before and after a query that an Attention node lets it see; −1 for all of them."""


@dataclass(eq=False)
class Context(Operation):
    of: Weights
    value: "View"
    value_heads: Array
    """[H, d]: the features of each head in the operation of `value`."""


@dataclass(eq=False)
class Sum(Operation):
    one: "View"
    other: "View"

    @property
    def sides(self) -> tuple[Operation, Operation]:
        return self.one.operation, self.other.operation


@dataclass(frozen=True)
class View:
    """`index`, of the value's shape, numbers the elements of the operation; `factor` multiplies them."""

    operation: Operation
    index: Array
    factor: float = 1.0


def whole(operation: Operation) -> View:
    """All of an operation."""
    return View(operation, np.arange(np.prod(operation.shape)).reshape(operation.shape))


@dataclass(frozen=True)
class Expression:
    """A function of one operation, not recognised yet: elementwise, or of whole rows (`rowwise`).

    `index` is as a view's; where `reduced`, each element belongs to a row as a whole, and `index` is the row's number.
    Rows run along `axis`: -1, or also -2 in an operation on pairs. `width` is as in a norm.
    """

    operation: Operation
    index: Array
    rowwise: bool
    reduced: bool
    axis: int = -1
    width: int = 0


@dataclass(frozen=True)
class Mixture:
    """A function of one operation that takes several of its elements together, not recognised yet."""

    operation: Operation


@dataclass(frozen=True)
class Constant:
    """Does not depend on x: an initializer, a size, or a value computed from masks that hide nothing."""

    value: Array


@dataclass(frozen=True)
class Unknown:
    """`node` is the first one that the trace does not support, and `reason` says why; `feature` what that is."""

    reason: str
    node: str
    feature: Feature | None = None


Value = View | Expression | Mixture | Constant | Unknown


class UnsupportedPattern(Exception):
    """A node or an operation that no encoder layer of the specification has in this place. `feature` is what other
    layers have there, where that is known; `others` are such places that were found beside it. `arranged`: the number
    of the node's input whose rows are not those that it needs: what arranged them is wrong, and not the node."""

    def __init__(self, reason: str, feature: Feature | None = None, *, arranged: int | None = None) -> None:
        super().__init__(reason)
        self.feature = feature
        self.others: list[UnsupportedPattern] = []
        self.arranged = arranged


def rows_of(operation: Operation, index: Array, axis: int, width: int = 0) -> Array:
    """The number of the row along `axis` that each element is in, in one shape with `index`."""
    if axis == -1:
        return index // (width or operation.shape[-1])
    Q, K = operation.shape[-2:]
    rows: Array = index // (Q * K) * K + index % K
    return rows
