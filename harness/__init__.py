"""encoder-conformance: a conformance suite for Transformer encoder layers.

The names of the Python adapter API are exported here. They need numpy and safetensors only (docs/adapter-api.md).
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_conformance.adapter import (
        Adapter,
        Array,
        Environment,
        Fresh,
        Masks,
        ParameterMap,
        Recent,
        Take,
        Tensors,
        between_taps,
        cache_folder,
        serve,
        stack_of,
        timed,
    )

__version__ = "0.1.0"
__all__ = [
    "Adapter",
    "Array",
    "Environment",
    "Fresh",
    "Masks",
    "ParameterMap",
    "Recent",
    "Take",
    "Tensors",
    "__version__",
    "between_taps",
    "cache_folder",
    "serve",
    "stack_of",
    "timed",
]

_FOLDER = Path(__file__).resolve().parent
if not (_FOLDER / "impls").is_dir():  # a checkout, where impls/ lies beside this folder
    __path__.append(str(_FOLDER.parent))


def __getattr__(name: str) -> object:
    """Import the adapter API on first use: commands do not need it."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.adapter"), name)
