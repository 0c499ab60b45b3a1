"""The base classes of all models: frozen, and of all whose YAML people write by hand, strict besides."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from encoder_conformance.platform.clean import line


class Frozen(BaseModel):
    """A record that a program writes: it never changes, and has no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Strict(Frozen):
    """A model without silent conversion (`"8"` is not 8).

    A validator is built when it is first used: few are by any one command.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)


IDENTIFIER = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER)]
ClauseId = Annotated[str, StringConstraints(pattern=r"^[A-Z]+-[0-9]+$")]
Printable = Annotated[str, AfterValidator(line)]
"""A text that a command prints: without control characters, in one line."""
Sentence = Annotated[str, StringConstraints(min_length=8), AfterValidator(line)]
Link = Annotated[str, StringConstraints(pattern=r"^https://\S+$"), AfterValidator(line)]
