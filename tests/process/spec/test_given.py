"""One thing in many forms (clauses S-2, M-7 to M-9, T-2): who misreads one form fails there, and only there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoder_conformance import Masks
from encoder_conformance.spec.load import load
from encoder_conformance.spec.outcome import Outcome

CASES = {case.partition("/")[2]: case for case in load().cases if case.startswith("pre-gelu/")}
READS = """
def output(self, x, masks, run):
    from dataclasses import replace
    {body}
    return super().output(x, masks, run)
"""
# The body of a misreading; the situations that it fails; those that it passes all the same.
MISREADINGS = {
    "true-always-attends": (
        "masks = replace(masks, encoding='attend') if masks.encoding == 'ignore' else masks",
        ("padding-ignore", "padding-2d-ignore", "mask-ignore"),
        ("padding-right", "padding-2d", "padding-integer"),
    ),
    "true-always-ignores": (
        "masks = replace(masks, encoding='ignore') if masks.encoding == 'attend' else masks",
        ("padding-right", "mask-drawn"),
        ("padding-ignore", "padding-integer"),
    ),
    "integers-mean-ignore": (
        "masks = replace(masks, padding=1 - masks.padding) if masks.encoding == 'integer' else masks",
        ("padding-integer",),
        ("padding-right", "padding-additive"),
    ),
    "numbers-read-as-truth": (
        "masks = replace(masks, encoding='integer') if masks.encoding.startswith('additive') else masks",
        ("padding-additive", "padding-additive-float32", "mask-additive"),
        ("padding-right", "padding-integer"),
    ),
    "ones-and-zeros-added": (
        "masks = replace(masks, encoding='additive') if masks.encoding == 'float' else masks",
        ("padding-float", "mask-per-item-float"),
        ("padding-integer", "mask-per-item-integer", "padding-additive"),
    ),
    "integers-of-the-first-item-for-all": (
        "attention = masks.attention if masks.encoding == 'integer' else None\n"
        "    masks = masks if attention is None else replace(masks, attention=attention[:1])",
        ("mask-per-item-integer",),
        ("mask-integer", "mask-per-item", "mask-per-item-float"),
    ),
    "flag-ignored": (
        "masks = replace(masks, causal=False)",
        ("causal-flag", "causal-flag-padding"),
        ("causal", "causal-flag-and-mask", "causal-additive"),
    ),
    "flag-takes-the-masks-place": (
        "masks = replace(masks, padding=None, attention=None) if masks.causal else masks",
        ("causal-flag-padding-left-ignore",),
        ("causal-flag", "causal-flag-and-mask", "causal-flag-padding"),  # what pads on the right is never before
    ),
    "heads-before-items": (
        "if masks.attention is not None and masks.attention.ndim == 3:\n"
        "        B, S = len(x), x.shape[1]\n"
        "        turned = masks.attention.reshape(-1, B, S, S).swapaxes(0, 1).reshape(-1, S, S)\n"
        "        masks = replace(masks, attention=np.ascontiguousarray(turned))",
        ("mask-3d", "mask-3d-additive"),
        ("mask-2d", "mask-per-item-and-head"),
    ),
    "bias-dropped": (
        "masks = replace(masks, bias=None)",
        ("alibi", "alibi-padding"),
        ("alibi-in-mask", "padding-right"),
    ),
    "bias-in-the-mask-dropped": (
        "if masks.encoding == 'additive' and masks.attention is not None:\n"
        "        masks = replace(masks, attention=np.where(np.isneginf(masks.attention), masks.attention, 0))",
        ("alibi-in-mask",),
        ("alibi", "alibi-padding", "mask-additive"),
    ),
    "sequence-first-unknown": (
        "run = replace(run, layout='batch_first')",
        ("sequence-first", "sequence-first-causal-flag"),
        ("no-mask",),
    ),
}


ASKED_EVERY_TIME = {"true-always-attends", "numbers-read-as-truth", "flag-ignored", "bias-dropped"}
"""Each of another kind."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ASKED_EVERY_TIME else pytest.mark.release) for name in MISREADINGS]
)
def test_a_misreading_fails_where_it_matters(conform: Callable, fake: Callable, name: str) -> None:
    body, wrong, right = MISREADINGS[name]
    folder = fake(name.replace("-", "_"), READS.format(body=body), checks="[output]")
    asked = [word for situation in (*wrong, *right) for word in ("--case", CASES[situation])]
    ended = conform("run", "--impl", folder, "--dtype", "float32", *asked, diagnosed=False)
    assert ended.status == 1, ended.stdout + ended.stderr
    judged = [record for record in ended.report["records"] if record["check"] == "output"]
    outcomes = {record["case"].partition("/")[2]: record["outcome"] for record in judged}
    assert {outcomes[situation] for situation in right} == {"pass"}
    assert {outcomes[situation] for situation in wrong} <= {"fail", "error"}


