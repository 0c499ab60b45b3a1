"""Functions of JAX, compiled as what runs a few times on small numbers is."""

from collections.abc import Callable
from typing import Any

import jax

_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Each program runs a few times on small numbers: to optimise it takes half as long again, and saves nothing."""


class Compiled:
    """A function, compiled once for each shape: step by step each step is compiled, which takes twice as long.

    One that looks at numbers on its way cannot be compiled, and is called as it comes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._compiled = function, jax.jit(function, compiler_options=_QUICKLY)
        self._compiles = True

    def __call__(self, *given: Any) -> Any:
        if self._compiles:
            try:
                return self._compiled(*given)
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
                answer = self._function(*given)  # which raises, too, where what it was given is wrong
                self._compiles = False
                return answer
        return self._function(*given)
