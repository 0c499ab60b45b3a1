"""Parameters that the layer which was read has none of: one line for all of which the same is to be said."""

import re
from collections.abc import Iterable, Iterator, Sequence

from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.words import some

_ADDED = ("bias", "beta", "shift", "offset")
"""What is added behind a weight, by the last word of its name."""
_NORM = re.compile(r"norm|(^|[._])ln|ln($|[._\d])")
"""What the name of a norm has."""
_GATE = re.compile(r"gate|glu|(^|[._])(up|wi?_?\d)")
"""What the name of a gate has, or of the map beside it, as w1 and w3 are: a third of another name may be anything."""


def unused_findings(described: ModuleDescription, names: Iterable[str]) -> Iterator[Finding]:
    """`names`: those of its own parameters that nothing else is said of."""
    known = described.layer is not None or (described.proof is not None and described.proof.holds)
    idle, of_no_step, unused = list[str](), list[str](), list[str]()
    for own in names:
        if own in described.idle_here:
            idle.append(own)
        elif own in described.of_no_step:
            of_no_step.append(own)
        elif known and (finding := _left_out(described, own)) is not None:
            yield finding
        else:
            unused.append(own)
    if idle:
        message = f"what {described.given_by} makes of {some(idle)} changes nothing where it is called with ids alone"
        yield _warning(
            "parameter-idle-here", message, idle, "it was not asked where other inputs of the model make more of it"
        )
    if of_no_step:
        yield _of_no_step(of_no_step, known=known)
    if unused and not known:
        have = "have" if len(unused) > 1 else "has"
        message = f"{_called(unused)} {have} no place in the layer that is stated"
        yield _warning("parameter-unused", message, unused)
    elif unused:
        change = "change" if len(unused) > 1 else "changes"
        yield _warning("parameter-unused", f"{_called(unused)} {change} nothing in the layer that was read", unused)


def _of_no_step(names: list[str], *, known: bool) -> Finding:
    """`known`: whether the layer was read, or proved: it is right without them."""
    several = len(names) > 1
    change, are, have, they = ("change", "are", "have", "they have") if several else ("changes", "is", "has", "it has")
    called = f"{_called(names)} {change} the output, and"
    if not known:
        return _warning("parameter-of-no-step", f"{called} {have} no place in the layer that is stated", names)
    message = f"{called} {are} part of no step of the layer that was read"
    hint = f"it is right with the numbers that {they} now, and was not asked with others"
    return _warning("parameter-of-no-step", message, names, hint)


def _left_out(described: ModuleDescription, own: str) -> Finding | None:
    """An error where what this is named like is read, and the layer does without it: a map's bias beside its weight,
    the scale of one branch of two, the norm of one sub-layer of two."""
    for beside, without in _alike(described, own):
        line = described.lines.get(beside, "")
        message = f"{own} is read nowhere, and {beside} is{said_at(line)}{without}"
        about = {"name": own, "beside": beside, **source_of(line)}
        return Finding(severity="error", kind="parameter-unused", message=message, about=about)
    return None


def _alike(described: ModuleDescription, own: str) -> Iterator[tuple[str, str]]:
    """What is read that is named like this, and what the layer does without. What another is read instead of is not
    read. Of a layer that is stated without it, no output shows whether the bias of a key is read: a softmax is the same
    with it."""
    weights, part = _weights_of(own), own.rpartition(".")[0]
    instead = {other for _, _, other in described.read_twice}
    for name, each in described.parameters.items():
        if each.own in instead or (described.stated is not None and name.endswith("attention.key.weight")):
            continue
        if each.own in weights or (_last(own) in _ADDED and part and part == each.own.rpartition(".")[0]):
            yield each.own, ""
        elif without := _without(described, own, name, each.own):
            yield each.own, f": {without}"


def _without(described: ModuleDescription, own: str, name: str, read: str) -> str:
    """What the layer does without that has two of a kind, of which one is `read` as the parameter of this name."""
    layer, kin = described.layer, _unnumbered(read) == _unnumbered(own)
    if layer is None:
        return ""
    if kin and len(layer.layer_scale) == 1 and "layer_scale" in name:
        return "one branch alone is scaled"
    if not layer.feed_forward.gated and _is_gate(own, name, read):
        return "no gate multiplies the hidden features"
    if not layer.norm.first and "norm2" in name and (kin or _are_norms(own, read)):
        return "one sub-layer alone has a norm"
    norm, _, kind = name.rpartition(".")
    if kind == "gain" and not layer.norm.shift and _are_a_part(described, own, read):
        return "the norm adds no shift"
    if kind == "shift" and f"{norm}.gain" in described.absent and _are_a_part(described, own, read):
        return "the norm multiplies by no gain"
    return ""


def _weights_of(bias: str) -> set[str]:
    """The names of the weight that goes with a bias of this name, held bare: `bo` with `wo`, `layer_0_bo` with
    `layer_0_wo`, `qkv_bias` with `qkv_weight`."""
    part, last = bias.removesuffix(_last(bias)), _last(bias)
    if last.lower().endswith("bias"):
        return {part + last[:-4] + each for each in ("weight", "kernel", "w", "W")}
    starts = "", last[: last.rfind("_") + 1]
    words = ((start, last.removeprefix(start)) for start in starts)
    return {part + start + {"b": "w", "B": "W"}[word[0]] + word[1:] for start, word in words if word[:1] in ("b", "B")}


def _are_a_part(described: ModuleDescription, own: str, other: str) -> bool:
    """Whether the two are all parameters of one part, as `a_2` and `b_2` of a norm."""
    part, _, _ = own.rpartition(".")
    all = {*described.unused, *(each.own for each in described.parameters.values())}
    return bool(part) and {each for each in all if each.rpartition(".")[0] == part} == {own, other}


def _is_gate(own: str, place: str, read: str) -> bool:
    """Whether this is named as a map beside that of the hidden features is, which is `read` in this `place`: as `w3`
    beside `w1`, or `gate_proj` beside `up_proj`."""
    parts = [each.rpartition(".")[0] for each in (own, read)]
    beside = parts[0].rpartition(".")[0] == parts[1].rpartition(".")[0] and _last(own) == _last(read)
    return place.endswith("feed_forward.hidden.weight") and beside and _GATE.search(own.lower()) is not None


def _are_norms(own: str, other: str) -> bool:
    """Whether both are named as the same parameter of a norm, as `in_norm.weight` and `out_norm.weight`."""
    return _last(own) == _last(other) and all(_NORM.search(each.rpartition(".")[0].lower()) for each in (own, other))


def _last(own: str) -> str:
    return own.rpartition(".")[2]


def _unnumbered(own: str) -> str:
    return re.sub(r"\d+", "", own)


def _called(names: Sequence[str]) -> str:
    return f"the parameter {names[0]}" if len(names) == 1 else f"{len(names)} parameters, {some(names)},"


def _warning(kind: FindingKind, message: str, names: list[str], hint: str = "") -> Finding:
    about: dict[str, object] = {"name": names[0]} if len(names) == 1 else {"names": names}
    return Finding(severity="warning", kind=kind, message=message, hint=hint, about=about)
