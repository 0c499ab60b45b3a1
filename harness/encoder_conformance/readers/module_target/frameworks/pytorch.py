"""PyTorch: nn.Module."""

import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.protocol.findings import Finding, noted, said_at, source_of
from encoder_conformance.readers.module_target.argument_lines import line_of_part
from encoder_conformance.readers.module_target.calling import signature_of, uncalled
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import (
    copy_of,
    forward_of,
    inside,
    plain_name,
    wrappers,
)
from encoder_conformance.readers.module_target.frameworks.pytorch_unregistered import unregistered
from encoder_conformance.readers.module_target.frameworks.torch_alike import are_alike
from encoder_conformance.readers.module_target.frameworks.torch_built import built, elements, is_built_later
from encoder_conformance.readers.module_target.frameworks.torch_fills import fills_thrown_away
from encoder_conformance.readers.module_target.frameworks.torch_flex import FLEX_ATTENTION
from encoder_conformance.readers.module_target.frameworks.torch_folding import folded
from encoder_conformance.readers.module_target.frameworks.torch_formats import (
    formats_of,
    in_format,
    with_numbers_as_parameters,
)
from encoder_conformance.readers.module_target.frameworks.torch_in_model import call_of, in_model
from encoder_conformance.readers.module_target.frameworks.torch_layers_called import (
    Found,
    encoder_path,
    found_in,
    is_no_layer,
    without_cache,
)
from encoder_conformance.readers.module_target.frameworks.torch_live import TorchModule
from encoder_conformance.readers.module_target.frameworks.torch_sums import layers_in
from encoder_conformance.readers.module_target.frameworks.torch_variants import in_form
from encoder_conformance.readers.module_target.frameworks.torch_ways import WayToCall
from encoder_conformance.readers.module_target.frameworks.torch_whole import WholeTorch
from encoder_conformance.readers.module_target.live import (
    Feeds,
    LiveModule,
    Signature,
)
from encoder_conformance.readers.module_target.parts import PartsOfModule, Tree, candidates, walk
from encoder_conformance.readers.module_target.supplies import ToldOf
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import some

_QUANTISED = ("quantized", "qint", "bitsandbytes")
_LONGEST, _MOST_VECTORS = 1 << 15, 16
"""Numbers of a vector, and vectors, of a model beside its layers."""


class _TorchTree:
    def children(self, module: nn.Module) -> Mapping[str, nn.Module]:
        return dict(inside(module).named_children())

    def is_container(self, module: nn.Module) -> bool:
        return isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict))

    def matrices(self, module: nn.Module) -> int:
        return sum(value.ndim == 2 for value in module.parameters())


