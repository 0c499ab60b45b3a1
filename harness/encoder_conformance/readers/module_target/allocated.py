"""Parameters that nothing fills: in memory as it was left are other numbers in each process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.readers.module_target.live import LiveModule, pieces
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.spec.words import listed


@contextmanager
def filled_with_nan() -> Iterator[None]:
    """What `torch.empty` of PyTorch gives inside is NaN until it is filled; nothing else is changed."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    state = torch._C._get_deterministic_algorithms(), torch._C._get_deterministic_algorithms_warn_only()
    filling = torch.utils.deterministic.fill_uninitialized_memory
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # without what the public function imports
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(state[0], warn_only=state[1])
        torch.utils.deterministic.fill_uninitialized_memory = filling


def with_numbers(module: LiveModule) -> tuple[LiveModule, tuple[Finding, ...]]:
    """The same, with drawn numbers in the place of NaN and infinity, which go through all that it computes."""
    own = module.flat()
    if np.isfinite(own).all():
        return module, ()
    values = zip(module.shapes, pieces(own, module.shapes.values()), strict=True)
    names = [name for name, value in values if not np.isfinite(value).all()]
    module.assign(np.where(np.isfinite(own), own, drawn(own.shape)).astype(own.dtype))
    said = f"{listed(names)} {'hold' if len(names) > 1 else 'holds'} NaN or infinity, as what nothing fills: drawn"
    return module, (noted("weight-not-finite", f"{said} numbers are asked in their place", names=names),)
