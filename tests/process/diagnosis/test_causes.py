"""What is wrong and is no number has a line of its own: one for each cause, with what its author would do."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from products import daily

from encoder_conformance.diagnosis.advice import ADVICE
from encoder_conformance.spec.situation import Flaw, Invariant

NAMES_NOTHING = """
def build(self, layer, parameters, dtype):
    if layer["d_model"] % layer["attention"]["num_heads"]:
        raise ValueError("heads do not divide")
    return super().build(layer, parameters, dtype)
"""
NO_KEY_GIVES_NAN = """
def _forward(self, x, masks, run):
    tape, by_x, parameters, stages = super()._forward(x, masks, run)
    mask = masks.joined(self.layer.attention.num_heads)
    if mask is not None:
        lost = ~mask.any(-1).all(1)
        for name in ("attention_output", "residual1", "output"):
            value = stages[name].value
            value[np.broadcast_to(lost, value.shape[:2])] = np.nan
    return tape, by_x, parameters, stages
"""
PADDING_LEAKS = """
def _forward(self, x, masks, run):
    tape, by_x, parameters, stages = super()._forward(x, masks, run)
    if masks.valid() is not None:
        with np.errstate(all="ignore"):
            leak = (x * ~masks.valid()[:, :, None]).sum((1, 2), keepdims=True) * self.dtype_of(1e-20)
        stages["output"].value[...] += np.where(np.abs(leak) < 1, 0, leak)
    return tape, by_x, parameters, stages

def dtype_of(self, value):
    return np.dtype(self.dtype).type(value)
"""
TWICE = """
def output(self, x, masks, run):
    return super().output(x, masks, run) * 2
"""
REFUSES_ONCE = """
refused = False

def refusal(self, *asked):
    self.refused = True
    return super().refusal(*asked)

def output(self, x, masks, run):
    return super().output(x, masks, run) * np.float32(not self.refused)
"""
NAN_GRADIENT = """
def gradients(self, x, masks, run, cotangent):
    found = super().gradients(x, masks, run, cotangent)
    mask = masks.joined(self.layer.attention.num_heads)
    if mask is not None and not mask.any(-1).all():
        found["attention.query.weight"] = found["attention.query.weight"] * np.nan
        found["attention.key.weight"] = found["attention.key.weight"] * np.nan
    return found
"""
NAN_GOES_ON = """
def output(self, x, masks, run):
    found = super().output(x, masks, run)
    first = found if run.layout == "batch_first" else found.swapaxes(0, 1)
    mask = masks.joined(self.layer.attention.num_heads)
    if mask is not None and not mask.any(-1).all():
        first[0, 2] = np.nan
    return found
"""
"""NaN in a row beside those that have no key, as a matrix product makes it that reads beyond a row."""
MIXES_ITEMS = """
def output(self, x, masks, run):
    return super().output(x, masks, run) + run.batch_first(x).mean() * (1 if len(x) != 2 else 0)
"""
SORTS_ITEMS = """
def output(self, x, masks, run):
    found = super().output(x, masks, run)
    if masks.padding is None or run.layout != "batch_first":
        return found
    order = np.argsort(-masks.valid().sum(1), kind="stable")
    return found[order][order]
"""
"""What is sorted by length is put back by the order in place of its inverse."""

CUTS_THE_BATCH = """
def output(self, x, masks, run):
    return super().output(x, masks, run)[:1]
"""
TABLE_OF_16 = """
def output(self, x, masks, run):
    found = super().output(x, masks, run)
    at = np.arange(x.shape[1] if run.layout == "batch_first" else len(x))
    return found + 0.01 * (at - np.minimum(at, 15)).astype(found.dtype)[:, None]
