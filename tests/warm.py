"""What `forked.py` has in memory before it forks: the catalogue and what a lock is made of, which a command reads once
and never writes, and SciPy, which takes longer to import than most of what is asked takes."""

from pathlib import Path

import scipy.special  # noqa: F401

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.lock import lock_of
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.oracle.catalogue import catalogue

HONEST = Path(__file__).with_name("fakes") / "honest"

catalogue()
honest = resolve(read_implementation(HONEST), HONEST, {})
assert isinstance(honest, Ready)
lock_of(honest)
