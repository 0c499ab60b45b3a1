"""What a Python adapter is written with; imports numpy and safetensors only."""

from harness.adapter.base import Adapter, Environment, Fresh, Tensors
from harness.adapter.cache import cache_folder
from harness.adapter.masks import Masks
from harness.adapter.parameters import ParameterMap, Take
from harness.adapter.serve import serve
from harness.adapter.stack import stack_of
from harness.adapter.stopwatch import between_taps, timed
from harness.recent import Recent

__all__ = [
    "Adapter",
    "Environment",
    "Fresh",
    "Masks",
    "ParameterMap",
    "Recent",
    "Take",
    "Tensors",
    "between_taps",
    "cache_folder",
    "serve",
    "stack_of",
    "timed",
]
