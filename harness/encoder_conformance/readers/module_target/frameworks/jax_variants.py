"""A module on JAX as XLA optimises it, and as it is read back from what `jax.export` writes."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.export
import numpy as np

from encoder_conformance.readers.module_target.frameworks.jax_tree import JaxModule, arrays
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Seen
from encoder_conformance.spec.axes import Array


class _Optimised(JaxModule):
    """A module that is compiled as XLA does unless it is told otherwise; it raises where it cannot be."""

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = jax.jit(self.program.output)
        return compiled

    def call(self, feeds: Feeds) -> Array:
        return np.asarray(self._compiled(self.tree(), arrays(feeds)))

    @cached_property
    def _shown(self) -> Callable[[frozenset[str] | None], Callable[..., Any]]:
        return cache(lambda only: jax.jit(partial(self.program.seen, only)))

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        """Of a program of its own, which has these numbers among its results."""
        if not self.of.shown:
            return {}, self.call(feeds)
        seen, output = self._shown(only)(self.tree(), arrays(feeds))
        return {place: np.asarray(value) for place, value in seen.items()}, np.asarray(output)


class _Exported(JaxModule):
    """A module as it is read back from what `jax.export` has written of it, for each size anew."""

    def call(self, feeds: Feeds) -> Array:
        given = jax.tree.leaves((tree := self.tree(), fed := arrays(feeds)))
        structure = jax.tree.structure((tree, fed))

        def function(*leaves: Any) -> Any:
            return self.program.output(*jax.tree.unflatten(structure, leaves))

        written = jax.export.export(jax.jit(function))(*given).serialize()
        return np.asarray(jax.export.deserialize(written).call(*given))


_FORMS: dict[str, type[JaxModule]] = {"jit": _Optimised, "export": _Exported, "half": JaxModule}
"""Word (`encoder_conformance.protocol.variants`) → what it is called as."""


def in_form(module: LiveModule, word: str) -> JaxModule:
    """The module, with the parameters that it has, in the form that is asked for."""
    assert isinstance(module, JaxModule)
    made = _FORMS[word](module.of, module.dtype)
    made.values, made.own_format, made.given_in = module.values, module.own_format, module.given_in
    return made
