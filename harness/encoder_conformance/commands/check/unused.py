"""Parameters that the layer which was read has none of: one line for all of which the same is to be said."""

import re
from collections.abc import Iterable, Iterator, Sequence

from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.words import some


def unused_findings(described: ModuleDescription, names: Iterable[str]) -> Iterator[Finding]:
    """`names`: those of its own parameters that nothing else is said of."""
    idle, of_no_step, unused = list[str](), list[str](), list[str]()
    for own in names:
        if own in described.idle_here:
            idle.append(own)
        elif own in described.of_no_step:
            of_no_step.append(own)
        elif (finding := _of_one_branch(described, own) or _of_one_map(described, own)) is not None:
            yield finding
        else:
            unused.append(own)
    if idle:
        message = f"what {described.given_by} makes of {some(idle)} changes nothing where it is called with ids alone"
        yield _warning(
            "parameter-idle-here", message, idle, "it was not asked where other inputs of the model make more of it"
        )
    if of_no_step:
        several = len(of_no_step) > 1
        change, are = ("change", "are") if several else ("changes", "is")
        message = f"{_called(of_no_step)} {change} the output, and {are} part of no step of the layer that was read"
        hint = (
            "it is right with the numbers that they have now"
            if several
            else "it is right with the numbers that it has now"
        )
        yield _warning("parameter-of-no-step", message, of_no_step, f"{hint}, and was not asked with others")
    if unused:
        change = "change" if len(unused) > 1 else "changes"
        yield _warning("parameter-unused", f"{_called(unused)} {change} nothing in the layer that was read", unused)


def _of_one_branch(described: ModuleDescription, own: str) -> Finding | None:
    """An error where the layer scales one branch alone, and this is named as the scale of that is but for numbers."""
    kin = [each.own for name, each in described.parameters.items() if "layer_scale" in name]
    like = [each for each in kin if _unnumbered(each) == _unnumbered(own)]
    if described.layer is None or len(described.layer.layer_scale) != 1 or not like:
        return None
    line = described.lines.get(like[0], "")
    message = f"{own} is applied nowhere, and {like[0]} is{said_at(line)}: one branch alone is scaled"
    about = {"name": own, "beside": like[0], **source_of(line)}
    return Finding(severity="error", kind="parameter-unused", message=message, about=about)


def _of_one_map(described: ModuleDescription, own: str) -> Finding | None:
    """An error where a bias stands beside a weight that is read: its map is computed without."""
    part, _, last = own.rpartition(".")
    weights = (each.own for each in described.parameters.values() if each.own.rpartition(".")[0] == part)
    beside = next(weights, None) if last == "bias" else None
    if beside is None:
        return None
    line = described.lines.get(beside, "")
    about = {"name": own, "beside": beside, **source_of(line)}
    message = f"{own} is read nowhere, and {beside} is{said_at(line)}"
    return Finding(severity="error", kind="parameter-unused", message=message, about=about)


def _unnumbered(own: str) -> str:
    return re.sub(r"\d+", "", own)


def _called(names: Sequence[str]) -> str:
    return f"the parameter {names[0]}" if len(names) == 1 else f"{len(names)} parameters, {some(names)},"


def _warning(kind: FindingKind, message: str, names: list[str], hint: str = "") -> Finding:
    about: dict[str, object] = {"name": names[0]} if len(names) == 1 else {"names": names}
    return Finding(severity="warning", kind=kind, message=message, hint=hint, about=about)
