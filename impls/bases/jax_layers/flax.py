"""The common part of Flax's two interfaces, Linen and NNX: the names of a block's parameters, and the arguments that
make their layers the ones of the specification."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax.nn import initializers

from encoder_conformance import ParameterMap, Take

_KERNEL, _BIAS = ("d_model", "num_heads", "head_dim"), ("num_heads", "head_dim")


def parameter_map() -> ParameterMap:
    """The map of a block with the layers norm1, attention, norm2, hidden and output."""
    takes = {
        "attention.out.kernel": Take("attention.output.weight", shape=("num_heads", "head_dim", "d_model")),
        "attention.out.bias": Take("attention.output.bias"),
    }
    for name in ("query", "key", "value"):
        takes[f"attention.{name}.kernel"] = Take(f"attention.{name}.weight", shape=_KERNEL)
        takes[f"attention.{name}.bias"] = Take(f"attention.{name}.bias", shape=_BIAS)
    for name in ("norm1", "norm2"):
        takes |= {f"{name}.scale": Take(f"{name}.gain"), f"{name}.bias": Take(f"{name}.shift")}
    for name in ("hidden", "output"):
        takes[f"{name}.kernel"] = Take(f"feed_forward.{name}.weight")
        takes[f"{name}.bias"] = Take(f"feed_forward.{name}.bias")
    return ParameterMap(takes)


@dataclass(frozen=True)
class Arguments:
    """The arguments of each layer beside its sizes: the specification's choices, or with `own` none: its defaults."""

    norm: Mapping[str, Any]
    linear: Mapping[str, Any]
    attention: Mapping[str, Any]


def arguments(layer: Mapping[str, Any], dtype: str, *, own: bool) -> Arguments:
    typed = {"param_dtype": dtype}
    if own:
        return Arguments(typed, typed, typed)
    drawn = {**typed, "kernel_init": initializers.xavier_uniform()}
    stable = {**typed, "epsilon": layer["norm"]["epsilon"], "use_fast_variance": False}
    return Arguments(stable, drawn, {**drawn, "broadcast_dropout": False})