class _TorchParts:
    """The layers of a model that its residual sums show, and others of their lists that its structure does; of one that
    cannot be run, all of these."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._model: nn.Module | None = None
        self._found: dict[str, Found] | None = None

    def listed(self) -> list[str]:
        found = [*self._layers]
        if not found:
            return [path for path in self._by_structure() if not self._is_none(path)]
        lists = {path.rpartition(".")[0] for path in found}  # of which some may refuse the lengths that are tried
        beside = [path for path in self._by_structure() if path not in found and path.rpartition(".")[0] in lists]
        order = {path: place for place, path in enumerate(path for path, _ in walk(_PyTorch.tree, self._module))}
        return sorted([*found, *beside], key=lambda path: order.get(path, 0)) if beside else found

    def _by_structure(self) -> list[str]:
        """Without the layers of a decoder, where the model says that it has both."""
        found, encoder = candidates(_PyTorch.tree, self._module), encoder_path(self._module)
        return [path for path in found if path.startswith(encoder)]

    def _is_none(self, path: str) -> bool:
        """Of a model that cannot be copied nothing is seen."""
        return self._model is not None and is_no_layer(self._model, path)

    def at(self, path: str) -> nn.Module | None:
        if path not in self._layers or self._model is None:
            return None
        with suppress(Exception):
            found = in_model(self._model, self._layers[path])
            found._call.formats = formats_of(self._module.get_submodule(path))
            return found
        return None

    @property
    def _layers(self) -> dict[str, Found]:
        if self._found is None:
            self._found = {}
            with suppress(Exception):
                self._model = without_cache(in_format(copy_of(self._module).to("cpu"), torch.float32).eval())
                self._found = {each.path: each for each in found_in(self._model)}
        return self._found


class _PyTorch(ModuleFramework):
    name = "PyTorch"
    packages = ("torch", "transformers")
    tree: Tree = _TorchTree()

    def owns(self, found: object) -> bool:
        return isinstance(found, nn.Module)

    def wrappers(self, module: nn.Module) -> tuple[str, ...]:
        return wrappers(module)

    def refuse_unfit(self, module: nn.Module) -> None:
        for name, each in walk(self.tree, module):
            if any(word in f"{type(each).__module__}.{type(each).__name__}".lower() for word in _QUANTISED):
                problem = f"{name or 'it'} is {type(each).__name__}: a quantised module holds integers, of which σ"
                raise BadTarget(f"{problem} says nothing", "check the module before", "no-layer-by-kind")
        if any(value.is_meta for value in module.parameters()):
            problem = "its parameters are on the device 'meta' and have no numbers"
            raise BadTarget(problem, "give them some: module.to_empty")
        kinds = {name: type(each).__name__ for name, each in module.named_modules()}
        convolution = next((name for name, kind in kinds.items() if kind.startswith("Conv") and name), None)
        linear = "Conv1D" in kinds.values() or any(_is_linear(each) for each in module.modules())
        if convolution and not linear:  # GPT-2's Conv1D is a linear map
            line = _line_of(module, convolution)
            problem = f"its part {convolution} is a convolution, and no part of an encoder layer{said_at(line)}"
            raise BadTarget(problem, "", "no-layer-by-kind", names=[convolution], **source_of(line))
        if not list(module.parameters()) and not is_built_later(module):
            held = ", ".join(each.path for each in unregistered(module) if each.is_weight)
            hint = f"it holds {held}: register them" if held else "an encoder layer has norms and weights"
            raise BadTarget(f"{type(module).__name__} has no parameters", hint, "no-parameters")

    def elements(self, module: nn.Module) -> int:
        return elements(module)

    def vectors(self, module: nn.Module, parts: Sequence[str]) -> dict[str, Array]:
        there = ((name, value) for name, value in module.named_parameters() if not is_lazy(value))
        named = ((plain_name(name), value) for name, value in there)
        vectors = ((name, value) for name, value in named if value.ndim == 1 and value.numel() <= _LONGEST)
        within = tuple(f"{each}." for each in parts)
        beside = ((name, value) for name, value in vectors if not name.startswith(within))
        return {name: to_numpy(value.detach().float()) for name, value in islice(beside, _MOST_VECTORS)}

    def are_alike(self, one: nn.Module, other: nn.Module) -> bool:
        return are_alike(one, other)

    def whole(self, module: nn.Module) -> WholeModule:
        torch.set_float32_matmul_precision("highest")
        return WholeTorch(module)

    def built(self, module: nn.Module, told: ToldOf) -> nn.Module:
        return built(module, told) if is_built_later(module) else module

    def live(self, module: nn.Module) -> LiveModule:
        torch.set_float32_matmul_precision("highest")
        try:
            copied = in_format(with_numbers_as_parameters(built(module).to("cpu")), torch.float32).eval()
            for value in copied.parameters():
                value.requires_grad_(True)
        except Exception as error:
            hint = "name a function that makes it"
            raise BadTarget(f"it cannot be copied: {type(error).__name__}: {error}", hint) from None
        if call := call_of(copied):
            signature = Signature(call.x, call.masks)
        else:
            inner = inside(copied)
            without = getattr(inner.forward, "__func__", None) is nn.Module.forward  # TorchScript's has none
            if without and type(inner).__call__ is nn.Module.__call__:
                raise uncalled(inner, "forward")
            forward, name = forward_of(inner), f"{type(inner).__name__}.forward"
            signature = signature_of(forward, name, keys=False)
        made = TorchModule(copied, signature, WayToCall())
        made.formats = formats_of(inside(module))
        return made

    def in_form(self, module: LiveModule, word: str) -> LiveModule:
        return in_form(module, word)

    def notes(self, module: nn.Module) -> tuple[Finding, ...]:
        devices = {value.device.type for value in module.parameters()} - {"cpu"}
        moved = (
            noted("moved-to-cpu", f"its parameters are on {each}; a copy of it is judged, on the CPU", device=each)
            for each in sorted(devices)
        )
        return (*moved, *_frozen(module), *_hooked(module))

    def thrown_away(self, module: LiveModule, feeds: Feeds) -> tuple[Finding, ...]:
        assert isinstance(module, TorchModule)
        held = module.held()
        try:
            return tuple(fills_thrown_away(lambda: module.call(feeds)))
        except Exception:  # whatever it raises where its operators are looked at
            return ()
        finally:  # what it keeps of these masks is not its own
            held.restore()

    def folded(self, module: nn.Module) -> tuple[nn.Module, tuple[Finding, ...]] | None:
        return folded(module)

    def is_layer(self, module: LiveModule, feeds: Feeds) -> bool:
        assert isinstance(module, TorchModule)
        with suppress(Exception):  # whatever it raises where its operators are looked at
            return layers_in(module.module, lambda: module.call(feeds)) == [""]
        return False

    def parts(self, module: nn.Module) -> PartsOfModule:
        return _TorchParts(module)

    @contextmanager
    def undisturbed(self) -> Generator[None]:
        """Without the fused path of nn.TransformerEncoder: it gives shorter outputs where all items end in padding."""
        fast, precision = torch.backends.mha.get_fastpath_enabled(), _matmul_precision()
        drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
        torch.backends.mha.set_fastpath_enabled(False)
        FLEX_ATTENTION.called = False
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            random.setstate(drawn)
            np.random.set_state(drawn_by_numpy)
            torch.backends.mha.set_fastpath_enabled(fast)
            if precision:
                torch.set_float32_matmul_precision(precision)


def _matmul_precision() -> str:
    """ "" where the module's file set it in two ways of PyTorch's, of which it then tells neither."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return ""


