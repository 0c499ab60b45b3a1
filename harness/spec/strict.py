"""The base class of all models whose YAML people write by hand."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from encoder_conformance.clean import line


class Strict(BaseModel):
    """Frozen, no unknown keys, no silent conversion (`"8"` is not 8).

    A validator is built when it is first used: few are by any one command.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
ClauseId = Annotated[str, StringConstraints(pattern=r"^[A-Z]+-[0-9]+$")]
Printable = Annotated[str, AfterValidator(line)]
"""A text that a command prints: without control characters, in one line."""
Sentence = Annotated[str, StringConstraints(min_length=8), AfterValidator(line)]
Link = Annotated[str, StringConstraints(pattern=r"^https://\S+$"), AfterValidator(line)]
