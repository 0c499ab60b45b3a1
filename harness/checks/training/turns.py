"""Turns: answers of large layers are tens of megabytes, and one implementation's are in memory at a time."""

import threading
from contextlib import AbstractContextManager, nullcontext

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.size import is_large

_LARGE = threading.Lock()


def turn_of(layer: Layer) -> AbstractContextManager[object]:
    """Waits, for a large layer, until no other one is asked about training."""
    return _LARGE if is_large(layer) else nullcontext()
