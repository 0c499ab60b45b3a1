"""Calls a module, whatever its framework, gives it parameters, differentiates and exports it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx

from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling_lines import SoughtLines
from encoder_conformance.readers.module_target.dropping import Trained
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.forms_of_x import Arrays
from encoder_conformance.readers.module_target.returned import like_x
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

USUAL_WIDTHS = (64, 32, 16, 128)
"""Values of d_model that a module which says none is tried with."""
Feeds = Mapping[str, Array]
TakesItems = Literal["", "mapped", "one by one"]
"""How a module is called that takes one item of the batch: not at all; mapped over the batch by its framework; or for
one item after the other."""
Seen = dict[tuple[str, str, int], Array]
"""(Submodule, "input" or "output", which of its tensors) → the tensor, the last time that it is called."""


class Second(NamedTuple):
    """An argument: what it is called, and of what function, with the line where that is defined, as ` (file.py:12)`."""

    name: str
    of: str
    line: str


@dataclass(frozen=True)
class Signature:
    """`x`: the first argument; `masks`: those whose names say so; `fixed`: what the others must be given.

    `arrays`: the others that may take one. `places`: how many arguments stand before it, of each that needs no name.
    `named`: x is not the first argument, and is given by its name.
    """

    x: str
    masks: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    arrays: tuple[str, ...] = field(default=(), repr=False)
    places: Mapping[str, int] = field(default_factory=dict, repr=False)
    named: bool = False
    names: tuple[str, ...] = field(default=(), repr=False)
    """Of all arguments beside x that it names."""
    hands_on: bool = field(default=False, repr=False)
    """Whether any other is taken by its name, too, and handed on to a part of it."""
    second: "Second | None" = field(default=None, repr=False)
    """The first that it needs and that by its name is another sequence."""
    arrangement: Arrangement = field(default_factory=Arrangement)
    """How it is called for an x [batch, sequence, d_model]."""

    def arranged(self, arrangement: Arrangement) -> "Signature":
        """The same call in another arrangement, which may have masks beside those of the signature, and one of these
        again in the place of another."""
        again = {name for name, each in arrangement.beside.items() if each.kind == "mask"}
        masks = dict.fromkeys((*self.masks, *arrangement.masks))
        return replace(self, arrangement=arrangement, masks=tuple(name for name in masks if name not in again))

    def given(self, x: Any, more: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call by place, and those by name: x, what others must be given, and `more`."""
        by_name = {**self.fixed, **more}
        return ((), {self.x: x, **by_name}) if self.named else ((x,), by_name)

    def called(self, module: Callable[..., Any], x: Any, masks: Mapping[str, Any], arrays: Arrays) -> Any:
        """The answer of a module, in the form of x. Raises ExecutionError, or whatever the module does."""
        if self.arrangement.is_plain:
            by_place, by_name = self.given(x, masks)
            return like_x(module(*by_place, **by_name), x, arrays.is_array)
        given = {**self.fixed, **masks}
        answer, laid = self.arrangement.call(module, self.x if self.named else "", x, given, arrays)
        return self.arrangement.taken_back(like_x(answer, laid, arrays.is_array), x, arrays)


@dataclass(frozen=True)
class Loose:
    """What a module computes with and does not register, by attribute path: weights, and tensors that are none."""

    weights: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


class HeldState(ABC):
    """What a module that is an object held when this was made, beside its parameters."""

    @abstractmethod
    def changed(self) -> tuple[str, ...]:
        """The paths at which it holds something else now."""

    @abstractmethod
    def restore(self) -> None:
        """Have it hold the same again."""


class NothingDrawn(NotImplementedError):
    """In training a module draws no numbers at all."""


