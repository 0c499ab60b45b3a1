"""Each deviation in each layer of the specification changes something, or says why it cannot: there is no third."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from products import daily

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.forms import FAINT
from encoder_conformance.oracle.forms.needs import Inapplicable
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from tools.deviations.reasons import why_not

SPECIFICATION = load()
E = "pre-gelu-shared-heads"
SMALL = [name for name, layer in SPECIFICATION.layers.items() if layer.d_model <= 64 and not layer.is_stack]


def cases_of(name: str) -> list[Case]:
    """The cases of a layer that ask for its output or stages, those of the fewest elements first."""
    asked = [
        case
        for case in SPECIFICATION.cases.values()
        if case.layer.layer == name and {"output", "stages"} & set(case.situation.checks) and case.situation.batch
    ]
    small = reduced(SPECIFICATION.layers[name])
    ordered = sorted(asked, key=lambda case: case.situation.batch * case.situation.sequence)
    return [replace(case, layer=small) for case in ordered]


def reduced(layer: Layer) -> Layer:
    """A large layer's choices at a small size: 2 features a head where the root of its size is exact as 64's is."""
    if layer.d_model <= 64:
        return layer
    size = 4 * layer.attention.num_heads
    feed_forward = layer.feed_forward.model_copy(update={"d_ff": size + 2})
    return layer.model_copy(update={"d_model": size, "feed_forward": feed_forward})


EACH_DAY = ("post-relu",)


@pytest.mark.parametrize("layer", daily(EACH_DAY, SPECIFICATION.layers))
def test_each_deviation_changes_a_layer_or_says_why_it_cannot(layer: str) -> None:
    cases = cases_of(layer)
    right: dict[str, dict[str, np.ndarray]] = {}

    def changed(case: Case, name: str) -> bool:
        due = right.setdefault(case.id, simulate(case, []))
        found = simulate(case, [catalogue()[name]])
        return any(not np.array_equal(found[stage], value, equal_nan=True) for stage, value in due.items())

    for name, deviation in catalogue().items():
        reason = why_not(deviation, cases)
        acts = any(changed(case, name) for case in cases if changes(case, deviation))
        assert acts == (reason is None), f"{name} in {layer}: {reason}"


@pytest.mark.release
@pytest.mark.parametrize("layers", [SMALL, [*SPECIFICATION.layers]], ids=len)
def test_only_what_is_faint_changes_no_number_where_it_says_something_else(layers: list[str]) -> None:
    """Another wrong form that gives the right numbers is a form that is not there."""
    faint = {
        name
        for layer in layers
        for name, deviation in catalogue().items()
        if why_not(deviation, cases_of(layer)) is Inapplicable.SAME_NUMBERS
    }
    fills = {name for name in catalogue() if FAINT.intersection(catalogue()[name].patch.steps.values())}
    assert faint - fills == {"norm-eps-1e-12"}


@pytest.mark.parametrize(
    ("name", "layer", "reason"),
    [
        ("projections-not-applied", E, None),
        ("scale-at-query", E, None),
        ("scale-missing", E, None),
        ("key-transposed-by-reshape", E, None),
        ("norm-gain-plus-one", "pre-rms-silu", None),
        ("norm1-skipped", "pre-rms-silu", None),
        ("norm-over-positions", "post-rms-gelu-tanh", None),
        ("norm-layer-norm", "pre-rms-silu", None),
        ("norm-layer-norm", "pre-gelu", Inapplicable.OWN_CHOICE),
        ("scale-by-head-dim", E, None),
        ("scale-by-head-dim", "pre-gelu", Inapplicable.OWN_CHOICE),
        ("scale-by-d-model", E, Inapplicable.OWN_CHOICE),
        ("scale-by-d-model", "pre-gelu-one-head", Inapplicable.ONE_HEAD),
        ("norm-unbiased-variance", "pre-rms-silu", Inapplicable.OTHER_CHOICE),
        ("norm-shift-missing", "pre-rms-silu", Inapplicable.NO_PARAMETER),
        ("value-and-output-swapped", E, Inapplicable.OTHER_SHAPE),
        ("embedding-scaled", "pre-gelu", Inapplicable.NO_STEP),
        ("gelu-quick", "pre-quick-gelu", Inapplicable.OWN_CHOICE),
        ("activation-gelu", "pre-quick-gelu", Inapplicable.OTHER_CHOICE),
        ("gelu-exact", "pre-quick-gelu", None),
        ("gelu-tanh", "pre-gelu-tanh", Inapplicable.OWN_CHOICE),
        ("gelu-tanh", "pre-relu", Inapplicable.OTHER_CHOICE),
        ("relu-extra-after-ffn", "pre-gelu", Inapplicable.OTHER_CHOICE),
        ("mask-transposed", "pre-gelu-dropout", Inapplicable.SAME_MASK),
        ("mask-strictly-causal", "pre-gelu-512", Inapplicable.NO_CAUSAL_MASK),
        ("fully-masked-row-nan", "pre-gelu-dropout", Inapplicable.NO_EMPTY_ROW),
        ("final-norm-extra", "post-relu", Inapplicable.POST_NORM),
        ("layers-share-parameters", "embedding-post-relu", Inapplicable.ONE_LAYER),
        ("rotary-pairs-interleaved", "pre-rope-gated", None),
        ("rotary-pairs-interleaved", "post-rope-interleaved", Inapplicable.OTHER_CHOICE),
        ("rotary-pairs-halves", "post-rope-interleaved", None),
        ("rotary-pairs-halves", "pre-gelu", Inapplicable.NO_STEP),
        ("rotary-theta-10000", "pre-rope-gated", Inapplicable.OWN_CHOICE),
        ("rotary-theta-10000", "pre-window-shiftless", None),
        ("rotary-of-all-features", "pre-rope-gated", Inapplicable.ALL_ROTATED),
        ("rotary-of-values", "pre-buckets", Inapplicable.NOT_ROTATED),
        ("rotary-before-qk-norm", "sandwich-window", None),
        ("rotary-before-qk-norm", "pre-rope-gated", Inapplicable.NO_STEP),
        ("qk-norm-over-all-heads", "pre-qk-norm-capped", Inapplicable.NO_STEP),
        ("qk-norm-by-heads", "pre-qk-norm-capped", None),
        ("qk-norm-layer-norm", "pre-qk-norm-capped", Inapplicable.OWN_CHOICE),
        ("qk-norm-rms", "sandwich-window", Inapplicable.NO_STEP),
        ("kv-heads-tiled", "pre-rope-gated", None),
        ("kv-heads-tiled", "sandwich-window", Inapplicable.ONE_KV_HEAD),
        ("heads-by-reshape-at-key", "sandwich-window", Inapplicable.ONE_HEAD),
        ("window-missing", "pre-gelu", Inapplicable.NO_WINDOW),
        ("appended-key-missing", "pre-gelu", Inapplicable.NONE_APPENDED),
        ("appended-key-hidden", "pre-zero-key", None),
        ("window-turned-about", "pre-window-shiftless", Inapplicable.SAME_SIDES),
        ("gate-sigmoid", "pre-rms-silu", Inapplicable.UNGATED),
        ("gate-activates-product", "pre-rms-silu", Inapplicable.UNGATED),
        ("gate-missing", "pre-rms-silu", Inapplicable.NO_STEP),
        ("softcap-after-mask", "pre-gelu", Inapplicable.NO_CAP),
        ("softcap-after-mask", "pre-qk-norm-capped", None),
        ("scale-by-share-of-width", "pre-gelu", Inapplicable.OWN_HEAD_SIZE),
        ("scale-by-share-of-width", "pre-buckets", None),
        ("scale-missing", "pre-buckets", Inapplicable.ROOT_OF_ONE),
        ("scale-missing", "sandwich-window", None),
        ("first-norm-added", "pre-window-shiftless", None),
        ("first-norm-added", "pre-gelu", Inapplicable.OTHER_CHOICE),
        ("layer-scale-before-bias", "pre-layer-scale", None),
        ("residual-scale-on-skip", "pre-layer-scale", Inapplicable.NO_STEP),
        ("sandwich-norms-of-sums", "sandwich-window", None),
        ("sandwich-norms-of-sums", "res-post", Inapplicable.OTHER_CHOICE),
        ("branch-norms-of-sums", "res-post", None),
        ("branch-norms-of-sums", "sandwich-window", Inapplicable.OTHER_CHOICE),
        ("branch-norms-of-sums", "pre-gelu", Inapplicable.OTHER_CHOICE),
        ("network-after-attention", "pre-parallel", None),
        ("network-after-attention", "pre-parallel-one-norm", Inapplicable.NO_STEP),
        ("network-after-attention", "pre-gelu", Inapplicable.OTHER_CHOICE),
        ("network-beside-attention", "pre-gelu", None),
        ("network-beside-attention", "pre-rms-silu", None),
        ("network-beside-attention", "pre-parallel", Inapplicable.OTHER_CHOICE),
        ("network-beside-attention", "post-gelu", Inapplicable.OTHER_CHOICE),
        ("norm-placement-pre", "sandwich-window", Inapplicable.OTHER_CHOICE),
        ("position-bias-of-first-head", "pre-buckets", None),
        ("position-bias-of-layer-0-alone", "pre-buckets", Inapplicable.NO_STEP),
        ("embedding-scale-missing", "encoder-scaled", None),
        ("embedding-scale-missing", "encoder-pre-gelu", Inapplicable.OWN_CHOICE),
        ("embedding-scaled", "encoder-scaled", Inapplicable.OWN_CHOICE),
        ("global-layers-theta-of-others", "encoder-scaled", Inapplicable.NO_STEP),
        ("positions-table-from-row-0", "encoder-patches", Inapplicable.OWN_CHOICE),
        ("positions-table-padding-skipped", "encoder-shared-bias", Inapplicable.OWN_CHOICE),
        ("token-types-missing", "encoder-patches", Inapplicable.NO_STEP),
    ],
)
def test_why_a_deviation_cannot_apply(name: str, layer: str, reason: Inapplicable | None) -> None:
    assert why_not(catalogue()[name], cases_of(layer)) is reason


def test_wrong_scores_of_a_layer_that_divides_by_the_root_of_d_model() -> None:
    case = SPECIFICATION.cases[f"{E}/no-mask"]
    right = simulate(case, [])["attention_scores"]
    for name, factor in (
        ("scale-missing", 18**0.5),
        ("scale-twice", 18**-0.5),
        ("scale-multiplied", 18.0),
        ("scale-by-head-dim", 3**0.5),
    ):
        assert simulate(case, [catalogue()[name]])["attention_scores"] == pytest.approx(factor * right, rel=1e-12), name
    at_query = simulate(case, [catalogue()["scale-at-query"]])
    assert at_query["attention_scores"] == pytest.approx(right, rel=1e-12)


def test_wrong_norms_of_a_layer_with_rms_norm() -> None:
    case = SPECIFICATION.cases["pre-rms-silu/no-mask"]
    x, gain, epsilon = case.x(), case.parameters()["norm1.gain"], np.float64(case.layer.norm.epsilon)
    over_positions = np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon)
    centred = x - x.mean(-1, keepdims=True)
    for name, due in (
        ("norm-over-positions", x / over_positions * gain),
        ("norm-gain-plus-one", x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * (gain + 1)),
        ("norm-eps-outside-root", x / (np.sqrt((x**2).mean(-1, keepdims=True)) + epsilon) * gain),
        ("norm-layer-norm", centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gain),
        ("norm1-skipped", x),
    ):
        assert simulate(case, [catalogue()[name]])["norm1"] == pytest.approx(due, rel=1e-12), name


@pytest.mark.release
def test_an_empty_selection_says_why_and_what_to_ask(maintain: Callable) -> None:
    ended = maintain("deviations", "--deviation", "embedding-scaled", "--case", f"{E}/*", "--dtype", "float32")
    assert ended.status == 0
    [sentence] = [line for line in ended.stdout.splitlines() if line]
    assert sentence.startswith(f"embedding-scaled changes nothing in the cases asked of {E}: the layer does not take")
    assert "Ask --case 'embedding-post-relu/*'" in sentence


@pytest.mark.release
def test_what_is_played_and_changes_no_number_says_so_below_its_row(maintain: Callable) -> None:
    ended = maintain("deviations", "--deviation", "mask-filled-minus-1e9", "--case", f"{E}/*")
    assert "| `mask-filled-minus-1e9` |" in ended.stdout
    assert f"nothing in the cases asked of {E}: played, it gives the right numbers to the last bit. Ask" in ended.stdout


@pytest.mark.release
def test_what_training_alone_shows_says_where_it_is_named(maintain: Callable) -> None:
    asked = ("--case", f"{E}/no-mask", "--case", "pre-gelu-dropout/no-mask")
    ended = maintain("deviations", "--deviation", "ffn-activation-dropout-missing", *asked)
    assert f"in the cases asked of {E}: the layer drops nothing there. Ask conform run" in ended.stdout
    assert "pre-gelu-dropout: it shows in training alone, where the check dropout names it. Ask conform" in ended.stdout


@pytest.mark.release
def test_the_reasons_go_beside_the_json(maintain: Callable) -> None:
    ended = maintain("deviations", "--deviation", "embedding-scaled", "--case", f"{E}/no-mask", "--json")
    assert ended.stdout.strip() == "[]"
    assert "embedding-scaled changes nothing" in ended.stderr
