"""Judges training: dropout, measured on the outputs of probe layers, and initialisation (clauses A-*)."""

import threading
from contextlib import AbstractContextManager, nullcontext

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.size import is_large

_LARGE = threading.Lock()


def turn_of(layer: Layer) -> AbstractContextManager[object]:
    """A context that a large layer waits for while another one is asked about training.

    Answers of large layers are tens of megabytes, and only one implementation's are in memory at a time.
    """
    return _LARGE if is_large(layer) else nullcontext()
