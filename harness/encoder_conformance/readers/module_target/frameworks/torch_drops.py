"""Sees what a module of PyTorch drops: each operator in which numbers that were drawn meet numbers that depend on x."""

import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.judging.checks.training.statistics import DROPPED, HIDDEN, KEPT, Masks
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.readers.module_target.dropping import Site, Trained, said_by
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators
from encoder_conformance.readers.module_target.live import Feeds
from encoder_conformance.spec.axes import Array

_FOREIGN = (str(Path(torch.__file__).parent), str(PACKAGE), "<")
"""Beginnings of the paths of lines that are not the user's."""
_ALIKE = 1e-3
"""The relative difference of two factors that are one, in the narrowest format that is asked."""
_SEED = 1
_NUMBERS, _FEWEST, _MOST = 4096, 4, 32
"""How many numbers of a mask are wanted in all, and in how many calls."""
Call = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
"""(x, masks) → the output, in the shape of x."""
_BY_SHAPE = ("_like", "new_")
"""What the names of operators contain that take no number of their operand."""


@dataclass
class _Met:
    """One such operator in one call: where it is, its mask and the factor of what it keeps; None: it is no dropout."""

    place: str
    inside: str
    chances: frozenset[float]
    mask: Masks
    scale: float | None
    numbers: int
    """How many were drawn."""


