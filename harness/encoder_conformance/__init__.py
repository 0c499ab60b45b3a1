"""encoder-conformance: a conformance suite for Transformer encoder layers.

The names of the Python adapter API are exported here. They need numpy and safetensors only (docs/adapter-api.md).
`check` and `assert_conforms` judge a module, from Python and in tests (docs/checking.md).
"""

from importlib import import_module
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
        RunRequest,
        Take,
        Tensors,
        between_taps,
        cache_folder,
        serve,
        shows_inside,
        stack_of,
        timed,
    )
    from encoder_conformance.commands.check.from_python import assert_conforms, check
    from encoder_conformance.platform.errors import InputError

__version__ = "1.0.0"
__all__ = [
    "Adapter",
    "Array",
    "Environment",
    "Fresh",
    "InputError",
    "Masks",
    "ParameterMap",
    "Recent",
    "RunRequest",
    "Take",
    "Tensors",
    "__version__",
    "assert_conforms",
    "between_taps",
    "cache_folder",
    "check",
    "serve",
    "shows_inside",
    "stack_of",
    "timed",
]

_FOR_USERS = {
    "InputError": "platform.errors",
    **dict.fromkeys(("assert_conforms", "check"), "commands.check.from_python"),
}
"""Name → its module, of those that are no part of the adapter API."""


def __getattr__(name: str) -> object:
    """Import a name on first use: commands do not need the adapter API, nor adapters the commands."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FOR_USERS.get(name, 'adapter')}"), name)