class LiveModule(ABC):
    """A copy of a module in one dtype, in eval mode. It is run as a graph is: feeds by name → outputs by name.

    The feed `x` is its first argument; masks that are not fed are left out.
    """

    signature: Signature
    type_name: str
    """Its class, with the Python module."""
    aliases: Mapping[str, str] = {}
    """The other names of a parameter that several have → its first."""
    heard: Mapping[str, str] = {}
    """A parameter → what its owner calls it, where its framework has another name for it."""
    idle_parts: tuple[str, ...] = ()
    """Parts that would hold parameters and made none, since no call reaches them."""
    seeded: bool = False
    """Whether it draws the same random numbers in every call."""
    supplied: tuple[str, ...] = ()
    """The arguments that its model makes and gives it, beside x."""
    supplied_by: str = ""
    """The class of that model."""
    attention: str = ""
    """Which of its library's implementations of attention it computes with; "" where it has no choice of them."""
    untrained: tuple[str, ...] = ()
    """Its own parameters of which that model makes what it gives without a gradient."""
    length: int = 0
    """The one number of positions for which its model makes what it gives; 0: any."""
    formats: Mapping[str, str] = {}
    """Own parameter, or another of its numbers → the floating-point format that it was given in."""
    own_format: str = ""
    """The format that a copy of it takes and gives with its parameters in theirs; "": as any copy in that format."""
    called_with: str = ""
    """The shape of x that its model calls it with, and for which batch; "" where it is called by itself."""
    may_take_items: TakesItems = ""
    """How it may take one item of the batch at a time, if it may."""
    may_take_objects: bool = True
    """Whether its one argument may be an object with attributes."""
    draws_of_keys: bool = False
    """Whether its framework draws random numbers of a key that is given."""
    library: str = ""
    """The folder of the framework, whose lines of source are not the user's."""

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Its own parameters, each once, always in the same order."""

    @abstractmethod
    def flat(self) -> Array:
        """All elements of its parameters, [n], in the order of `shapes`."""

    @abstractmethod
    def assign(self, flat: Array) -> None:
        """Give every parameter the elements that `flat` would."""

    @abstractmethod
    def call(self, feeds: Feeds) -> Array:
        """The output, in the shape of x. Raises whatever the module does."""

    @abstractmethod
    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, and by all elements of its parameters, [n]."""

    def in_training(self, feeds: Feeds) -> "LiveModule":
        """Another copy, with dropout on: it draws the same at each call with such feeds. Raises NotImplementedError,
        with what is to be said of it; NothingDrawn where that is seen beforehand."""
        raise NotImplementedError("gradients with dropout on were not asked: how it is put in training is not known")

    def trained(self, feeds: Feeds) -> Trained | None:
        """What it is seen to drop in training; None where its framework does not show that."""
        return None

    def drops_uncalled(self, feeds: Feeds) -> Mapping[str, float]:
        """Part that drops, and that no call in training reaches → its rate, where `trained` does not show that."""
        return {}

    def trained_compiled(self, feeds: Feeds) -> tuple[Trained, tuple[Array, Array]] | None:
        """What its compiled code drops, as the graph shows of which it is made, and the outputs of two calls of that
        code; None where it has none, or its framework does not show that."""
        return None

    def generators(self, feeds: Feeds) -> WayBackAnswer | None:
        """Whether it leaves the program's random numbers random; None where there are none that all share."""
        return None

    def backward_twice(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array] | None:
        """All gradients of one output, [n], asked twice; None where it cannot be."""
        return None

    def way_back(self, feeds: Feeds, masked: Feeds, cotangent: Array) -> Iterator[WayBackAnswer]:
        """The questions about gradients that its framework alone can be asked. `masked`: with a mask that hides."""
        yield from ()

    @abstractmethod
    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        """Shows what its submodules, or those in `only`, take and give in one call; and the output."""

    @abstractmethod
    def in_dtype(self, dtype: str) -> "LiveModule":
        """Another copy; in `own_format` with its parameters as they were given. Raises ExecutionError if it has
        none."""

    def narrow_inside(self, feeds: Feeds) -> Mapping[str, str]:
        """The narrow formats that it casts to by itself → the line where it first does, of a framework whose copies in
        others then compute without; empty where it does not, or its framework does not show that."""
        return {}

    def cast_at(self, feeds: Feeds) -> Mapping[str, str]:
        """The narrow formats that values of a call are in → the line of the first; of a copy in a wide one those that
        it casts to by itself. Empty where its framework does not show them."""
        return self.narrow_inside(feeds)

    def trains_unless_told(self, feeds: Feeds) -> bool:
        """Whether it answers otherwise where nothing is said of training; False where its framework has another way to
        say that."""
        return False

    @abstractmethod
    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        """Exports a graph of x alone, with parameters as constants."""

    def lines(self, feeds: Feeds) -> Mapping[str, tuple[str, ...]]:
        """Own parameter → the lines of the user's source that read it, of a framework whose exporter keeps none."""
        return {}

    def sought_lines(self, model: onnx.ModelProto, x_shape: tuple[int, ...]) -> SoughtLines | None:
        """Finds the lines of values of its export, with the parameters that it has now, where the exporter keeps none;
        nothing is done before it is asked."""
        return None

    def export_as_it_is(self, x_shape: tuple[int, ...]) -> onnx.ModelProto | None:
        """The same before its exporter simplifies the graph; None where it always does, or never."""
        return None

    @abstractmethod
    def objects(self) -> Iterator[object]:
        """It and its parts, whose attributes may tell sizes."""

    @property
    def wrappers(self) -> tuple[str, ...]:
        """What it was given in, as compiled code, the outermost first."""
        return ()

    def compiled(self) -> "LiveModule | None":
        """The same by its compiled code, where it is asked without."""
        return None

    def ways(self) -> Mapping[str, "LiveModule"]:
        """The other ways to call the same module, by what is said of them."""
        return {}

    def mixed_precision(self) -> Mapping[str, "LiveModule"]:
        """The ways to call it in which the framework takes formats of its own choice, by what is said of them."""
        return {}

    def arranged(self, arrangement: Arrangement) -> "LiveModule | None":
        """The same, called in another way; None where its framework knows one way alone."""
        return None

    def giving(self, beside: Mapping[str, Supply]) -> "LiveModule | None":
        """The same, given these beside x, too; None where its framework knows one way alone."""
        return self.arranged(self.signature.arrangement.giving(beside))

    def takes(self, x: Array) -> bool:
        """Whether it gives numbers for x [B, S, D]."""
        try:
            return bool(np.isfinite(self.run({"x": x})["output"]).any())
        except ExecutionError:
            return False

    def takes_mask(self, name: str, x: Array, shape: tuple[int, ...]) -> bool:
        """Whether it takes a mask of this shape beside x [B, S, D], in any usual format: one that is all ones."""
        for dtype in (np.bool_, np.float32, np.int64):
            with suppress(ExecutionError):
                self.run({"x": x, name: np.ones(shape, dtype)})
                return True
        return False

    def bare(self) -> "LiveModule":
        """The same module without what it was given in, to be read."""
        return self

    def take_in(self, feeds: Feeds) -> Loose:
        """Count the weights that it computes with and does not register among its parameters, and say which."""
        return Loose()

    def beyond(self, x: Array, layout: Layout) -> Mapping[Feature, str]:
        """What it is seen to do with x, in this layout, that the specification has not, the most telling first, and its
        line of source."""
        return {}

    def held(self) -> HeldState | None:
        """What it holds beside its parameters; None where a call leaves it as it is, whatever that call does."""
        return None

    def kept(self, feeds: Feeds) -> Kept | None:
        """What a call leaves behind in it, if it was not called before; None where that is nothing, or cannot be.

        Where answers depend on that, every call is from here on that of a module that was not called.
        """
        return None

    def start_from(self, held: HeldState) -> None:
        """Have every call from here on begin with what was held then. What shows none of it raises."""
        raise NotImplementedError("what it holds is not known")

    def kept_with_masks(self, plain: Feeds, masked: Feeds) -> Kept | None:
        """What a call with masks leaves behind, and how far an answer without is off after it; None where that is
        nothing, or cannot be. Where answers depend on it every call begins, from here on, with what is held now."""
        return None

    def written_at(self, name: str, feeds: Feeds) -> str:
        """Where a call writes into the own parameter of this name, as `add_ in layer.py:12, forward: …`; "" where its
        framework does not show that."""
        return ""

    def seed(self) -> bool:
        """Have the framework draw its random numbers from the beginning; False where it has no such thing."""
        return False

    def drawn_at(self, feeds: Feeds) -> str:
        """The line of source, and what stands there, of the first random numbers on which its output depends; "" where
        its framework does not show them."""
        return ""

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Raises ExecutionError, with the last frames of the module's own traceback."""
        try:
            if self.seeded:
                self.seed()
            return {"output": self.call(feeds)}
        except ExecutionError:
            raise
        except (Exception, SystemExit) as error:
            raise ExecutionError(last_frames(error)) from None


class HeldModule(LiveModule):
    """A module that is called with other values in the place of its parameters, and held with those."""

    def __init__(self, signature: Signature, names: Iterable[str], values: Iterable[Array]) -> None:
        self.signature, self.names, self.values = signature, list(names), list(values)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: value.shape for name, value in zip(self.names, self.values, strict=True)}

    def flat(self) -> Array:
        return joined(self.values)

    def assign(self, flat: Array) -> None:
        pairs = zip(self.values, pieces(flat, self.shapes.values()), strict=True)
        self.values = [piece.astype(value.dtype) for value, piece in pairs]


def joined(values: Iterable[Array]) -> Array:
    """All elements of several arrays, [n], one after the other."""
    flat = [value.reshape(-1) for value in values]
    return np.concatenate(flat) if flat else np.zeros(0)


def pieces(flat: Array, shapes: Iterable[tuple[int, ...]]) -> Iterator[Array]:
    """The way back: arrays of these shapes out of all elements [n]."""
    at = 0
    for shape in shapes:
        size = int(np.prod(shape))
        yield np.ascontiguousarray(flat[at : at + size]).reshape(shape)  # a number by itself stays one
        at += size
