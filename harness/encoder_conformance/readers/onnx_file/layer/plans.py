"""The steps of a layer that takes every optional one, by how its norms and its sub-layers stand."""

from collections.abc import Mapping
from typing import get_args

from encoder_conformance.spec.layer import Parallel, Placement
from encoder_conformance.spec.plan import Step, plan, with_attributes

BOTH = ("attention", "feed_forward")
Arranged = Placement | Parallel
"""Where the norms stand, or which norms sub-layers have that stand side by side (E-41)."""
SIDE_BY_SIDE: tuple[Parallel, ...] = get_args(Parallel)


def placement_of(arranged: Arranged) -> Placement:
    """The placement of the norms."""
    return "pre" if arranged == "one_norm" or arranged == "two_norms" else arranged


def parallel_of(arranged: Arranged) -> Parallel | None:
    """The norms of sub-layers that stand side by side; None where one follows the other."""
    return arranged if arranged == "one_norm" or arranged == "two_norms" else None


def _plan(arranged: Arranged, gated: bool) -> tuple[Step, ...]:
    bias = {"buckets": 2, "max_distance": 2}
    taken = {"kv_heads": 1, "rope": {"theta": 2.0}, "position_bias": bias, "softcap": 1.0, "appended_key": "learned"}
    normed = {"qk_norm": {"kind": "layer_norm", "over": "head", "shift": True}}
    return plan(
        with_attributes({
            "d_model": 1, "norm": {"placement": placement_of(arranged)}, "parallel": parallel_of(arranged),
            "attention": {"num_heads": 2, "masked_score": 0, **taken, **normed}, "feed_forward": {"gated": gated},
            "layer_scale": BOTH, "residual_scale": 2.0, "dropout": {}, "stack": {},
        })
    )  # fmt: skip


_EVERY: tuple[Arranged, ...] = ("post", "pre", "sandwich", "res_post", *SIDE_BY_SIDE)
PLANS: Mapping[tuple[Arranged, bool], tuple[Step, ...]] = {
    (arranged, gated): _plan(arranged, gated) for gated in (False, True) for arranged in _EVERY
}
"""How a layer is arranged, and whether its feed-forward network is gated → its steps, the optional ones with them.
Nothing else that a layer chooses moves a step."""
