"""The implementations: the folder `impls/` at the top of a checkout, this folder in a wheel."""

from encoder_conformance.platform.paths import IMPLS

__path__ = [str(IMPLS)]