@dataclass
class Drops(SeesOperators):
    """`factors`: by what the operator of this number multiplies in the place of what it draws; none: it draws.

    Marks outlive a call: what a module keeps of an earlier draw is known for one.
    """

    module: nn.Module
    factors: tuple[float, ...] = ()
    met: list[_Met] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    drew: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self._data: dict[int, Tensor] = {}
        self._drawn: dict[int, tuple[Tensor, frozenset[float]]] = {}
        self._inside: list[str] = []

    def begin(self, x: Tensor) -> None:
        self.met, self._data = [], {id(x): x}

    def depends_on_x(self, value: Tensor) -> bool:
        return id(value) in self._data

    @contextmanager
    def seeing(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, each in self.module.named_modules():
                if name and not isinstance(each, torch.jit.ScriptModule):
                    stack.callback(each.register_forward_pre_hook(self._entered(name)).remove)
                    stack.callback(each.register_forward_hook(self._left, always_call=True).remove)
            stack.enter_context(self)
            yield

    def line(self) -> str:
        """The user's line that is executed."""
        return user_line((each.filename, each.lineno or 0) for each in reversed(traceback.extract_stack()))

    def check_seen(self, output: Tensor) -> None:
        """Raises NotImplementedError where its steps are not seen."""
        if not self.met and not self.depends_on_x(output):
            raise NotImplementedError("what it drops in training was not asked: its steps are not seen")

    def _entered(self, name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self._inside.append(name)
            self.called.add(name)

        return enter

    def _left(self, *_: Any) -> None:
        self._inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        data = [each for each in given if id(each) in self._data]
        drawn = [self._drawn[id(each)] for each in given if id(each) in self._drawn]
        chances = frozenset().union(*(each for _, each in drawn))
        drops = func.overloadpacket is torch.ops.aten.native_dropout
        before = max(data, key=Tensor.numel).clone() if data and (drawn or drops) else None
        answer, draws = _drawing(func, args, kwargs or {})
        made = [each for each in tree_leaves(answer) if isinstance(each, Tensor)]
        self.drew |= draws
        if draws:
            self._mark(made[1:] if drops else made, _numbers(args))
        elif drawn and not data:
            self._mark(made, chances | _numbers(args))
        if before is not None and (drops or not draws) and made and made[0].is_floating_point():
            numbers = max((each.numel() for each, _ in drawn), default=before.numel())
            self._meet(before, made[0], chances or _numbers(args), numbers)
            made = made[:1]
        elif draws or not data or any(each in func.name() for each in _BY_SHAPE):
            return answer
        self._data.update((id(each), each) for each in made)
        return answer

    def _mark(self, made: Iterable[Tensor], chances: frozenset[float]) -> None:
        for each in made:
            self._data.pop(id(each), None)
            self._drawn[id(each)] = each, chances

    def _meet(self, before: Tensor, after: Tensor, chances: frozenset[float], numbers: int) -> None:
        if before.numel() < after.numel():
            before = before.expand(after.shape)
        mask, scale = _read(to_numpy(before.detach()), to_numpy(after.detach()))
        inside = self._inside[-1] if self._inside else ""
        self.met.append(_Met(self.line() or inside, inside, chances, mask, scale, numbers))
        number = len(self.met) - 1
        if number < len(self.factors):
            after.copy_(before * self.factors[number])


def _drawing(func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
    """The answer of an operator, and whether it drew: one that may, as fused attention, does not always."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return func(*args, **kwargs), False
    before = torch.get_rng_state()
    answer = func(*args, **kwargs)
    own = any(isinstance(each, torch.Generator) for each in tree_leaves((args, kwargs)))
    return answer, own or not torch.equal(before, torch.get_rng_state())


def _numbers(args: Any) -> frozenset[float]:
    """The probabilities that stand among arguments: that of what is drawn, or what it is compared with."""
    return frozenset(float(each) for each in tree_leaves(args) if isinstance(each, float) and 0 < each < 1)


def _read(before: Any, after: Any) -> tuple[Masks, float | None]:
    """The mask of one that multiplies by 0 or another number, and this one, 0 where none is kept; None of others."""
    visible = (before != 0) & np.isfinite(before) & np.isfinite(after)
    mask = np.where(visible, np.where(after == 0, DROPPED, KEPT), HIDDEN)
    kept = mask == KEPT
    if not kept.any():
        return mask, 0.0
    factors = after[kept].astype(np.float64) / before[kept].astype(np.float64)
    scale = float(np.median(factors))
    return mask, scale if np.abs(factors - scale).max() <= _ALIKE * abs(scale) else None


def user_line(frames: Iterable[tuple[str, int]]) -> str:
    """The first of these, (path, line), that is the user's."""
    mine = (each for each in frames if not each[0].startswith(_FOREIGN) and "importlib" not in each[0])
    path, number = next(mine, ("", 0))
    return f"{Path(path).name}:{number}" if number else ""


def trained(
    module: nn.Module, call: Call, feeds: Feeds, seen_by: Callable[[nn.Module, tuple[float, ...]], Drops] = Drops
) -> Trained:
    """A module in training, called several times one after the other."""
    x, masks = _tensors(feeds)
    drops, calls = seen_by(module, ()), list[list[_Met]]()
    _begin()
    while len(calls) < _wanted(calls):
        output = _called(drops, call, x, masks)
        calls.append(drops.met)

    def averaged(factors: tuple[float, ...]) -> Array:
        found: Array = to_numpy(_called(seen_by(module, factors), call, *_tensors(feeds)).detach())
        return found

    drops.check_seen(output)
    modules, rates, drops_items = said_by(module.named_modules())
    return Trained(_sites(calls), drops.drew, rates, modules, frozenset(drops.called), drops_items, averaged)


def _called(drops: Drops, call: Call, x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
    drops.begin(x)
    with torch.enable_grad(), drops.seeing():
        return call(x, masks)


def _tensors(feeds: Feeds) -> tuple[Tensor, dict[str, Tensor]]:
    tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in feeds.items()}
    return tensors.pop("x").requires_grad_(True), tensors


def _begin() -> None:
    for generator in (torch.manual_seed, random.seed, np.random.seed):
        generator(_SEED)


def _wanted(calls: list[list[_Met]]) -> int:
    """How many calls show enough of the smallest mask."""
    smallest = min((met.numbers for met in calls[0]), default=_NUMBERS) if calls else _NUMBERS
    return min(max(-(-_NUMBERS // max(smallest, 1)), _FEWEST), _MOST)


def _sites(calls: list[list[_Met]]) -> tuple[Site, ...] | None:
    """The operators of several calls, each with its masks call by call; None where calls differ in their operators."""
    shapes = {tuple(each.mask.shape for each in met) for met in calls}
    return None if len(shapes) != 1 else tuple(_site(each) for each in zip(*calls, strict=True))


def _site(met: tuple[_Met, ...]) -> Site:
    first, known = met[0], [each.scale for each in met if each.scale is not None]
    scales = [each for each in known if each] or [1.0]
    alike = len(known) == len(met) and max(scales) - min(scales) <= _ALIKE * abs(max(scales))
    scale = float(np.median(scales)) if alike else None
    return Site(first.place, first.inside, first.chances, [each.mask for each in met], scale)
