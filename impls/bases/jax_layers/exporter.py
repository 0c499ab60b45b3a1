"""jax2onnx, whose first call imports all that it knows, and the weights of its examples are computed by that."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import jax
import onnx

_OF_LIBRARIES = ("dm_pix", "equinox", "examples", "flax")
"""The folders of plugins for functions of libraries. Those of JAX's own functions may hold tables that they need."""


def exporter() -> Callable[..., onnx.ModelProto]:
    """jax2onnx's `to_onnx`. Raises ImportError where it is not installed.

    XLA takes as long for what draws its examples' weights as for the rest of a check. In a trace nothing is computed.
    """
    from jax2onnx import plugins, to_onnx

    jax.eval_shape(lambda: _import_in(Path(plugins.__path__[0])))
    return to_onnx


def _import_in(folder: Path) -> None:
    """Import the plugins for libraries. What needs numbers is left to jax2onnx, which imports what is left."""
    logging.getLogger("jax2onnx").setLevel(logging.ERROR)  # an example that is imported twice is told as a conflict
    for name in _plugins(folder):
        with suppress(Exception):
            import_module(name)


def _plugins(folder: Path) -> Iterator[str]:
    for library in _OF_LIBRARIES:
        for path in sorted((folder / library).rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("")
            if path.stem != "__init__":
                yield ".".join(("jax2onnx", "plugins", *inside.parts))
