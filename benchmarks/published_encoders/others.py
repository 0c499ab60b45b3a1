"""Encoders beyond the 46, to see whether the kind is mended and not the case."""

from collections.abc import Mapping

from benchmarks.published_encoders.encoders import Encoder

OTHERS: Mapping[str, Encoder] = {}
