"""What `forked.py` has in memory before it forks: the catalogue, which a command reads once and never writes, and
SciPy, which takes longer to import than most of what is asked takes."""

import scipy.special  # noqa: F401

from encoder_conformance.oracle.catalogue import catalogue

catalogue()
