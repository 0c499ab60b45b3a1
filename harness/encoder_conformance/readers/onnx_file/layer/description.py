"""Describes a matched encoder in the specification's layer language, with evidence for each choice."""

from collections.abc import Iterator, Mapping
from typing import Any

from encoder_conformance.protocol.description import NORM_FORM, Fact
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.layer.beyond import (
    EPSILON_FOR_NONE,
    check_alike,
    check_final_norm,
    check_layer,
    shared_by_heads,
)
from encoder_conformance.readers.onnx_file.layer.far import FarChoices, has_one_table
from encoder_conformance.readers.onnx_file.layer.structure import FIRST_NORM, Encoder, EncoderLayer
from encoder_conformance.readers.onnx_file.layer.walk import PROJECTED, QK_NORMS
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Appended,
    Gate,
    Linear,
    Rotation,
    RowMap,
    Scores,
    UnsupportedPattern,
    Weighed,
    Weights,
)
from encoder_conformance.readers.onnx_file.tracing.row_maps import map_text
from encoder_conformance.spec.layer import PositionBias
from encoder_conformance.spec.published import size_under_root

WINDOW, ROPE = "attention.window", "attention.rope"
_NORMED: Mapping[str, str] = {"post": "a residual sum", "res_post": "what a sub-layer gives"}
"""Placement of the norms → what they are of, where that is no input of a sub-layer."""
SCALE_CLOSE = {"float16": 2e-3, "bfloat16": 1e-2}
"""The largest relative error of a scale that is rounded to the format; 1e-4 in wider ones."""


def describe(
    encoder: Encoder, far: list[FarChoices], d_model: int, format: str, findings: Findings
) -> tuple[dict[str, Any], list[Fact]]:
    """The layer as `layer.schema.json` has it, `fully_masked_row` yet unspecified, and the facts that it follows from.
    `far`: what each layer does by distance. `format` is what the file computes in."""
    layers, final = encoder.layers, encoder.final_norm
    several = len(layers) > 1
    described: list[dict[str, Fact]] = []
    for number, (layer, by_distance) in enumerate(zip(layers, far, strict=True)):
        where = f"layer {number}: " if several else ""
        check_layer(layer, format, where, findings)
        own = [
            *_choices(layer, format, where, findings),
            *_more_choices(layer, where, findings),
            *_by_distance(by_distance),
        ]
        described.append({fact.key: fact for fact in own})
    described, of_global = _with_global_layers(described)
    check_alike(described, findings)
    choices = {key: fact.value for key, fact in described[0].items()}
    check_final_norm(final, choices, findings)
    facts = [
        *described[0].values(),
        *_norms_of_all(encoder),
        _fact("stack.layers", len(layers), "counted from the output back to x"),
        _fact("stack.final_norm", final is not None, f"norm {final.name!r}" if final else "none follows"),
        *of_global,
        *_shared_bias(far),
    ]
    return _layer(facts, d_model), [*facts, *_wrong_norms(encoder)]


def _with_global_layers(described: list[dict[str, Fact]]) -> tuple[list[dict[str, Fact]], list[Fact]]:
    """The choices of each layer, with the window and the theta of the others where it attends without a window; and
    which layers those are, if they come evenly (E-33)."""
    numbers = [number for number, own in enumerate(described) if WINDOW not in own]
    every = numbers[1] - numbers[0] if len(numbers) > 1 else len(described) - sum(numbers)
    if not 0 < len(numbers) < len(described) or numbers != [*range(numbers[0], len(described), every)]:
        return described, []
    local = next(own for own in described if WINDOW in own)
    thetas = {own[ROPE].value["theta"] if ROPE in own else None for own in map(described.__getitem__, numbers)}
    if len(thetas) > 1:
        return described, []
    [theta] = thetas
    chosen = {"first": numbers[0], "every": every, "theta": None}
    if theta is not None and ROPE in local and theta != local[ROPE].value["theta"]:
        chosen["theta"] = theta
    alike = [{**own, WINDOW: local[WINDOW]} if number in numbers else own for number, own in enumerate(described)]
    for own in alike:
        if ROPE in own and own[ROPE].value["theta"] == theta:
            value = {**own[ROPE].value, "theta": local[ROPE].value["theta"] if ROPE in local else theta}
            own[ROPE] = _fact(ROPE, value, local[ROPE].evidence if ROPE in local else own[ROPE].evidence)
    evidence = f"of layers {', '.join(map(str, numbers))} a query sees every key"
    return alike, [_fact("stack.global_layers", chosen, evidence)]


