"""The adapter API for Python. It imports numpy and safetensors only."""

from encoder_conformance.adapter.base import Adapter, Environment, Fresh, Tensors
from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.parameters import ParameterMap, Take, stack_of
from encoder_conformance.adapter.request import RunRequest
from encoder_conformance.adapter.serve import serve
from encoder_conformance.adapter.stopwatch import between_taps, timed
from encoder_conformance.platform.recent import Recent, cache_folder
from encoder_conformance.spec.stages import shows_inside

__all__ = [
    "Adapter",
    "Array",
    "Environment",
    "Fresh",
    "Masks",
    "ParameterMap",
    "Recent",
    "RunRequest",
    "Take",
    "Tensors",
    "between_taps",
    "cache_folder",
    "serve",
    "shows_inside",
    "stack_of",
    "timed",
]
