"""The frameworks whose modules are judged, each imported only if the target has imported it."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from encoder_conformance.protocol.findings import Finding
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.parts import PartsOfModule, PartsOfTree, Tree, at
from encoder_conformance.readers.module_target.supplies import ToldOf
from encoder_conformance.readers.module_target.whole import WholeLayer, WholeModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


class ModuleFramework(ABC):
    """`packages`: the distributions whose versions a report has."""

    name: str
    packages: tuple[str, ...]
    tree: Tree

    @abstractmethod
    def owns(self, found: object) -> bool:
        """Whether it is a module of this framework."""

    @abstractmethod
    def refuse_unfit(self, module: Any) -> None:
        """Raises BadTarget for what cannot be computed in float32 on this machine's processor."""

    def built(self, module: Any, told: ToldOf) -> Any:
        """The module after its first call, if that makes its weights; by itself as it is.

        `told`: what a user says that its arguments are given. Raises BadTarget.
        """
        return module

    @abstractmethod
    def live(self, module: Any) -> LiveModule:
        """A copy in float32, in eval mode; `module` stays as it is. Raises BadTarget."""

    def whole(self, module: Any) -> WholeModule:
        """The whole, to be called with any inputs: by itself a layer that takes x and masks. Raises BadTarget."""
        return WholeLayer(self.live(module))

    def in_form(self, module: LiveModule, word: str) -> LiveModule:
        """A live module of it, with its parameters, in another form (`encoder_conformance.protocol.variants`).

        Raises ExecutionError where it has none.
        """
        raise ExecutionError(f"{self.name} has no {word}")

    @abstractmethod
    def notes(self, module: Any) -> tuple[Finding, ...]:
        """Says what that copy is not."""

    def thrown_away(self, module: LiveModule, feeds: Feeds) -> tuple[Finding, ...]:
        """What a call fills in a new array, and does not use; none where nobody can tell."""
        return ()

    def folded(self, module: Any) -> tuple[Any, tuple[Finding, ...]] | None:
        """A copy whose weights that are computed of others are one each, and what is to be said of it; None where it
        has none."""
        return None

    def parts(self, module: Any) -> PartsOfModule:
        """The layers in a model; by itself those that its structure shows, called by themselves."""
        return PartsOfTree(self.tree, module)

    def at(self, module: Any, path: str | None) -> Any:
        """The part of this path, or the module itself. Raises BadTarget, with the names that are there."""
        return at(self.tree, module, path)

    def is_layer(self, module: LiveModule, feeds: Feeds) -> bool:
        """Whether it is seen to be one layer itself, and no part of it to be one; False where nobody can tell."""
        return False

    def wrappers(self, module: Any) -> tuple[str, ...]:
        """What it was given in, as compiled code, the outermost first."""
        return ()

    def elements(self, module: Any) -> int:
        """The number of elements of all its parameters; 0 where nobody counts them."""
        return 0

    def vectors(self, module: Any, parts: Sequence[str]) -> dict[str, Array]:
        """Own vectors [n] of what is in none of the parts at these paths, by name, as a final norm has them; none where
        nobody tells."""
        return {}

    def are_alike(self, one: Any, other: Any) -> bool:
        """Whether two parts of one model have the same classes, settings and shapes; False where nobody can tell."""
        return False

    def undisturbed(self) -> AbstractContextManager[None]:
        """Settings and random state are afterwards what they were: by itself, where there are none."""
        return nullcontext()


_BY_PACKAGE = (
    ("keras", "keras3"),  # before the frameworks that its layers are modules of, too
    ("flax.nnx", "flax_nnx"),
    ("flax.linen", "flax_linen"),
    ("equinox", "equinox_module"),
    ("torch", "pytorch"),
    ("jax", "jax_function"),
)
"""Package, and a module of this folder: the first that owns an object first."""


def framework_of(found: object) -> ModuleFramework | None:
    """None if it is no module of any. A framework that was not imported has made none."""
    for package, name in _BY_PACKAGE:
        if package in sys.modules:
            framework: ModuleFramework = import_module(f"{__name__}.{name}").FRAMEWORK
            if framework.owns(found):
                return framework
    return None
