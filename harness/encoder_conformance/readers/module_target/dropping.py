"""Judges what a module drops in training, as its framework sees it: rates, independence, and what is kept.

Each test of chance fails a right module with a probability of 1e-9; there are fewer than 100 of a module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from encoder_conformance.judging.checks.training.statistics import DROPPED, HIDDEN, Masks, dependence, is_likely
from encoder_conformance.protocol.way_back import Dropped, WayBackAnswer
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import listed

FALSE_ALARM = 1e-9
_FAR = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
_EXACT: Mapping[str, float] = {"float64": 1e-7, "float32": 1e-3}
"""The relative difference of two factors, or of two outputs of a module, that is no rounding."""

_OFF = 1e-3
"""How far from 1 the average of a factor is that is no rounding."""
_UNASKED = "what it drops in training was not asked"
_OWN_RATES = "p", "rate", "drop_prob", "dropout", "prob"
"""What a module that drops calls its rate."""
_OF_ITEMS = "droppath", "stochasticdepth", "layerdrop"
"""What is dropped there are whole items, or layers."""


@dataclass(frozen=True)
class Site:
    """An operator in which what was drawn meets what depends on x. `masks`: those of calls that follow each other.

    `place`: the user's line; `inside`: the submodule; `chances`: the probabilities that stood in what was drawn.
    `scale`: by what the operator multiplies what it keeps; None where it does not drop, but change at random.
    """

    place: str
    inside: str
    chances: frozenset[float]
    masks: list[Masks]
    scale: float | None


@dataclass(frozen=True)
class Trained:
    """What was seen of a module in training. `sites`: None where it takes other steps in each call.

    `rates`: attribute → what it says is dropped; `modules`: submodule that drops → its rate; `called`: submodules.
    `averaged`: the output where each site multiplies by a factor in the place of what it draws.
    """

    sites: tuple[Site, ...] | None
    drew: bool
    rates: Mapping[str, float]
    modules: Mapping[str, float]
    called: frozenset[str]
    drops_items: bool
    """Whether it says that it drops whole items, as stochastic depth does."""
    averaged: Callable[[tuple[float, ...]], Array]


def said_by(owners: Iterable[tuple[str, object]]) -> tuple[dict[str, float], dict[str, float], bool]:
    """Submodule that drops → its rate; attribute → the rate that it says; and whether it says that it drops items.

    `owners`: module and submodules by their paths."""
    modules: dict[str, float] = {}
    rates: dict[str, float] = {}
    items = False
    for path, each in owners:
        kind = type(each).__name__.lower()
        held = {name: value for name, value in _attributes(each) if isinstance(value, float) and 0 < value <= 1}
        items = items or any(map(_of_items, (path, kind, *held, *_called_in(each))))
        own = [held[name] for name in _OWN_RATES if name in held]
        if path and own and (kind.startswith("dropout") or kind.rstrip("123d").endswith("dropout")):
            modules[path] = own[0]
        else:
            rates |= {
                f"{path}.{name}".lstrip("."): rate for name, rate in held.items() if _says_rate(name) and rate < 1
            }
    return modules, rates, items


def _called_in(owner: object) -> Iterator[str]:
    """The names of its methods, and of what these call: people drop items by a function, too."""
    for name, method in ((name, each) for kind in type(owner).__mro__ for name, each in vars(kind).items()):
        yield name
        yield from getattr(getattr(method, "__code__", None), "co_names", ())


def _attributes(owner: object) -> Iterator[tuple[str, object]]:
    yield from vars(owner).items() if hasattr(owner, "__dict__") else ()


def _says_rate(name: str) -> bool:
    return (name == "p" or "drop" in name.lower()) and "keep" not in name.lower() and not _of_items(name)


def _of_items(name: str) -> bool:
    return any(word in name.lower().replace("_", "") for word in _OF_ITEMS)


def judged(seen: Trained, in_eval: Array, dtype: str) -> WayBackAnswer:
    """`in_eval`: the output in evaluation."""
    dropping = (site for site in seen.sites or () if site.scale is not None)
    return _judged(seen, in_eval, dtype).model_copy(update={"drops": tuple(_told(seen, site) for site in dropping)})


def _told(seen: Trained, site: Site) -> Dropped:
    """Where it drops, and how much: the rate that is known, or else the share that was seen."""
    rate, where = _rate(seen, site), site.place if ":" in site.place else ""
    return Dropped(rate=_share(site)[0] if rate is None else rate, part=site.inside, where=where)


def _judged(seen: Trained, in_eval: Array, dtype: str) -> WayBackAnswer:
    said = {**seen.rates, **seen.modules}
    if seen.sites is None:
        return _answer("not-asked", f"{_UNASKED}: it takes other steps in each call")
    if not seen.sites and seen.drew:
        text = f"{_UNASKED}: it draws, and nothing that depends on x meets what it draws"
        return _answer("not-asked", text)
    if not (seen.sites or 1 in seen.modules.values()):
        if _distance(seen, [], None, in_eval) > _EXACT[dtype]:
            return _answer("fail", "in training its output is another, and nothing is drawn: is a rate 1?")
        return nothing_dropped(said) if said else _answer("pass")
    problems = dict.fromkeys((*_problems(seen), *_average_problems(seen, in_eval, dtype)))
    if problems:
        return _answer("fail", f"in training: {'; '.join(problems)}")
    if unused := _unused(seen):
        return _answer("unusual", f"in training {unused}")
    if any(site.scale is None for site in seen.sites):
        return _answer("not-asked", f"{_UNASKED}: it changes numbers at random, and drops none")
    return _answer("pass")


def judged_compiled(seen: Trained, outputs: tuple[Array, Array], in_eval: Array, dtype: str) -> WayBackAnswer:
    """Of compiled code. `outputs`: of two calls in training that follow each other; `in_eval`: that in evaluation,
    all in one shape."""
    found = judged(seen, in_eval, dtype)
    if found.outcome in ("pass", "unusual") and seen.sites:
        found = _outputs_judged(outputs, in_eval, dtype)
    message = found.message and f"compiled: {found.message}"
    return found.model_copy(update={"name": "dropout-compiled", "message": message})


def _outputs_judged(outputs: tuple[Array, Array], in_eval: Array, dtype: str) -> WayBackAnswer:
    """Of code that drops something, as far as its outputs, in one shape, show it."""
    one, other = outputs
    least = _EXACT[dtype] * float(np.linalg.norm(in_eval))
    if np.linalg.norm(one - in_eval) <= least:
        return _answer("fail", "in training its output is that in evaluation, and what was compiled drops something")
    if np.linalg.norm(one - other) <= least:
        return _answer("fail", "in training two calls that follow each other drop the same")
    return _answer("pass")


def nothing_dropped(said: Mapping[str, float]) -> WayBackAnswer:
    names = listed([f"{name} = {rate:g}" for name, rate in said.items()][:4])
    return _answer("fail", f"in training it drops nothing, and it has {names}")


def _problems(seen: Trained) -> Iterator[str]:
    assert seen.sites is not None
    for path, rate in seen.modules.items():
        if rate == 1 and path in seen.called:
            yield f"{path} drops all that it is given: its rate is 1"
    dropping = [site for site in seen.sites if site.scale is not None]
    alone = []
    for site in dropping:
        again, axes = _shared(site)
        shape = list(site.masks[0].shape)
        if again:
            yield f"dropout {_at(site)} drops the same in each call"
        if axes and not (seen.drops_items and _of_whole_items(site, axes)):
            yield f"dropout {_at(site)} is one draw for all along axis {listed([*map(str, axes)])} of {shape}"
        if not again and not axes:
            alone.append(site)
            yield from _rate_problems(seen, site)
    for one, other in combinations(alone, 2):
        if one.masks[0].shape == other.masks[0].shape:
            z = dependence(zip(one.masks, other.masks, strict=True))
            if abs(z) > _FAR:
                yield f"dropout {_at(one)} and {_at(other)} are drawn together (z = {z:.3g})"


def _shared(site: Site) -> tuple[bool, list[int]]:
    """Whether calls that follow each other drop the same, and the axes along which neighbours are drawn together.

    The surest first: of those one place is looked at then, since what is counted twice is no evidence."""
    masks, found = np.stack(site.masks), list[int]()
    while True:
        sure = {axis: abs(_along(masks, axis)) for axis in range(masks.ndim)}
        axis = max(sure, key=lambda each: sure[each])
        if sure[axis] <= _FAR:
            return 0 in found, sorted(each - 1 for each in found if each)
        found.append(axis)
        masks = masks.take([0], axis)


def _along(masks: Masks, axis: int) -> float:
    before = (slice(None),) * axis
    return dependence([(masks[*before, 1:], masks[*before, :-1])])


def _of_whole_items(site: Site, axes: list[int]) -> bool:
    shape = site.masks[0].shape
    return bool(sum(size > 1 for size in shape) <= sum(shape[axis] > 1 for axis in axes) + 1)


def _rate_problems(seen: Trained, site: Site) -> Iterator[str]:
    share, fits = _share(site)
    own = {seen.modules[site.inside]} if site.inside in seen.modules else {*seen.rates.values(), *seen.modules.values()}
    if any(map(fits, own)) or not own:
        return
    due = listed([f"{rate:g}" for rate in sorted(own)])
    if site.inside in seen.modules or any(fits(1 - rate) for rate in own):
        yield f"dropout {_at(site)} drops {share:.3g} of what it is given, and its rate is {due}"


def _share(site: Site) -> tuple[float, Callable[[float], bool]]:
    """The share that is dropped, and rate → whether a share as far off is no wonder, where each is drawn by itself."""
    dropped = sum(int(np.count_nonzero(mask == DROPPED)) for mask in site.masks)
    count = sum(int(np.count_nonzero(mask != HIDDEN)) for mask in site.masks)
    return dropped / max(count, 1), lambda rate: not count or is_likely(dropped, count, rate, FALSE_ALARM / 2)


def _average_problems(seen: Trained, in_eval: Array, dtype: str) -> Iterator[str]:
    """What is kept has to make up for what is dropped: on average it is what evaluation has, wherever it is scaled."""
    assert seen.sites is not None
    factors = [_average(seen, site) for site in seen.sites]
    if any(factor is None for factor in factors):
        return
    apart = _distance(seen, factors, None, in_eval)
    if apart <= _EXACT[dtype]:
        return
    wrong = [
        (site, factor) for site, factor in zip(seen.sites, factors, strict=True) if factor and abs(factor - 1) > _OFF
    ]
    if not wrong:
        return  # it differs from evaluation in something else, which is asked with nothing dropped
    guilty = [each for each in wrong if _distance(seen, factors, each[0], in_eval) < apart]
    for site, factor in {_at(site): (site, factor) for site, factor in guilty or wrong}.values():
        yield (
            f"what dropout {_at(site)} keeps is multiplied by {site.scale:.4g}, on average by {factor:.4g}: it has to "
            "be divided by 1 − p"
        )


def _distance(seen: Trained, factors: list[float | None], without: Site | None, in_eval: Array) -> float:
    """Of the output on average from that in evaluation, with a factor of 1 at the site `without`."""
    assert seen.sites is not None
    taken = (1.0 if site is without else factor or 0.0 for site, factor in zip(seen.sites, factors, strict=True))
    found = seen.averaged(tuple(taken))
    return float(np.linalg.norm(found - in_eval) / np.linalg.norm(in_eval))


def _average(seen: Trained, site: Site) -> float | None:
    """By what it multiplies on average; None where its rate is not known."""
    rate = _rate(seen, site)
    return None if rate is None or site.scale is None else site.scale * (1 - rate)


def _rate(seen: Trained, site: Site) -> float | None:
    """The known rate that is nearest to the share that was seen to be dropped."""
    own = [seen.modules[site.inside]] if site.inside in seen.modules else [*seen.rates.values(), *seen.modules.values()]
    share, _ = _share(site)
    known = [*own, *site.chances, *(1 - each for each in site.chances)]
    return min(known, key=lambda each: round(abs(each - share), 9), default=None)  # 1 − 0.8 is not quite 0.2


def _unused(seen: Trained) -> str:
    """Submodules that drop and are never called, where no line drops with their rate by itself."""
    assert seen.sites is not None
    elsewhere = {chance for site in seen.sites if site.inside not in seen.modules for chance in site.chances}
    unused = [
        name
        for name, rate in seen.modules.items()
        if name not in seen.called and not any(np.isclose(each, (rate, 1 - rate)).any() for each in elsewhere)
    ]
    return never_called({name: seen.modules[name] for name in unused})


def never_called(rates: Mapping[str, float]) -> str:
    """What is said of parts that drop, by their rates, and are never called; "" of none."""
    if not rates:
        return ""
    named = listed([f"{name} (p = {rate:g})" for name, rate in [*rates.items()][:4]])
    return f"{named} {'is' if len(rates) == 1 else 'are'} never called"


def _at(site: Site) -> str:
    return f"({site.place})" if ":" in site.place else f"of {site.place or 'the module'}"


def _answer(outcome: str, message: str = "") -> WayBackAnswer:
    return WayBackAnswer.model_validate({"name": "dropout", "outcome": outcome, "message": message})
