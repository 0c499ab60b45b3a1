"""What an implementation can be told to do: `choices` in its manifest, and `NAME:key=value,…` at the command line."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from encoder_conformance.errors import InputError, nearest
from encoder_conformance.spec.strict import Strict

ChoiceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]*$")]
Value = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._]*$")]
Chosen = dict[ChoiceName, str]

_ASKED = re.compile(r"(?P<of>.+?):(?P<choices>[a-z_]+=.*)", re.DOTALL)


class Choice(Strict):
    """One thing that an implementation can be told. The first value is what is used unless another is asked for."""

    name: ChoiceName
    values: tuple[Value, ...] | Literal["any"] = Field(
        description='"any": has to be said each time, a path for instance'
    )
    requires: dict[Value, tuple[str, ...]] = Field(
        default_factory=dict, description="value: Python modules that it needs beside the implementation's own"
    )

    @model_validator(mode="after")
    def _has_values(self) -> "Choice":
        if not self.values:
            raise ValueError(f"choice {self.name} has no values")
        unknown = sorted(set(self.requires) - set(self.values if self.values != "any" else ()))
        if unknown:
            raise ValueError(f"requires speaks of {', '.join(unknown)}, which is no value of {self.name}")
        return self


def asked_of(text: str) -> tuple[str, Chosen]:
    """`onnx_pytorch:opset=20,level=basic` as the implementation and what is asked of it; {} where nothing is."""
    parted = _ASKED.fullmatch(text)
    if parted is None:
        return text, {}
    asked: Chosen = {}
    for pair in parted["choices"].split(","):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise InputError(
                f"{pair!r} is not key=value", where=f"--impl {text}", hint="for example opset=20,level=basic"
            )
        if name in asked:
            raise InputError(f"says {name} twice", where=f"--impl {text}")
        asked[name] = value
    return parted["of"], asked


def chosen_from(choices: Sequence[Choice], asked: Mapping[str, str], where: str) -> Chosen:
    """A value for each choice: what is asked for, and else the first."""
    names = [choice.name for choice in choices]
    for name in asked:
        if name not in names:
            hint = nearest(name, names) if names else "this implementation has no choices"
            raise InputError(f"there is nothing called {name!r} to choose", where=where, hint=hint)
    chosen: Chosen = {}
    for choice in choices:
        if choice.values == "any":
            if choice.name not in asked:
                raise InputError(f"needs {choice.name}", where=where, hint=f"ask for it as NAME:{choice.name}=…")
            chosen[choice.name] = asked[choice.name]
            continue
        value = asked.get(choice.name, choice.values[0])
        if value not in choice.values:
            hint = f"{nearest(value, choice.values)} (one of {', '.join(choice.values)})"
            raise InputError(f"{choice.name} cannot be {value!r}", where=where, hint=hint)
        chosen[choice.name] = value
    return chosen


def variant_suffix(choices: Sequence[Choice], chosen: Mapping[str, str]) -> str:
    """What a variant's name adds to the implementation's: `:opset=20,level=basic`; "" where all is as it comes."""
    return named("", {c.name: chosen[c.name] for c in choices if c.values == "any" or chosen[c.name] != c.values[0]})


def named(name: str, chosen: Mapping[str, str]) -> str:
    """The way back of `asked_of`."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in chosen.items())}" if chosen else name
