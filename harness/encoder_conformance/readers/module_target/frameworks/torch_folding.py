"""Weights that a PyTorch module computes of others, as one weight each: parametrisations, and adapters beside a map."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import copy_of, is_compiled

_SAME = 1e-10
"""Of a map's output in float64: that it is linear, and what its weight gives again."""
_HOOKS = (WeightNorm, SpectralNorm)


def folded(module: nn.Module) -> tuple[nn.Module, tuple[Finding, ...]] | None:
    """A copy that holds such weights as they come out, and what is to be said of it; None where it has none."""
    if is_compiled(module):
        return None
    copied = copy_of(module).to("cpu").eval()
    parametrised = [*_unparametrised(copied), *_without_hooks(copied)]
    adapted = [*_maps_in_one(copied)]
    notes = [
        noted(
            "parameter-folded",
            f"{', '.join(names)} {how}: read and judged as one weight each, and gradients by what it is made of were "
            "not asked",
            names=names,
        )
        for names, how in (
            (parametrised, "is computed by a parametrisation"),
            (adapted, "is a linear map with an adapter beside it (LoRA), folded"),
        )
        if names
    ]
    return (copied, tuple(notes)) if notes else None


def _unparametrised(module: nn.Module) -> Iterator[str]:
    """The class of a parametrised part is its original's, too: the copy leaves it, and nothing of it is changed."""
    for name, part in list(module.named_modules()):
        if not parametrize.is_parametrized(part):
            continue
        held = {each: getattr(part, each).detach().clone() for each in part.parametrizations}
        part.__class__ = type(part).__bases__[0]
        del part._modules["parametrizations"]
        for each, value in held.items():
            part.register_parameter(each, nn.Parameter(value))
            yield f"{name}.{each}"


def _without_hooks(module: nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        for number, hook in list(part._forward_pre_hooks.items()):
            if isinstance(hook, _HOOKS):
                hook.remove(part)
                del part._forward_pre_hooks[number]
                yield f"{name}.{hook.name}"


def _maps_in_one(module: nn.Module) -> Iterator[str]:
    """Parts that hold a linear map, and more, and are one in all: each is replaced by that one."""
    done: list[str] = []
    for name, part in list(module.named_modules()):
        if not name or any(name.startswith(f"{each}.") for each in done) or isinstance(part, nn.Linear | nn.ModuleList):
            continue
        if (found := _as_one_map(part)) is not None:
            done.append(name)
            module.get_submodule(name.rpartition(".")[0]).register_module(name.rpartition(".")[2], found)
            yield name
    for name, part in list(module.named_modules()):  # a subclass, as of loralib, that is a linear map and more
        own = isinstance(part, nn.Linear) and type(part) is not nn.Linear and len(list(part.parameters())) > 2
        if own and name and (found := _as_one_map(part, part)) is not None:
            module.get_submodule(name.rpartition(".")[0]).register_module(name.rpartition(".")[2], found)
            yield name


def _as_one_map(part: nn.Module, whole: nn.Linear | None = None) -> nn.Linear | None:
    inner = [whole] if whole else [each for each in part.modules() if isinstance(each, nn.Linear)]
    if not inner or sum(value.ndim == 2 for value in part.parameters()) < 2:
        return None
    for base in inner:
        try:
            return _tried(part, base)
        except Exception:  # whatever it does with an input that is not its own
            continue
    return None


def _tried(part: nn.Module, base: nn.Linear) -> nn.Linear | None:
    """The map of the same sizes as `base` that the part is. Raises whatever the part does; None where it is none."""
    wide = copy_of(part).double().eval()
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        one, two = (torch.randn(2, 3, base.in_features, generator=drawn, dtype=torch.float64) for _ in range(2))
        zero = wide(torch.zeros_like(one))
        answers: list[Tensor] = [wide(each) for each in (one, two, one + two)]
        if any(not isinstance(each, Tensor) or each.shape != (2, 3, base.out_features) for each in answers):
            return None
        shift = zero[0, 0]
        weight = (wide(torch.eye(base.in_features, dtype=torch.float64)[None])[0] - shift).T
        linear = nn.Linear(base.in_features, base.out_features, bias=bool(shift.abs().max() > 0)).double()
        linear.weight.copy_(weight)
        if linear.bias is not None:
            linear.bias.copy_(shift)
        size = answers[0].abs().max()
        pairs = zip((one, two, one + two), answers, strict=True)
        if not all((linear(x) - answer).abs().max() <= _SAME * size for x, answer in pairs):  # NaN is as far off as any
            return None
    return linear.to(base.weight.dtype) if _each_counts(wide, one) else None


def _each_counts(part: nn.Module, x: Tensor) -> bool:
    """Whether each number of its matrices changes the output, with others drawn for them all: an adapter's first half
    changes nothing while its second is zero. Attention over one position is linear, too, by its values alone."""
    drawn = torch.Generator().manual_seed(1)
    for value in part.parameters():
        value.data.normal_(generator=drawn)
        value.requires_grad_(True)
    matrices = [value for value in part.parameters() if value.ndim == 2]
    gradients = torch.autograd.grad(part(x).square().sum(), matrices, allow_unused=True)
    return all(each is not None and bool(each.ne(0).all()) for each in gradients)
