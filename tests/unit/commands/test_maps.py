"""Maps of parameters that are unlike: their kin, their name, and those of a reference. No module is made."""

from typing import Any

import pytest

from encoder_conformance.commands.check.maps import map_findings, maps_apart
from encoder_conformance.protocol.module_description import ModuleDescription, ModuleSource
from encoder_conformance.readers.module_target.naming import misnamed
from encoder_conformance.spec.load import load

LAYER = load().layers["post-gelu"]
D, F = LAYER.d_model, LAYER.feed_forward.d_ff
SHORT = {"query": "q", "key": "k", "value": "v", "output": "o"}
LINEAR = {f"attention.{part}.weight": (f"{short}.weight", "transposed", (D, D)) for part, short in SHORT.items()} | {
    "feed_forward.hidden.weight": ("up.weight", "transposed", (F, D)),
    "feed_forward.output.weight": ("down.weight", "transposed", (D, F)),
}
"""Each weight as a linear map of PyTorch has it: own name, form, and own shape."""
OUT, QUERY = "attention.output.weight", "attention.query.weight"
ATTENTION = [name for name in LINEAR if name.startswith("attention.")]
FUSED = {
    **LINEAR,
    **{
        f"attention.{part}.weight": ("qkv.weight", "slice, transposed", (3 * D, D))
        for part in ("query", "key", "value")
    },
}


def module(
    held: dict[str, tuple[Any, ...]], *, at: dict[str, int] | None = None, stated: bool = False, **of: Any
) -> Any:
    places = {f"attention.{part}.weight": n * D * D for n, part in enumerate(("query", "key", "value"))} | (at or {})
    sources = {
        name: ModuleSource(own=own, form=form, shape=shape, at=places.get(name, 0) if own.startswith("qkv") else 0)
        for name, (own, form, shape) in held.items()
    }
    known = {
        "parameters": sources,
        "layer": LAYER,
        "stated": LAYER if stated else None,
        "searched": None,
        "misnamed": (),
        "lines": {},
    }
    return ModuleDescription.model_construct(**{**known, **of})


def turned(held: dict[str, tuple[Any, ...]], *names: str, to: str = "as_is") -> dict[str, tuple[Any, ...]]:
    return {name: (own, to if name in names else form, shape) for name, (own, form, shape) in held.items()}


def said(found: Any) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in found]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (turned(LINEAR, OUT), "o.weight is used as [in, out], and q.weight as [out, in]"),
        (turned(LINEAR, QUERY), "q.weight is used as [in, out], and k.weight as [out, in]"),
        (turned(LINEAR, *ATTENTION), "q.weight and k.weight and v.weight and o.weight are used as [in, out]"),
        (turned(FUSED, OUT), "o.weight is used as [in, out], and qkv.weight as [out, in]"),
        (turned(LINEAR, QUERY, to="rearranged"), "q.weight is used in another order, and k.weight as [out, in]"),
    ],
)  # fmt: skip
def test_a_weight_that_lies_the_other_way_round_than_its_kin_is_a_warning(held: Any, message: str) -> None:
    [(severity, found)] = said(map_findings(module(held), None))
    assert severity == "warning"
    assert found.startswith(message)


