"""Findings of single parameters: of another size, with a number in them, that nothing trains, or that are absent."""

from collections.abc import Iterator, Mapping, Sequence, Sized

from encoder_conformance.protocol.findings import Finding, Severity, source_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.words import some
from encoder_conformance.subjects.cases import of_other_sizes
from encoder_conformance.subjects.subject import Subject

NEEDLESS = "attention.key.bias"
"""How the name of a parameter ends that changes no output."""
_SOFTMAX = "a softmax does not change where all scores of a query move alike"


def of_sizes(subject: Subject) -> Iterator[Finding]:
    """An error for the first of its parameters that the layer has in another size: what no number of it can be put in
    the place of is not asked."""
    layer = subject.layer
    others = [*of_other_sizes(layer, subject.parameters)] if layer is not None else []
    for name, shape, due in others[:1]:
        assert layer is not None
        message = f"{name} is {list(shape)} in the module, and {list(due)} in {layer.layer}"
        message += f"{_so_are(others[1:])}: it was not asked"
        about = {"parameter": name, "found": list(shape), "stated": list(due)}
        yield Finding(severity="error", kind="no-parameter-map", message=message, about=about)


def of_values(described: ModuleDescription) -> Iterator[Finding]:
    """Parameters that are others with something added or multiplied, or that nothing trains."""
    sources = described.parameters
    for number, names in _by_number({name: source.more for name, source in sources.items()}, but=0):
        said = f"{names[0]} is {sources[names[0]].own} + {number:g}{_so_are(names[1:])}"
        hint = f"what another has as {some(names)} is to be loaded less {number:g}"
        about = {"names": names, "own": [sources[name].own for name in names], "number": number}
        yield Finding(severity="warning", kind="parameter-plus-number", message=said, hint=hint, about=about)
    for number, names in _by_number({name: source.times for name, source in sources.items()}, but=1):
        said = f"{names[0]} is {sources[names[0]].own} × {number:g}{_so_are(names[1:])}"
        hint = f"what another has as {some(names)} is to be loaded divided by {number:g}"
        about = {"names": names, "own": [sources[name].own for name in names], "number": number}
        yield Finding(severity="warning", kind="parameter-times-number", message=said, hint=hint, about=about)
    for name, source in sources.items():
        if source.own in described.untrained:
            said = f"{described.given_by} makes what it gives of {source.own} without a gradient: no training moves it"
            hint = f"the gradient by {name} is not judged"
            about = {"parameter": name, "name": source.own}
            yield Finding(severity="warning", kind="parameter-untrained", message=said, hint=hint, about=about)


def _by_number(numbers: Mapping[str, float], but: float) -> Iterator[tuple[float, list[str]]]:
    """The names of each number, without those of this one."""
    for number in dict.fromkeys(numbers.values()):
        if number != but:
            yield number, [name for name, each in numbers.items() if each == number]


def _so_are(others: Sized) -> str:
    """`, and so are 3 more`."""
    return f", and so {'are' if len(others) > 1 else 'is'} {len(others)} more" if others else ""


def of_absent(described: ModuleDescription) -> Iterator[Finding]:
    """Parameters that the layer has and the module has not, one finding for all that are taken for the same."""
    groups: dict[tuple[bool, int], list[str]] = {}
    for name in described.absent:
        groups.setdefault((name.endswith(NEEDLESS), int(name.endswith("gain"))), []).append(name)
    for (needless, instead), names in groups.items():
        yield _absent(described, names, needless=needless, hint=f"it is taken for {instead}")


def _absent(described: ModuleDescription, names: Sequence[str], *, needless: bool, hint: str) -> Finding:
    guessed = described.searched is not None and described.searched.deviation is None
    said = f"no parameter was found for {some(names)}" if guessed else f"it has no {some(names)}"
    severity: Severity = "warning"
    if needless:
        severity, said = "note", f"{said} ({_SOFTMAX})"
    elif described.stated is not None:
        severity, said = "warning" if guessed else "error", f"{said}, and {described.stated.layer} has"
    about = {"names": list(names), **source_of(_line_of_its_map(described, names) if severity == "error" else "")}
    return Finding(severity=severity, kind="parameter-absent", message=said, hint=hint, about=about)


def _line_of_its_map(described: ModuleDescription, names: Sequence[str]) -> str:
    """The line of the map or norm that lacks its bias or its shift, of the first of these that has one."""
    weights = (f"{name.rpartition('.')[0]}.{other}" for name in names for other in ("weight", "gain"))
    sources = (described.parameters[name].own for name in weights if name in described.parameters)
    return next((described.lines[own] for own in sources if own in described.lines), "")
