"""A case that is played again and again."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from encoder_conformance.portable import Floats
from encoder_conformance.spec.case import Case


@dataclass(frozen=True)
class _Drawn(Case):
    """A case whose parameters are drawn once: drawing takes longer than playing a small layer."""

    padding_is_zero: bool = False
    """Whether x is 0 at positions that hold padding, as an implementation may set it: nobody specifies it (M-3)."""

    def x(self) -> Floats:
        drawn = super().x()
        return np.where(self.valid()[:, :, None], drawn, 0.0) if self.padding_is_zero else drawn

    @cached_property
    def _parameters(self) -> Mapping[str, Floats]:
        return super().parameters()

    def parameters(self) -> Mapping[str, Floats]:
        return self._parameters


def drawn_once(case: Case, *, padding_is_zero: bool = False) -> _Drawn:
    """The same case; with x as drawn, or 0 at padding."""
    return _Drawn(**{each.name: getattr(case, each.name) for each in fields(case)}, padding_is_zero=padding_is_zero)