def _frozen(module: nn.Module) -> Iterator[Finding]:
    """Which of its parameters are trained by nobody, of those that could be: a copy gives their gradients all the
    same."""
    trained = (each for each in module.named_parameters() if each[1].is_floating_point())
    names = [name for name, value in trained if not value.requires_grad]
    if names:
        said = f"frozen (requires_grad is False): {some(names)}; a copy where they are not is asked for their gradients"
        yield noted("parameter-frozen", said, names=names)


def _hooked(module: nn.Module) -> Iterator[Finding]:
    """Which of its parameters have hooks that are given their gradients: a copy of a tensor has none of its hooks."""
    told = "_backward_hooks", "_post_accumulate_grad_hooks"
    names = [name for name, value in module.named_parameters() if any(getattr(value, each, None) for each in told)]
    if names:
        said = f"a hook is given the gradient of {some(names)} (register_hook): it was asked of a copy without"
        hint = "what the hook makes of it is not judged"
        yield Finding(severity="warning", kind="gradient-hooked", message=said, hint=hint, about={"names": names})


def _line_of(module: nn.Module, path: str) -> str:
    """The line that calls the part at this path, or the part of the user's own that holds it."""
    steps = path.split(".")
    holders = ((module.get_submodule(".".join(steps[:at])), name) for at, name in enumerate(steps))
    own = [each for each in holders if type(each[0]).__module__.partition(".")[0] != "torch"]
    return next(filter(None, (line_of_part(*each) for each in reversed(own))), "")


def _is_linear(part: nn.Module) -> bool:
    """A convolution of kernel 1 is a linear map, too."""
    return isinstance(part, nn.Linear) or (isinstance(part, _ConvNd) and set(part.kernel_size) == {1})


FRAMEWORK = _PyTorch()
