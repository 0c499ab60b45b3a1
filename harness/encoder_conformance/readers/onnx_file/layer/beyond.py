"""Says what the layer language cannot say of a matched encoder, or not exactly."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from encoder_conformance.protocol.description import Fact
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.layer.structure import EncoderLayer
from encoder_conformance.readers.onnx_file.layer.walk import PROJECTED
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Linear,
    TracedNorm,
    Weights,
)
from encoder_conformance.spec.plan import COMMON_BIAS, OWN_BIAS

EPSILON_FOR_NONE = float(np.float32(1e-12))
"""What a norm without an epsilon is judged as; the specification has none without."""
ACTIVATION_CLOSE = {"float16": 4e-3, "bfloat16": 3e-2}
"""The largest error of an activation whose constants are rounded to the format; 0 in wider ones."""


def check_alike(described: list[dict[str, Fact]], findings: Findings) -> None:
    """The layers of a stack are equal in their choices."""
    first = described[0]
    for number, choices in enumerate(described):
        for key in {**first, **choices}:
            one, other = (_value(facts, key) for facts in (first, choices))
            if one != other:
                differ = f"{key} is {one} in layer 0, {other} in layer {number}"
                hint = "the specification's stack is of layers that are equal in their choices (E-14)"
                about = {"key": key, "layer": number, "found": other, "first": one}
                findings.error("layer", "layers-differ", f"the layers of the stack differ: {differ}", hint, **about)


def _value(facts: Mapping[str, Fact], key: str) -> Any:
    """The value of a choice; of a bias that has no key of its own, what the key of its like says; None for nothing."""
    part = key.partition(".")[0]
    found = facts.get(f"{part}.{COMMON_BIAS[part]}" if key in OWN_BIAS and key not in facts else key)
    return None if found is None else found.value


def check_final_norm(final: TracedNorm | None, choices: dict[str, Any], findings: Findings) -> None:
    if apart := final_norm_apart(final, choices["norm.kind"], choices["norm.epsilon"]):
        findings.error("layer", "final-norm-differs", apart, "in the specification they are equal (E-14)")


def final_norm_apart(final: TracedNorm | None, kind: str, epsilon: float) -> str:
    """How the final norm differs from the layers', of this kind and epsilon; "" where it does not."""
    if final is None or (final.form.kind, final.form.epsilon or EPSILON_FOR_NONE) == (kind, epsilon):
        return ""
    own = f"{final.form.kind} with epsilon {final.form.epsilon:g}"
    return f"the final norm is {own}, the layers' {kind} with {epsilon:g}"


def check_layer(layer: EncoderLayer, format: str, where: str, findings: Findings) -> None:
    """Reports what the layer language cannot say of this layer, or not exactly."""
    shared = shared_by_heads(layer)
    if any(shared) and not all(shared):
        message = f"{where}some of query, key and value are shared by the heads, and some are not"
        findings.error("layer", "heads-shared-in-part", message, shared=dict(zip(PROJECTED, shared, strict=True)))
    _check_norms(layer, format, where, findings)
    activation, constant = layer.first(Activation), layer.first(Weights).constant
    if activation.error > ACTIVATION_CLOSE.get(format, 0):
        is_it = f"is {activation.formula}, and no" if activation.formula else "is no"
        message = f"{where}the activation {is_it} {activation.function} exactly: off by up to {activation.error:.2g}"
        about = {"activation": activation.function, "off": activation.error, "at": activation.name}
        about["formula"] = activation.formula
        findings.warning("layer", "activation-approximate", message, "it is taken for one", **about)
    if constant is not None and np.isneginf(constant).all(-2).any():
        hides, at = ", and hides some" if np.isneginf(constant).any() else "", layer.first(Weights).name
        message = f"{where}the file adds constants of its own to the scores{hides}"
        findings.warning("masks", "constant-added-to-scores", message, hides=bool(hides), at=at)


def _check_norms(layer: EncoderLayer, format: str, where: str, findings: Findings) -> None:
    forms = {name: norm.form for name, norm in layer.of(TracedNorm).items()}
    kinds = {layer.norms[name].form.kind if name in layer.norms else "" for name in forms} - {""}
    if len(kinds) > 1 or len({np.float32(form.epsilon) for form in forms.values()}) > 1:
        each = " and ".join(f"{name} is {form.kind} with epsilon {form.epsilon:g}" for name, form in forms.items())
        count = "two norms" if len(forms) == 2 else "norms"
        norms_of_all = (*layer.head_norms.values(), *layer.of(TracedNorm).values())
        apart = next((each for each in norms_of_all if each.form.epsilon != _epsilon(layer)), None)
        at = f" (first at {apart.name!r})" if apart else ""
        message, hint = f"{where}the {count} differ: {each}{at}", "in the specification they are equal"
        norms = {name: {"kind": form.kind, "epsilon": form.epsilon} for name, form in forms.items()}
        other = next((each for each in layer.norms.values() if each.form.epsilon != _epsilon(layer)), None)
        place = {"at": other.name} if other else {}
        findings.error("layer", "norms-differ", message, hint, norms=norms, **place)
        if kinds and {norm.form.kind for norm in layer.head_norms.values()} - kinds:
            findings.features.append("norm_kinds")
    for name, form in forms.items():
        if not form.epsilon:
            findings.error(
                "layer",
                "epsilon-zero",
                f"{where}{name} adds an epsilon of 0 ({form.evidence}): a row without variance gives NaN",
                f"export with an epsilon that {format} holds; it is judged as one of {EPSILON_FOR_NONE:.0e}",
                norm=name,
                judged_as=EPSILON_FOR_NONE,
                at=layer.of(TracedNorm)[name].name,
            )
        if form.error:
            message = f"{where}{name} is no {form.kind} exactly: {form.error:.2g} off, relatively"
            about = {"norm": name, "norm_kind": form.kind, "off": form.error, "at": layer.of(TracedNorm)[name].name}
            findings.warning("layer", "norm-approximate", message, "it is taken for one", **about)


def _epsilon(layer: EncoderLayer) -> float:
    return next(iter(layer.norms.values())).form.epsilon


def shared_by_heads(layer: EncoderLayer) -> list[bool]:
    """Whether the heads share one map, of query, key and value."""
    return [layer.of(Linear)[name].heads > 1 for name in PROJECTED]
