"""An implementation's options: `choices` in its manifest, `NAME:key=value,…` on the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.spec.strict import Strict

ChoiceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*$")]
Value = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._]*$")]
Chosen = dict[ChoiceName, str]

_VARIANT = re.compile(r"(?P<name>.+?):(?P<choices>[a-z_]+=.*)", re.DOTALL)


class Choice(Strict):
    """One option of an implementation. Its default is the first of `values`."""

    name: ChoiceName
    values: tuple[Value, ...] | Literal["any"] = Field(
        description='the allowed values, the default first; "any": free text without a default, a path for instance'
    )
    requires: dict[Value, tuple[str, ...]] = Field(
        default_factory=dict, description="value → Python modules that it needs beside the implementation's own"
    )

    @model_validator(mode="after")
    def _has_values(self) -> "Choice":
        if not self.values:
            raise ValueError(f"choice {self.name} has no values")
        unknown = sorted(set(self.requires) - set(self.values if self.values != "any" else ()))
        if unknown:
            raise ValueError(f"requires has {', '.join(unknown)}, which is no value of {self.name}")
        return self


def parse_variant(text: str) -> tuple[str, Chosen]:
    """Split `onnx_pytorch:opset=20,level=basic` into the name and its options, {} if there are none.

    Raises InputError for an option that is not key=value or is given twice.
    """
    match = _VARIANT.fullmatch(text)
    if match is None:
        return text, {}
    options: Chosen = {}
    for pair in match["choices"].split(","):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise InputError(
                f"{pair!r} is not key=value", where=f"--impl {text}", hint="for example opset=20,level=basic"
            )
        if name in options:
            raise InputError(f"gives {name} twice", where=f"--impl {text}")
        options[name] = value
    return match["name"], options


def resolve_choices(choices: Sequence[Choice], requested: Mapping[str, str], where: str) -> Chosen:
    """A value for each choice: the one requested for, or its default. Raises InputError, located by `where`."""
    names = [choice.name for choice in choices]
    for name in requested:
        if name not in names:
            hint = nearest(name, names) if names else "this implementation has no choices"
            raise InputError(f"there is no choice called {name!r}", where=where, hint=hint)
    chosen: Chosen = {}
    for choice in choices:
        is_free = choice.values == "any"
        if is_free and choice.name not in requested:
            raise InputError(f"needs {choice.name}", where=where, hint=f"ask for it as NAME:{choice.name}=…")
        value = requested.get(choice.name, choice.values[0])
        if not is_free and value not in choice.values:
            hint = f"{nearest(value, choice.values)} (one of {', '.join(choice.values)})"
            raise InputError(f"{choice.name} cannot be {value!r}", where=where, hint=hint)
        chosen[choice.name] = value
    return chosen


def variant_suffix(choices: Sequence[Choice], chosen: Mapping[str, str]) -> str:
    """The suffix of a variant's name, `:opset=20,level=basic` for instance; "" if every choice has its default."""
    return named("", {c.name: chosen[c.name] for c in choices if c.values == "any" or chosen[c.name] != c.values[0]})


def named(name: str, chosen: Mapping[str, str]) -> str:
    """The variant as text, `NAME:key=value,…`: the inverse of `parse_variant`."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in chosen.items())}" if chosen else name