AS_MADE = """
def output(self, x, masks, run):
    made = super().output(run.batch_first(x), masks, RunRequest())
    return made
"""
ANSWERS = {
    "a-layout-that-was-not-asked-for": (
        AS_MADE,
        "sequence-first",
        "output: shape [2, 10, 24] instead of [10, 2, 24], sequence_first",
    ),
    "a-batch-axis-that-was-not-there": (
        AS_MADE,
        "unbatched",
        "output: shape [1, 7, 24] instead of [7, 24], unbatched",
    ),
    "padding-that-leaks": (
        "def output(self, x, masks, run):\n    return super().output(x, masks, run) + 0 * x.sum(axis=1, keepdims=True)",
        "padded-item-nan",
        "",
    ),
    "padding-that-overflows": (
        "def output(self, x, masks, run):\n"
        "    return super().output(x, masks, run) + 0 * (x * x).sum(axis=1, keepdims=True)",
        "padding-huge",
        "nan at",
    ),
    "an-item-that-leaks": (
        "def output(self, x, masks, run):\n    return super().output(x, masks, run) + 0 * x.sum(axis=(0, 1))",
        "padded-item-nan",
        "nan at",
    ),
    "weights-averaged-over-the-heads": (
        "def weights(self, x, masks, run):\n    seen = super().weights(x, masks, run)\n"
        "    return {**seen, 'attention_weights': seen['attention_weights'].mean(axis=1)}",
        "weights-returned",
        "attention_weights: shape [2, 10, 10] instead of [2, 3, 10, 10]",
    ),
    "weights-of-one-head": (
        "def weights(self, x, masks, run):\n    seen = super().weights(x, masks, run)\n"
        "    w = seen['attention_weights']\n    return {**seen, 'attention_weights': np.repeat(w[:, :1], 3, axis=1)}",
        "weights-returned",
        "attention_weights: rms",
    ),
    "checkpointing-that-forgets": (
        "def gradients(self, x, masks, run, cotangent):\n    found = super().gradients(x, masks, run, cotangent)\n"
        "    return {**found, 'norm1.gain': 0 * found['norm1.gain']} if run.checkpoint else found",
        "checkpointed",
        "norm1.gain: rms",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_in_the_wrong_form_is_said(conform: Callable, fake: Callable, name: str) -> None:
    lie, situation, said = ANSWERS[name]
    folder = fake(name.replace("-", "_"), lie)
    ended = conform("run", "--impl", folder, "--dtype", "float32", "--case", CASES[situation], diagnosed=False)
    if not said:  # of the leaking item itself nothing is specified, and the other is untouched
        assert ended.status == 0, ended.messages()
        return
    assert ended.status == 1, ended.stdout + ended.stderr
    assert said in ended.messages()
    assert {r["outcome"] for r in ended.report["records"] if r["message"]} == {Outcome.FAIL.value}


B, H, S = 2, 3, 4
MASK = np.arange(B * H * S * S).reshape(B, H, S, S) % 3 > 0


def test_masks_are_read_from_every_form() -> None:
    padding = np.array([[True, True, False, True], [True, False, False, False]])
    for given in (padding, padding[:, None], padding[:, None, None]):
        assert np.array_equal(Masks(given, None).joined(H), padding[:, None, None])
        assert np.array_equal(Masks(given, None).valid(), padding)
        assert np.array_equal(Masks(~given, None, encoding="ignore").joined(H), padding[:, None, None])
        assert np.array_equal(Masks(given.astype(np.int32), None, encoding="integer").joined(H), padding[:, None, None])
        assert np.array_equal(Masks(given.astype(np.float64), None, encoding="float").joined(H), padding[:, None, None])
        numbers = np.where(given, 0.0, -np.inf)
        assert np.array_equal(Masks(numbers, None, encoding="additive").joined(H), padding[:, None, None])
    assert np.array_equal(Masks(None, MASK.reshape(-1, S, S)).joined(H), MASK)
    assert np.array_equal(Masks(None, MASK[0, 0]).joined(H), MASK[:1, :1])
    assert np.array_equal(Masks(padding, MASK).joined(H), MASK & padding[:, None, None])
    causal = np.tri(S, dtype=bool)[None, None]
    assert np.array_equal(Masks(None, None, causal=True, sequence=S).joined(H), causal)
    assert np.array_equal(Masks(padding, None, causal=True, sequence=S).joined(H), causal & padding[:, None, None])


def test_numbers_in_a_mask_that_do_not_mask_are_a_bias() -> None:
    bias = np.linspace(-3, 0, S * S).reshape(1, 1, S, S)
    given = np.where(MASK, bias, -np.inf)
    masks = Masks(None, given, encoding="additive")
    assert np.array_equal(masks.joined(H), MASK)
    assert np.array_equal(masks.added(H), np.where(MASK, bias, 0.0))
    assert Masks(None, np.where(MASK, 0.0, -np.inf), encoding="additive").added(H) is None
    assert Masks(None, MASK, bias=bias).added(H) is bias


def test_what_is_given_wrongly_is_refused(tmp_path: Path) -> None:
    """Each of these is a situation that no implementation could be given."""
    from encoder_conformance.platform.errors import InputError
    from encoder_conformance.platform.paths import SPECS
    from encoder_conformance.spec.situation import Situation
    from encoder_conformance.spec.yaml_file import read_model

    text = (SPECS / "situations" / "mask-per-head.yaml").read_text()
    for old, new, said in (
        ("rank: 4", "rank: 2", "differs along H,S,S"),
        ("layout: batch_first", "layout: unbatched", "needs batch 1 and masks of rank 2"),
        ("layout: batch_first", "layout: sequence_first", "stages and weights have no other layout"),
        ("flaw: null", "flaw: num_heads", "checks lacks refusal"),
        ("invariant: null", "invariant: layout", "checks lacks invariant"),
    ):
        path = tmp_path / "mask-per-head.yaml"
        path.write_text(text.replace(old, new))
        with pytest.raises(InputError, match=said):
            read_model(path, Situation)
