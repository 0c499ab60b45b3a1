"""Maps of parameters that are unlike: a weight unlike its kin, a fused one unlike its name, and two maps of one name.

A map that is unlike gives right numbers with parameters of its own. A checkpoint that fits it by shape gives others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from encoder_conformance.protocol.description import Description
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Severity, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription, ModuleSource
from encoder_conformance.spec.parameters import parameters_of, without_prefix

Way = Literal["as [in, out]", "as [out, in]", "in another order"]
Sources = Mapping[str, ModuleSource]
"""The specification's name of a parameter → what of the module's own it is."""
_WAYS: Mapping[str, Way] = {
    "as_is": "as [in, out]", "slice": "as [in, out]", "transposed": "as [out, in]",
    "slice, transposed": "as [out, in]", "rearranged": "in another order",
}  # fmt: skip
_ORDER: Way = "in another order"
_PARTS = ("query", "key", "value")
_LETTERS = re.compile(r"(?:^|[^a-z])w?([qkv]{3})(?![a-z])|(query|key|value)_(query|key|value)_(query|key|value)")
_HINT = "a checkpoint fits by its shapes, and gives other numbers"


def map_findings(described: ModuleDescription, reference: ModuleDescription | None) -> Iterator[Finding]:
    """What is unusual in the map by itself, or other than in that of the `reference`, which states the layer."""
    searched = described.searched
    if searched is not None and searched.deviation is None:
        return  # it is by names and shapes alone
    stated = described.stated
    if reference is None or stated is None:
        yield from _unlike_kin(described, {})
    elif _owns(described.parameters) == _owns(reference.parameters):
        misnamed = {own for own, _, _ in described.misnamed}
        yield from _apart(described.parameters, reference.parameters, ("", f" in {stated.layer}"), known=misnamed)
        return
    else:
        yield from _unlike_kin(described, reference.parameters)
        yield from _orders_apart(described.parameters, reference.parameters, stated.layer)
    yield from _unlike_names(described)


def maps_apart(first: Description | None, second: Description | None) -> Iterator[Finding]:
    """How the maps of A and B differ: of modules whose own parameters have the same names."""
    if not (isinstance(first, ModuleDescription) and isinstance(second, ModuleDescription)):
        return
    if _owns(first.parameters) == _owns(second.parameters):
        yield from _apart(first.parameters, second.parameters, (" in A", " in B"))


def _owns(sources: Sources) -> set[str]:
    return {own for source in sources.values() for own in source.own.split(", ")}


def _held(sources: Sources) -> dict[str, list[str]]:
    """Own parameter → the specification's that it holds, in its order."""
    found: dict[str, list[str]] = {}
    for name in sorted(sources, key=lambda name: sources[name].at):
        found.setdefault(sources[name].own, []).append(name)
    return found


def _apart(mine: Sources, theirs: Sources, sides: tuple[str, str], known: Iterable[str] = ()) -> Iterator[Finding]:
    """Own parameters that hold another of the specification's, or it in another way. `known`: told elsewhere."""
    ours, others = _held(mine), _held(theirs)
    for own, names in ours.items():
        here, there = _said(names, mine), _said(others.get(own, []), theirs)
        if here != there and there and own not in known:
            message = f"{own} holds {here}{sides[0]}, and {there}{sides[1]}"
            about = {"name": own, "holds": names, "other_holds": others.get(own, [])}
            yield Finding(severity="error", kind="map-differs", message=message, hint=_HINT, about=about)


def _said(names: Iterable[str], sources: Sources) -> str:
    """`attention.output.weight as [out, in]`."""
    return " and ".join(f"{name} {_way(sources[name]) or ''}".rstrip() for name in names)


def _way(source: ModuleSource) -> Way | None:
    """How a matrix lies in its own parameter; None for what is none, or lies there with more axes."""
    return _WAYS.get(source.form) if len(source.shape) == 2 else None


def _unlike_kin(described: ModuleDescription, reference: Sources) -> Iterator[Finding]:
    """Square weights that lie the other way round than their kin. Others do not fit, by their shape.

    `reference`: what lies there in the same way is no finding, and all else is an error.
    """
    severity: Severity = "error" if reference else "warning"
    for kin in _kin(described):
        likes = {name: reference.get(without_prefix(name)[1]) for name in kin}
        ways = {name: _beside(kin[name], likes[name]) for name in kin if not reference or likes[name]}
        square = [name for name in ways if _is_square(described, name)]
        others = {way for name, way in ways.items() if name not in square}
        if not reference and {ways[name] for name in square} == {_ORDER}:
            continue  # heads innermost in each, as somebody chose: only a reference has another
        usual = _usual([ways[name] for name in square], others)
        odd = [name for name in square if ways[name] != usual]
        like = next((name for name, way in ways.items() if way == usual), None)
        if odd and like is not None:
            line = described.lines.get(kin[odd[0]].own, "")
            message = f"{_used(odd, like, kin)}{said_at(line)}"
            if described.stated is not None and reference:
                theirs = {name: source for name, source in likes.items() if source is not None}
                message += f"; in {described.stated.layer} {_used(odd, like, theirs)}"
            about: dict[str, object] = {"names": [kin[name].own for name in odd], "parameters": odd}
            about |= {"like": kin[like].own, **source_of(line)}
            yield Finding(severity=severity, kind="weight-unlike-kin", message=message, hint=_HINT, about=about)


