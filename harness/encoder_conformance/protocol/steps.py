"""The steps of one call: what makes each value inside of a file or a module, and of which others."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen


class TracedStep(Frozen):
    """A value that `made_by` makes, a node or an operator in a part of a module, of those that it `takes`; or one that
    is `given`, as an input or as a parameter."""

    value: Plain
    made_by: Plain
    takes: tuple[Plain, ...]
    given: Literal["", "input", "parameter"] = ""