def _shared_bias(far: list[FarChoices]) -> Iterator[Fact]:
    """Whether all layers add the bias of one table (E-34)."""
    if has_one_table(far):
        yield _fact("stack.shared_position_bias", True, "the numbers that all layers add are of one table")


def _layer(facts: list[Fact], d_model: int) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {"": {}, "norm": {}, "attention": {}, "feed_forward": {}, "stack": {}}
    for fact in facts:
        part, _, name = fact.key.rpartition(".")
        parts[part][name] = fact.value
    return {
        "layer": "from-file",
        "title": "The layer that a file holds",
        "clauses": ["L-1"],
        "family": "stacks" if parts["stack"]["layers"] > 1 or parts["stack"]["final_norm"] else "small",
        "d_model": d_model,
        "norm": parts["norm"],
        "attention": {**parts["attention"], "masked_score": "minus_infinity", "fully_masked_row": "unspecified"},
        "feed_forward": parts["feed_forward"],
        **parts[""],
        "dropout": dict.fromkeys(("attention_weights", "attention_output", "ffn_activation", "ffn_output"), 0.0),
        "stack": parts["stack"],
        "embedding": None,
        "padded_rows": "unspecified",
        "padding_content": "finite",
    }


def _fact(key: str, value: Any, evidence: str) -> Fact:
    return Fact(key=key, value=value, evidence=evidence)


def _choices(layer: EncoderLayer, format: str, where: str, findings: Findings) -> Iterator[Fact]:
    norm, scores, linears = next(iter(layer.norms.values())), layer.first(Scores), layer.of(Linear)
    of_linears = {stage: f"linear map {linear.name!r}" for stage, linear in linears.items()}
    source = _NORMED.get(layer.placement, "x, a layer's output or a residual sum")
    yield _fact(
        "norm.placement", layer.placement, f"norm {norm.name!r} of {norm.of.operation.name!r}, which is {source}"
    )
    yield _fact("norm.kind", norm.form.kind, f"norm {norm.name!r}, by its values on probes")
    yield _fact("norm.epsilon", norm.form.epsilon or EPSILON_FOR_NONE, norm.form.evidence)
    made = scores.fused_in or f"product {scores.name!r}"
    at = f"scores {list(scores.shape)} at batch {scores.shape[0]}, sequence {scores.shape[2]}"
    yield _fact("attention.num_heads", scores.shape[1], f"{made}: {at}")
    yield _fact(
        "attention.projections", "shared_by_heads" if all(shared_by_heads(layer)) else "full", of_linears["query"]
    )
    yield _fact("attention.qkv_bias", any(linears[name].bias for name in PROJECTED), of_linears["query"])
    yield from _own_biases("attention", {name: linears[name] for name in PROJECTED})
    biased = linears["attention_output"].bias is not None
    yield _fact("attention.output_bias", biased, of_linears["attention_output"])
    yield _scale(layer, SCALE_CLOSE.get(format, 1e-4), where, findings)
    output, activation = linears["ffn_output"], layer.first(Activation)
    first = {name: linears[f"ffn_{name}"] for name in ("gate", "hidden") if f"ffn_{name}" in linears}
    yield _fact("feed_forward.d_ff", output.weight.value.shape[0], of_linears["ffn_output"])
    yield _fact("feed_forward.activation", activation.function, f"{activation.name!r}, by its values on probes")
    alike = first | {"output": output}
    names = ", ".join(dict.fromkeys(repr(linear.name) for linear in alike.values()))
    biased = any(linear.bias is not None for linear in alike.values())
    yield _fact("feed_forward.bias", biased, f"linear maps {names}")
    yield from _own_biases("feed_forward", alike)


def _more_choices(layer: EncoderLayer, where: str, findings: Findings) -> Iterator[Fact]:
    """The choices that a layer need not make (L-7), each where it makes it."""
    D, H, d = _sizes(layer)
    query = layer.steps["query"].name
    if H * d != D:
        yield _fact("attention.head_dim", d, f"{H} heads of {d} features, of linear map {query!r}, and d_model is {D}")
    if (of_value := layer.value_dim) != d:
        raise UnsupportedPattern(f"{where}{of_value} features of value, and {d} of query and key", "value_dim")
    if layer.columns["value"].size != layer.columns["key"].size:
        counts = f"{layer.kv_heads} heads of key and {layer.columns['value'].size // d} of value"
        raise UnsupportedPattern(f"{where}{counts}, and in E-28 they are as many", "grouped_queries")
    if layer.kv_heads != H:
        key = layer.steps["key"].name
        yield _fact("attention.kv_heads", layer.kv_heads, f"linear map {key!r}: {layer.kv_heads} heads for {H}")
    if gates := layer.of(Gate):
        gate = next(iter(gates.values()))
        yield _fact("feed_forward.gated", True, f"product {gate.name!r} of two maps, of which one is activated")
    if layer.parallel is not None:
        total = layer.steps["residual2"].name
        yield _fact("parallel", layer.parallel, f"sum {total!r} is of x, of attention's and of the network's output")
    yield from _norm_of_heads(layer, where)
    yield from _rope(layer, where)
    yield from _of_branches(layer, where, findings)
    if layer.appended_key is not None:
        name = layer.first(Appended).name
        yield _fact("attention.appended_key", layer.appended_key, f"{name!r} has one more than x has positions")
    weights = layer.first(Weights)
    if weights.cap:
        yield _fact("attention.softcap", weights.cap, f"scores {weights.of.name!r} go through cap · tanh(score / cap)")


