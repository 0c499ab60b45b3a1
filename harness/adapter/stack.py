"""The stack in a layer description, for a Python adapter (clauses E-14 to E-16)."""

from collections.abc import Mapping
from typing import Any


def stack_of(layer: Mapping[str, Any]) -> dict[str, Any]:
    """`layers` and `final_norm`, and with an embedding `vocabulary` and `positions`; {} for a single layer."""
    embedding = layer["embedding"] or {}
    alone = layer["stack"]["layers"] == 1 and not layer["stack"]["final_norm"] and not embedding
    return {} if alone else {**layer["stack"], **embedding}