KERNELS = {name: (own.replace("weight", "kernel"), "as_is", shape[::-1]) for name, (own, _, shape) in LINEAR.items()}
RIGHT = {
    "PyTorch": LINEAR,
    "fused": FUSED,
    "Flax": KERNELS,
    "Flax, by heads": KERNELS | {name: (f"{name[10]}.kernel", "reshaped", (D, 4, D // 4)) for name in ATTENTION},
    "GPT-2, whose maps are [in, out]": turned(FUSED, *LINEAR),
    "parameters beside linear maps": LINEAR
    | {f"attention.{part}.weight": (f"w{part[0]}", "as_is", (D, D)) for part in SHORT},
    "XLNet, whose output is [out, heads, features]": LINEAR
    | {name: (name[10], "reshaped, transposed" if name == OUT else "reshaped", (D, 4, D // 4)) for name in ATTENTION},
    "heads innermost, in each": turned(LINEAR, *ATTENTION, to="rearranged"),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_what_is_alike_is_no_finding(kind: str) -> None:
    assert said(map_findings(module(RIGHT[kind]), None)) == []


def test_beside_a_reference_it_is_an_error_whatever_names_it_has() -> None:
    theirs = {name: (f"attention.{own}", form, shape) for name, (own, form, shape) in LINEAR.items()}
    [(severity, message)] = said(map_findings(module(turned(LINEAR, OUT), stated=True), module(theirs)))
    assert severity == "error"
    assert "o.weight is used as [in, out], and " in message
    assert f"in {LAYER.layer} attention.o.weight is used as [out, in]" in message
    for held in (LINEAR, KERNELS, FUSED):
        assert said(map_findings(module(held, stated=True), module(theirs))) == []
    assert said(map_findings(module(turned(LINEAR, OUT), stated=True), module(turned(theirs, OUT)))) == [], (
        "as it has it"
    )
    [(severity, message)] = said(map_findings(module(RIGHT["heads innermost, in each"], stated=True), module(theirs)))
    assert (severity, "are used in another order" in message) == ("error", True)


def test_two_maps_of_the_same_names_are_compared_one_by_one() -> None:
    exchanged = LINEAR | {QUERY: LINEAR["attention.key.weight"], "attention.key.weight": LINEAR[QUERY]}
    one, other = said(maps_apart(module(LINEAR), module(exchanged)))
    way = "as [out, in]"
    assert one == ("error", f"q.weight holds {QUERY} {way} in A, and attention.key.weight {way} in B")
    assert other == ("error", f"k.weight holds attention.key.weight {way} in A, and {QUERY} {way} in B")
    [(_, message)] = said(maps_apart(module(turned(LINEAR, OUT)), module(LINEAR)))
    assert (
        message
        == "o.weight holds attention.output.weight as [in, out] in A, and attention.output.weight as [out, in] in B"
    )
    assert said(maps_apart(module(LINEAR), module(LINEAR))) == []
    assert said(maps_apart(module(LINEAR), module(KERNELS))) == [], "other names, and so another checkpoint"
    assert said(maps_apart(module(LINEAR), None)) == []


def test_the_order_of_a_fused_weight_is_that_of_its_name_and_of_the_reference() -> None:
    key_first = {QUERY: D * D, "attention.key.weight": 0}
    [(severity, message)] = said(map_findings(module(FUSED, at=key_first), None))
    assert (severity, message) == (
        "warning", "qkv.weight holds key, query, value, in this order, and its name says query, key, value",
    )  # fmt: skip
    line = {"lines": {"qkv.weight": "layer.py:7"}}
    [(severity, message)] = said(map_findings(module(FUSED, at=key_first, stated=True, **line), None))
    assert severity == "error", "of a layer that is stated: a checkpoint of it is wrong there"
    assert "in this order (layer.py:7), and its name says" in message
    named = {name: (own.replace("qkv", "qkv_proj"), form, shape) for name, (own, form, shape) in FUSED.items()}
    found = said(map_findings(module(FUSED, at=key_first, stated=True), module(named)))
    assert (
        "error",
        "qkv.weight holds key, query, value, in this order, and qkv_proj.weight of post-gelu query, key, value",
    ) in found
    assert said(maps_apart(module(FUSED, at=key_first), module(FUSED)))[0][0] == "error"


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({"attention.query.weight": "k.weight", "attention.key.weight": "q.weight"}, ["k.weight", "q.weight"]),
        ({"layers.1.attention.query.bias": "l.1.key.bias", "layers.1.attention.key.bias": "l.1.query.bias"},
         ["l.1.key.bias", "l.1.query.bias"]),
        ({"norm1.gain": "ln2.weight", "norm2.gain": "ln1.weight"}, ["ln2.weight", "ln1.weight"]),
        ({"norm1.gain": "layer.0.norm.weight", "norm2.gain": "layer.1.norm.weight"}, []),
        ({"norm1.gain": "attention.output.LayerNorm.weight", "norm2.gain": "output.LayerNorm.weight"}, []),
        ({"attention.query.weight": "a.dense.kernel", "attention.key.weight": "a.dense_1.kernel",
          "attention.value.weight": "a.dense_2.kernel", "attention.output.weight": "a.dense_3.kernel"}, []),
        ({"feed_forward.gate.weight": "mlp.up_proj.weight", "feed_forward.hidden.weight": "mlp.gate_proj.weight"},
         ["mlp.up_proj.weight", "mlp.gate_proj.weight"]),
        ({"feed_forward.gate.weight": "ff.wi_1.weight", "feed_forward.hidden.weight": "ff.wi_0.weight"},
         ["ff.wi_1.weight", "ff.wi_0.weight"]),
        ({"feed_forward.gate.weight": "mlp.gate_proj.weight", "feed_forward.hidden.weight": "mlp.up_proj.weight"}, []),
        ({"feed_forward.gate.weight": "mlp.w3.weight", "feed_forward.hidden.weight": "mlp.w1.weight"}, []),
        ({"layer_scale1.gain": "gamma_2", "layer_scale2.gain": "gamma_1"}, ["gamma_2", "gamma_1"]),
        ({"norm1.gain": "self_attn_layer_norm.weight", "norm2.gain": "final_layer_norm.weight"}, []),
    ],
)  # fmt: skip
def test_what_is_exchanged_is_told_by_its_names(held: dict[str, str], found: list[str]) -> None:
    assert [own for own, _, _ in misnamed(held)] == found