def _by_distance(far: FarChoices) -> Iterator[Fact]:
    """The window (E-26) and what is added by distance (E-23, E-42, E-43)."""
    if far.window is not None:
        left, right = far.window
        yield _fact("attention.window", {"left": left, "right": right}, f"what a query sees {far.evidence}")
    if (bias := far.buckets) is not None:
        chosen = {"buckets": bias.buckets, "max_distance": bias.max_distance}
        own = PositionBias.model_validate({**chosen, "distances": bias.distances, "slopes": bias.slopes})
        yield _fact("attention.position_bias", own.model_dump(), bias.evidence)


def _norm_of_heads(layer: EncoderLayer, where: str) -> Iterator[Fact]:
    norms = layer.head_norms
    if not norms:
        return
    if len(norms) < len(QK_NORMS):
        only = QK_NORMS[next(iter(norms))]
        raise UnsupportedPattern(f"{where}{only} alone is normed, and E-27 norms both or none", "qk_norm")
    norm = next(iter(norms.values()))
    over, d = layer.normed_over, layer.head_dim
    due = (d, d) if over == "head" else (layer.heads * d, layer.kv_heads * d)
    forms = {(each.form.kind, each.form.shift is not None) for each in norms.values()}
    if len(forms) > 1 or tuple(each.features for each in norms.values()) != due:
        raise UnsupportedPattern(f"{where}query has another norm than key, and in E-27 they are alike", "qk_norm")
    chosen = {"kind": norm.form.kind, "over": over, "shift": norm.form.shift is not None}
    yield _fact("attention.qk_norm", chosen, f"norm {norm.name!r}, of {norm.features} features each")


def _rope(layer: EncoderLayer, where: str) -> Iterator[Fact]:
    """The rotation of queries and of keys, which is one (E-22)."""
    steps = {name: layer.steps.get(f"{name}_rotated") for name in QK_NORMS.values()}
    turned = [step for step in steps.values() if isinstance(step, RowMap)]
    forms = [step.form for step in turned]
    if not forms:
        return
    if len(forms) < 2:
        alone, left = sorted(steps, key=lambda name: not isinstance(steps[name], RowMap))
        reason = f"{where}{alone} is turned by its position, and {left} is not, at {turned[0].name!r}"
        raise UnsupportedPattern(reason, "rope")
    one, other = forms
    if one != other:
        raise UnsupportedPattern(f"{where}query and key are turned by different angles", "rope")
    assert isinstance(one, Rotation)
    rope: dict[str, Any] = {"theta": one.theta, "pairing": one.pairing}
    if one.size != layer.head_dim:
        rope["rotated"] = one.size
    yield _fact("attention.rope", rope, f"{turned[0].name!r}, by its values on unit vectors: {map_text(turned[0])}")


def _of_branches(layer: EncoderLayer, where: str, findings: Findings) -> Iterator[Fact]:
    """Layer scale (E-31), and the number by which a sub-layer's output is multiplied (E-29)."""
    branches = {"attention": "attention_output", "feed_forward": "ffn_output"}
    scaled = [sublayer for sublayer, stage in branches.items() if f"{stage}_scaled" in layer.steps]
    if scaled:
        names = " and ".join(repr(layer.steps[f"{branches[each]}_scaled"].name) for each in scaled)
        yield _fact("layer_scale", scaled, f"a vector multiplies the features of {names}")
    weighed = {stage: layer.steps.get(f"{stage}_weighed") for stage in branches.values()}
    factors = {stage: step.factor if isinstance(step, Weighed) else 1.0 for stage, step in weighed.items()}
    if set(factors.values()) != {1.0}:
        one, other = factors.values()
        if abs(one - other) > 1e-6 * abs(one):
            both = " and ".join(f"{stage} by {factor:.6g}" for stage, factor in factors.items())
            message = f"{where}the two residual sums weigh their branches otherwise: {both}"
            steps = [step for step in weighed.values() if isinstance(step, Weighed)]
            findings.error("layer", "residual-scales-differ", message, "see E-29", factors=factors, at=steps[0].name)
        sums = " and ".join(repr(step.name) for step in map(layer.steps.get, ("residual1", "residual2")) if step)
        yield _fact("residual_scale", one, f"what the sub-layers give is multiplied by it before the sums {sums}")