"""
"""Positions beyond a table have the place of its last."""


def lines(ended: Any) -> list[str]:
    return [line for line in ended.stdout.splitlines() if line.startswith("⇒")]


def asking(*cases: str) -> tuple[str, ...]:
    return tuple(word for case in cases for word in ("--case", case))


def test_an_error_that_lacks_the_numbers_is_one_line(conform: Callable, fake: Callable) -> None:
    cases = asking("pre-gelu/refuse-num-heads", "post-relu/refuse-num-heads")
    [line] = lines(conform("run", "--impl", fake("mute", NAMES_NOTHING), *cases))
    assert line.startswith("⇒ mute float32, float64: Seen: ")
    assert "does not name 6 and 20" in line
    assert "name both numbers in it (X-1, X-2, L-1). In post-relu/refuse-num-heads and 1 more case." in line


def test_each_cause_has_its_own_line(conform: Callable, fake: Callable) -> None:
    cases = asking("pre-gelu/refuse-num-heads", "pre-gelu/invariant-batch", "pre-gelu/no-mask")
    ended = conform("run", "--impl", fake("two", NAMES_NOTHING + MIXES_ITEMS), *cases, "--dtype", "float32")
    found = lines(ended)
    assert len(found) == 2, ended.stdout
    assert any("An invariant is broken: batch_independence: item 0 alone gives" in line for line in found)
    assert all(each["advice"] for each in ended.report["diagnoses"])


def test_an_answer_of_another_shape_breaks_no_invariant(conform: Callable, fake: Callable) -> None:
    """Nothing was compared with it: it says nothing of chance, of other items or of positions."""
    cases = asking("pre-gelu/invariant-determinism", "pre-gelu/invariant-permutation", "pre-gelu/no-mask")
    ended = conform("run", "--impl", fake("cut", CUTS_THE_BATCH), *cases, "--dtype", "float32")
    assert set(ended.outcomes("invariant")) == {"fail"}
    [line] = lines(ended)
    assert "output has the shape [1, 10, 24], and not [2, 10, 24]" in line


@pytest.mark.release
def test_what_is_refused_rightly_is_not_said_of_wrong_numbers(conform: Callable, fake: Callable) -> None:
    """The check fails, since what is right comes out wrong; it did before anything wrong was given."""
    cases = asking("pre-gelu/refuse-num-heads", "pre-gelu/no-mask", "pre-gelu/padding-right")
    ended = conform("run", "--impl", fake("scaled", TWICE), *cases, "--dtype", "float32")
    assert set(ended.outcomes("refusal")) == {"fail"}
    [diagnosis] = ended.report["diagnoses"]
    assert "pre-gelu/refuse-num-heads" not in diagnosis["cases"]
    assert "what is wrong is refused; what is right comes out wrong, before and after: output: rms" in ended.stdout


def test_a_layer_that_a_refusal_changes_is_said_to_be(conform: Callable, fake: Callable) -> None:
    cases = asking("pre-gelu/refuse-num-heads", "pre-gelu/no-mask")
    [line] = lines(conform("run", "--impl", fake("changed", REFUSES_ONCE), *cases, "--dtype", "float32"))
    assert "A refusal leaves the layer otherwise than it was: after refusing what is wrong: output: rms" in line
    assert "not refused" not in line


@pytest.mark.release
def test_a_wrong_layer_is_not_said_to_refuse_nothing(conform: Callable, fake: Callable) -> None:
    """What fails there is the answer to what is right, which numbers explain."""
    cases = asking("pre-gelu/refuse-feature-size", "pre-gelu/no-mask", "pre-gelu/low-variance")
    wrong = """
    def build(self, layer, parameters, dtype):
        layer["norm"]["epsilon"] = 1e-3
        return super().build(layer, parameters, dtype)
    """
    [line] = lines(conform("run", "--impl", fake("epsilon", wrong), *cases, "--dtype", "float32"))
    assert "Cause: Both norms' epsilon is 1e-3, the default of Keras (norm-eps-1e-3), " in line


@pytest.mark.release
def test_a_query_with_no_key_that_gives_nan_is_said(conform: Callable, fake: Callable) -> None:
    cases = asking("post-relu-zero-rows/blind-queries-padding", "post-relu-zero-rows/no-mask")
    folder = fake("blind", NO_KEY_GIVES_NAN, checks="[output, stages]")
    [line] = lines(conform("run", "--impl", folder, *cases, "--dtype", "float32"))
    assert (
        "A query with no key to attend to gives NaN or infinity: first in output." in line or "attention_output" in line
    )
    assert "(M-4)" in line


@pytest.mark.release
def test_nan_where_a_query_has_keys_is_not_laid_to_one_that_has_none(conform: Callable, fake: Callable) -> None:
    cases = asking("post-relu-zero-rows/padded-item", "post-relu-zero-rows/no-mask")
    folder = fake("beside", NAN_GOES_ON, checks="[output]")
    [line] = lines(conform("run", "--impl", folder, *cases, "--dtype", "float32"))
    assert "NaN or infinity comes out where a query has keys, beside queries that have none: first in output." in line
    assert "A query with no key to attend to gives" not in line
    assert "what reads beyond a row" in line


@pytest.mark.release
def test_in_a_stack_nan_spreads_by_the_next_layers_keys(conform: Callable, fake: Callable) -> None:
    cases = asking("stack-post-relu/padded-item", "stack-post-relu/no-mask")
    folder = fake("stacked", NAN_GOES_ON, checks="[output]")
    [line] = lines(conform("run", "--impl", folder, *cases, "--dtype", "float32"))
    assert "A query with no key to attend to gives NaN or infinity: first in output." in line
    assert "what reads beyond a row" not in line


@pytest.mark.release
@pytest.mark.parametrize("padding", daily(("padding-nan",), ("padding-huge", "padding-nan", "padding-infinity")))
def test_padding_that_leaks_is_said(conform: Callable, fake: Callable, padding: str) -> None:
    folder = fake("leaks", PADDING_LEAKS, checks="[output, stages]")
    ended = conform("run", "--impl", folder, *asking(f"post-relu-zero-rows/{padding}"), "--dtype", "float32")
    [line] = lines(ended)
    assert "What stands at padded positions comes out elsewhere: first in output." in line
    assert "(M-8)" in line


def test_a_gradient_that_alone_is_nan_is_named(conform: Callable, fake: Callable) -> None:
    cases = asking("post-relu-zero-rows/blind-queries-padding")
    ended = conform("run", "--impl", fake("backward", NAN_GRADIENT), *cases, "--dtype", "float32")
    [line] = lines(ended)
    assert "The forward pass is right, and a gradient is NaN or infinite: first attention.query.weight." in line
    assert "fully-masked-row-nan" in line
    assert "In post-relu-zero-rows/blind-queries-padding." in line
    assert "explained" not in line
    assert line in conform("explain").stdout


@pytest.mark.release
def test_items_that_are_put_back_by_the_wrong_index_are_said_to_be_permuted(conform: Callable, fake: Callable) -> None:
    cases = asking("pre-gelu/items-unsorted", "pre-gelu/padding-right", "pre-gelu/no-mask")
    folder = fake("sorts", SORTS_ITEMS, checks="[output, stages]")
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    [line] = lines(ended)
    assert (
        "Seen: Items are permuted: items 0 to 3 have the outputs of items 3, 2, 1, 0: they are sorted by length" in line
    )
    assert "In pre-gelu/items-unsorted." in line


def test_what_explains_the_numbers_is_not_said_again(conform: Callable, fake: Callable) -> None:
    """An inverted mask lets padding in: one cause, though an invariant is broken too."""
    inverted = """
    def _forward(self, x, masks, run):
        joined = masks.joined()
        return super()._forward(x, Masks(None, None if joined is None else ~joined, masks.bias), run)
    """
    cases = asking("pre-gelu/padding-right", "pre-gelu/invariant-padding-content")
    folder = fake("inverted", inverted, checks="[output, stages]")
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    assert "fail" in ended.outcomes("invariant")
    [line] = lines(ended)
    assert "(mask-inverted), " in line


def test_every_invariant_and_every_flaw_has_its_advice() -> None:
    kinds = {f"invariant {each}" for each in get_args(Invariant)} | {f"refusal {each}" for each in get_args(Flaw)}
    assert kinds <= ADVICE.keys()


OFF_BESIDE = """
def output(self, x, masks, run):
    found = super().output(x, masks, run)
    return found * 2 if masks.joined(self.layer.attention.num_heads) is None else found
