"""The parts that all frameworks on JAX have in common as frameworks."""

import random
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from encoder_conformance.protocol.findings import Finding
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.frameworks.jax_tree import JaxModule
from encoder_conformance.readers.module_target.frameworks.jax_variants import in_form
from encoder_conformance.readers.module_target.frameworks.jax_whole import WholeJax
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.whole import WholeModule


class JaxFramework(ModuleFramework):
    """Its subclasses say how a module is made a function, in `live`. JAX has no random state, and nothing is set."""

    @contextmanager
    def undisturbed(self) -> Generator[None]:
        """What exports draws of the random numbers of Python and NumPy, when it is imported."""
        drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)

    def refuse_unfit(self, module: Any) -> None:
        if not jax.tree.leaves(self.arrays(module)):
            hint = "an encoder layer has norms and weights"
            raise BadTarget(f"{type(module).__name__} has no parameters", hint, "no-parameters")

    @abstractmethod
    def arrays(self, module: Any) -> Any:
        """A tree of its arrays."""

    def whole(self, module: Any) -> WholeModule:
        live, (forward, skipped) = self.live(module), self.call_of(module)
        assert isinstance(live, JaxModule)
        return WholeJax(live.of, forward, skipped)

    @abstractmethod
    def call_of(self, module: Any) -> tuple[Callable[..., Any], int]:
        """What has the signature of a call, and how many of its arguments stand before the inputs."""

    def in_form(self, module: LiveModule, word: str) -> LiveModule:
        return in_form(module, word)

    def notes(self, module: Any) -> tuple[Finding, ...]:
        return ()


def pair_of(found: Any) -> tuple[Any, Any] | None:
    """A function or a module and its parameters, out of a pair in either order, or of what is trained, as Flax's
    TrainState; None where it is none such."""
    if hasattr(found, "apply_fn") and hasattr(found, "params") and not callable(found):
        found = found.apply_fn, found.params
    if not (isinstance(found, tuple) and len(found) == 2):
        return None
    one, other = found
    return (other, one) if callable(other) and not callable(one) else (one, other)


class Nested:
    """Modules, of these classes, as attributes of modules, and in their lists and dictionaries."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = kinds

    def children(self, module: Any) -> Mapping[str, Any]:
        return dict(self._children(vars(module) if isinstance(module, self.kinds) else module, ""))

    def _children(self, held: Any, prefix: str) -> Generator[tuple[str, Any]]:
        if isinstance(held, (list, tuple)):
            held = dict(enumerate(held))
        for name, value in held.items() if isinstance(held, Mapping) else ():
            path = f"{prefix}{name}"
            if isinstance(value, self.kinds):
                yield path, value
            elif isinstance(value, (list, tuple, dict)):
                yield from self._children(value, f"{path}.")

    def is_container(self, module: Any) -> bool:
        return type(module).__name__ in ("List", "Dict", "Sequential") or not callable(module)

    def matrices(self, module: Any) -> int:
        return sum(np.ndim(leaf) >= 2 for leaf in jax.tree.leaves(module))