def _norms_of_all(encoder: Encoder) -> Iterator[Fact]:
    """What is said of the norms of all layers at once: whether they have shifts (E-21), and a first one (E-24)."""
    first = encoder.layers[0]
    norm = next(iter(first.norms.values()))
    if norm.form.kind == "layer_norm" and not encoder.shifted:
        yield _fact("norm.shift", False, f"norm {norm.name!r} adds nothing, and no other does")
    if first.may_lack_first_norm and FIRST_NORM not in first.norms:
        yield _fact("norm.first", False, f"{first.steps['query'].name!r} is of x itself")


def _wrong_norms(encoder: Encoder) -> Iterator[Fact]:
    """The wrong form that a norm has, where the values of ordinary rows do not tell it from the right one."""
    norms = [norm for layer in encoder.layers for norm in layer.norms.values()]
    if other := next((norm for norm in norms if norm.form.form), None):
        yield _fact(NORM_FORM, other.form.form, f"norm {other.name!r} divides by another deviation")


def _own_biases(part: str, alike: Mapping[str, Linear]) -> Iterator[Fact]:
    """The own key of each map that has no bias where another of them has (L-3)."""
    if any(linear.bias for linear in alike.values()):
        for name, linear in alike.items():
            if linear.bias is None:
                yield _fact(f"{part}.{name}_bias", False, f"linear map {linear.name!r}")


def _sizes(layer: EncoderLayer) -> tuple[int, int, int]:
    """D, H, d."""
    return next(iter(layer.norms.values())).shape[-1], layer.heads, layer.head_dim


def _scale(layer: EncoderLayer, close: float, where: str, findings: Findings) -> Fact:
    D, H, d = _sizes(layer)
    weights = layer.first(Weights)
    multiplied = f"are multiplied by {weights.scale:.6g}"
    evidence = f"scores {multiplied} at {weights.scaled!r}"
    for name, n in (("head_dim", d), ("d_model", D)):
        if abs(weights.scale * n**0.5 - 1) < close:
            return _fact("attention.scale", name, evidence)
    if (number := _whole_number(weights.scale, close)) is not None and not _is_classic(layer):
        return _fact("attention.scale", number, evidence)
    if layer.head_norms and (number := _short_number(weights.scale, close)) is not None:
        return _fact("attention.scale", number, evidence)
    known = "".join(f"{word}, and " for word in size_under_root(weights.scale**-2, d, D, H))
    scores = f"scores {weights.of.name!r} {multiplied} before the softmax {weights.name!r}"
    message = f"{where}{scores}, which is {known}neither 1/√{d} (head_dim) nor 1/√{D} (d_model)"
    hint = "is the scale folded into the weights of query or key, or missing?"
    for axis, n in (("items in its batch", weights.shape[0]), ("positions", weights.shape[-1])):
        if not known and n > 1 and abs(weights.scale * n**0.5 - 1) < close:
            message = f"{message}, but 1/√{n}, and x has {n} {axis}: with another number of them it is another layer"
            hint = "divide by the root of the last size of the query"
            break
    findings.warning("layer", "score-scale-unusual", message, hint, scale=weights.scale, at=weights.scaled)
    return _fact("attention.scale", "head_dim", evidence)


def _is_classic(layer: EncoderLayer) -> bool:
    """Whether it has LayerNorms with shifts and biases of query and key: published layers of that kind scale scores by
    the root of a size, so that another scale is a mistake until somebody states it (E-32)."""
    form = next(iter(layer.norms.values())).form
    linears = layer.of(Linear)
    biased = all(linears[name].bias is not None for name in ("query", "key"))
    return form.kind == "layer_norm" and form.shift is not None and biased and not layer.head_norms


def _whole_number(scale: float, close: float) -> float | None:
    """The whole number by whose square root scores are divided (E-32); None where it is no such."""
    number = scale**-2
    return float(round(number)) if number > 0.5 and abs(scale * round(number) ** 0.5 - 1) < close else None


def _short_number(scale: float, close: float) -> float | None:
    """The number of few digits by whose square root scores are divided: of queries and keys that are normed to the
    length 1, and not to that of their features' number, scores are multiplied by one that was chosen."""
    number = float(f"{scale**-2:.4g}")
    return number if 0 < number < 1e6 and abs(scale * number**0.5 - 1) < close else None
