"""Parameters of a module that are one tensor: under several names, or in several places of the layer."""

import re
from collections.abc import Iterator

from encoder_conformance.protocol.findings import Finding, Severity
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.parameters import without_prefix
from encoder_conformance.spec.words import some


def tied_findings(described: ModuleDescription) -> Iterator[Finding]:
    """An error for what a list holds more than once by mistake, and for two parameters of a stated layer."""
    repeated = _repeated(described)
    yield from _of_names(described, repeated)
    for one, other in described.tied:
        if described.parameters[one].own in repeated:
            continue
        in_part = described.parameters[one].own != described.parameters[other].own
        turned = described.is_turned(one, other)
        same = "in part the same numbers" if in_part else "the same numbers"
        same += ", one transposed" if turned else ""
        message = f"{one} and {other} are {same}: {described.parameters[one].own}"
        if described.stated is not None:  # a right output proves nothing: it was given the same numbers for both
            message += f", and two parameters in {described.stated.layer}"
        severity: Severity = "error" if described.stated is not None else "warning"
        hint = "their gradients cannot be distinguished, and are not judged"
        about = {"parameters": [one, other], "in_part": in_part, "transposed": turned}
        yield Finding(severity=severity, kind="parameters-tied", message=message, hint=hint, about=about)


def _of_names(described: ModuleDescription, repeated: set[str]) -> Iterator[Finding]:
    for first in dict.fromkeys(described.aliases.values()):
        names = [*(alias for alias, held in described.aliases.items() if held == first), first]
        message, hint = f"{some(names)} are one tensor", ""
        severity: Severity = "error" if first in repeated else "warning"
        if first in repeated:
            message += ": one part stands in a list more than once, and does the work of several"
            hint = "copy it for each place (copy.deepcopy), or make each anew"
        yield Finding(severity=severity, kind="parameter-aliased", message=message, hint=hint, about={"names": names})


def _repeated(described: ModuleDescription) -> set[str]:
    """Own parameters that have several places in one layer, and other names that differ in a number alone: those of a
    part that a list holds more than once. Layers that are one share their parameters on purpose."""
    tied = {described.parameters[one].own for one, other in described.tied if _layer_of(one) == _layer_of(other)}
    return {own for alias, own in described.aliases.items() if own in tied and _is_in_one_list(alias, own)}


def _layer_of(place: str) -> str:
    return without_prefix(place)[0]


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def _is_in_one_list(one: str, other: str) -> bool:
    """Whether two names differ in the number of a part: `linears.0.weight` and `linears.2.weight`."""
    return one != other and _NUMBER.sub("", one) == _NUMBER.sub("", other)