def _usual(square: list[str], others: set[str]) -> str | None:
    """The way of the matrices that fit in one way alone, else of most; None where there is none."""
    if len(others) == 1:
        return next(iter(others))
    return Counter(square).most_common(1)[0][0] if square else None


def _used(odd: Iterable[str], like: str, sources: Sources) -> str:
    """`q.weight and k.weight are used as [out, in], and o.weight as [in, out]`."""
    ways = {sources[name].own: _way(sources[name]) for name in odd}
    verb = "is" if len(ways) == 1 else "are"
    return (
        f"{' and '.join(ways)} {verb} used {next(iter(ways.values()))}, and {sources[like].own} {_way(sources[like])}"
    )


def _kin(described: ModuleDescription) -> Iterator[Sources]:
    """The weights that one convention is due in: those of modules, by how such call them, and the others."""
    shared = Counter(source.own for source in described.parameters.values())
    groups: dict[str, dict[str, ModuleSource]] = {}
    for name, source in described.parameters.items():
        way = _way(source)
        if name.endswith(".weight") and way is not None and not (way == _ORDER and shared[source.own] > 1):
            leaf = re.split(r"[./]", source.own)[-1]
            kind = next((kind for kind in ("weight", "kernel") if leaf.endswith(kind)), "")
            groups.setdefault(kind, {})[name] = source
    yield from groups.values()


def _beside(source: ModuleSource, like: ModuleSource | None) -> str:
    """How it lies; beside another, whether that lies alike."""
    way = _way(source) or ""
    if like is None:
        return way
    other = _way(like)
    return "alike" if way == other else _ORDER if _ORDER in (way, other) else "turned"


def _is_square(described: ModuleDescription, name: str) -> bool:
    layer = described.layer if described.searched is None else described.stated
    shapes = {each.name: each.shape(layer) for each in parameters_of(layer)} if layer is not None else {}
    return len(set(shapes.get(name, ()))) == 1


def _unlike_names(described: ModuleDescription) -> Iterator[Finding]:
    """Fused parameters that hold query, key and value in another order than their name, or a bias than its weight.

    Beside a stated layer the first is an error, as of a query that is called `key`: a checkpoint of that layer is wrong
    there, and nothing else shows it.
    """
    sources = described.parameters
    orders = _orders(sources)
    severity: Severity = "warning" if described.stated is None else "error"
    weights = {own: order for own, order in orders.items() if _kind(own, sources) == "weight"}
    biases = {own: order for own, order in orders.items() if _kind(own, sources) == "bias"}
    for weight, order in weights.items():
        if (named := _named(weight)) and order != [part for part in named if part in order]:
            line = described.lines.get(weight, "")
            message = f"{weight} holds {', '.join(order)}, in this order{said_at(line)}"
            message += f", and its name says {', '.join(named)}"
            found = _order_finding(severity, "fused-order-unlike-name", message, weight, order, named)
            yield found.model_copy(update={"about": {**found.about, **source_of(line)}})
        for bias, other in biases.items():
            if set(other) <= set(order) and other != [part for part in order if part in other]:
                message = f"{bias} holds {', '.join(other)}, in this order, and {weight} {', '.join(order)}"
                yield _order_finding("warning", "bias-order-unlike-weight", message, bias, other, order)


def _orders_apart(mine: Sources, theirs: Sources, name: str) -> Iterator[Finding]:
    """Fused parameters that hold query, key and value in another order than the reference's."""
    due = {(_kind(own, theirs), frozenset(order)): (own, order) for own, order in _orders(theirs).items()}
    for own, order in _orders(mine).items():
        other, expected = due.get((_kind(own, mine), frozenset(order)), (own, order))
        if order != expected:
            message = f"{own} holds {', '.join(order)}, in this order, and {other} of {name} {', '.join(expected)}"
            yield _order_finding("error", "fused-order-differs", message, own, order, expected)


def _order_finding(
    severity: Severity, kind: FindingKind, message: str, own: str, order: list[str], due: list[str]
) -> Finding:
    """Of a fused parameter that holds its parts in another order than is `due`."""
    about = {"name": own, "order": order, "due": due}
    return Finding(severity=severity, kind=kind, message=message, hint=_HINT, about=about)


def _orders(sources: Sources) -> dict[str, list[str]]:
    """Own parameter that holds several of query, key and value → these, in its order."""
    held = {own: [without_prefix(name)[1].split(".")[1:2] for name in names] for own, names in _held(sources).items()}
    found = {own: [part for parts in names for part in parts if part in _PARTS] for own, names in held.items()}
    return {own: parts for own, parts in found.items() if len(set(parts)) == len(parts) > 1}


def _kind(own: str, sources: Sources) -> str:
    """Whether it holds weights or biases."""
    return _held(sources)[own][0].rpartition(".")[2]


def _named(own: str) -> list[str]:
    """The order that a name says: `qkv`, `query_key_value`; [] where it says none."""
    found = _LETTERS.search(own.lower())
    if found is None:
        return []
    parts = list(found[1] or "") or [part[0] for part in found.groups()[1:]]
    named = [part for letter in parts for part in _PARTS if part[0] == letter]
    return named if len(set(named)) == len(_PARTS) else []