"""
"""Wrong without a mask, beside gradients that are NaN with one."""


@pytest.mark.release
def test_a_forward_pass_is_right_where_all_of_it_is_in_line(conform: Callable, fake: Callable) -> None:
    """Another case of the layer is out of line; or one of another layer, which says nothing of this one."""
    cases = asking("pre-gelu/no-mask", "pre-gelu/padded-item")
    both = conform("run", "--impl", fake("both", NAN_GRADIENT + OFF_BESIDE), *cases, "--dtype", "float32")
    [line] = [line for line in lines(both) if "gradient is NaN" in line]
    assert "The forward pass is right" not in both.stdout
    assert "Seen: A gradient is NaN or infinite: first attention.query.weight." in line
    cases = asking("post-relu/no-mask", "pre-gelu/padded-item")
    other = conform("run", "--impl", fake("other", NAN_GRADIENT + OFF_BESIDE), *cases, "--dtype", "float32")
    [line] = [line for line in lines(other) if "gradient is NaN" in line]
    assert "The forward pass is right, and a gradient is NaN or infinite: first attention.query.weight." in line


def test_what_is_right_up_to_a_length_alone_is_said_to_be(conform: Callable, fake: Callable) -> None:
    """No stage of a short case is among the last right ones: there the output is right, too."""
    cases = asking("post-relu/no-mask", "post-relu/padding-right", "post-relu/length-20")
    [line] = lines(conform("run", "--impl", fake("table", TABLE_OF_16), *cases, "--dtype", "float32"))
    assert "Right in every case of up to 10 positions, and wrong in every one of 20 or more: look for a table" in line
    assert "Last right stages" not in line
