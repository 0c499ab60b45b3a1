"""What layers that others wrote need of a manifest, and of diagnosis: fakes that are wrong as those are."""

from collections.abc import Callable

import numpy as np
import pytest
from products import of_a_release

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

EPSILON = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-3})})
    return held
"""
ZERO_ROWS = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    attention = self.layer.attention.model_copy(update={"fully_masked_row": "zero"})
    self.layer = self.layer.model_copy(update={"attention": attention})
    return held
"""
NO_BIASES = """
def build(self, layer, parameters, dtype):
    lacking = [name for name in parameters if name.startswith("attention") and name.endswith("bias")]
    held = {name: value for name, value in parameters.items() if name not in lacking}
    super().build(layer, parameters | {name: np.zeros_like(parameters[name]) for name in lacking}, dtype)
    return held
"""
LACKS = "[{}]".format(", ".join(f"attention.{name}.bias" for name in ("query", "key", "value", "output")))


def declaring(name: str, when: str = "") -> str:
    said = f"when: {{{when}}}, " if when else ""
    return f'[{{deviation: {name}, {said}reason: "known and accepted", link: "https://example.org"}}]'


@pytest.mark.release
def test_a_deviation_may_be_declared_of_some_cases_alone(conform: Callable, fake: Callable) -> None:
    folder = fake("epsilon", EPSILON, deviations=declaring("norm-eps-1e-3", "placement: pre"))
    cases = ("--case", "pre-gelu/no-mask", "--case", "post-relu/no-mask", "--dtype", "float32")
    ended = conform("run", "--impl", folder, *cases)
    by_case = {record["case"]: record["outcome"] for record in ended.report["records"] if record["check"] == "output"}
    assert by_case == {"pre-gelu/no-mask": "deviates", "post-relu/no-mask": "fail"}


@pytest.mark.parametrize(
    ("when", "cannot"),
    [
        ("epsilon: [1.0e-12, 1.0e-6]", {"post-gelu-bert/no-mask"}),
        ("embedding: true", {"encoder-pre-gelu/tokens"}),
        ("embedding: false", {"post-gelu/no-mask", "post-gelu-bert/no-mask", "post-relu-dropout/no-mask"}),
        ("dropout_rates: several", {"post-relu-dropout/no-mask"}),
        ("dropout_rates: none", {"post-gelu/no-mask", "post-gelu-bert/no-mask", "encoder-pre-gelu/tokens"}),
        ("dropout_rates: one", set()),
    ],
)
def test_what_a_fixed_architecture_cannot_build_is_said_by_its_choices(
    conform: Callable, fake: Callable, when: str, cannot: set[str]
) -> None:
    cases = ("post-gelu/no-mask", "post-gelu-bert/no-mask", "encoder-pre-gelu/tokens", "post-relu-dropout/no-mask")
    said = f'[{{when: {{{when}}}, reason: "It is fixed", link: "https://example.org"}}]'
    asked = [word for case in cases for word in ("--case", case)]
    ended = conform("run", "--impl", fake("fixed", unsupported=said), *asked, "--dtype", "float32")
    unsupported = {record["case"] for record in ended.report["records"] if record["outcome"] == "unsupported"}
    assert unsupported == cannot
    assert ended.status == 0


@pytest.mark.parametrize("layer", ["pre-gelu-uniform-rows", "post-gelu-nan-rows"])
def test_a_row_with_no_key_deviates_as_declared(conform: Callable, fake: Callable, layer: str) -> None:
    folder = fake("zero_rows", ZERO_ROWS, deviations=declaring("fully-masked-row-zero"))
    ended = conform("run", "--impl", folder, "--case", f"{layer}/blind-queries*", "--dtype", "float32")
    assert set(ended.outcomes("output")) == {"deviates"}, ended.messages()
    assert ended.status == 0


def test_rows_that_are_not_there_take_no_gradient_out_of_judgement(conform: Callable, fake: Callable) -> None:
    """Nor do rows that nobody specifies."""
    folder = fake("zero_rows", ZERO_ROWS, deviations=declaring("fully-masked-row-zero"))
    cases = ("pre-gelu-uniform-rows/no-mask", "pre-gelu/blind-queries", "pre-gelu-uniform-rows/blind-queries")
    asked = [word for case in cases for word in ("--case", case)]
    ended = conform("run", "--impl", folder, *asked, "--dtype", "float32")
    found = {record["case"]: record["outcome"] for record in ended.report["records"] if record["check"] == "gradients"}
    assert found == dict(zip(cases, ("pass", "pass", "unsupported"), strict=True))


@pytest.mark.release
def test_a_layer_that_lacks_parameters_says_so(conform: Callable, fake: Callable) -> None:
    cases = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
    silent = conform("run", "--impl", fake("silent", NO_BIASES), *cases, diagnosed=False)
    assert set(silent.outcomes()) == {"error"}
    assert "parameters missing from the built layer: attention.key.bias" in silent.messages()
    missing = f"all\n  missing_parameters: {LACKS}"
    saying = fake("saying", NO_BIASES, stages=missing, deviations=declaring("attention-biases-missing"))
    assert set(conform("run", "--impl", saying, *cases, diagnosed=False).outcomes("output")) == {"deviates"}
    hiding = fake("hiding", NO_BIASES, stages=missing)
    assert set(conform("run", "--impl", hiding, *cases, diagnosed=False).outcomes("output")) == {"fail"}


def test_what_a_layer_lacks_is_a_parameter(conform: Callable, fake: Callable) -> None:
    ended = conform(
        "run", "--impl", fake("odd", stages="all\n  missing_parameters: [norm3.shift]"), "--case", "pre-gelu/no-mask"
    )
    assert ended.status == 2
    assert "missing_parameters names norm3.shift, which the specification does not know" in ended.stderr


def seen(
    case_id: str, *ids: str, dtype: str = "float32", shown: float = 1.0, stored_in: str | None = None
) -> Observation:
    """A layer with these deviations; `shown` multiplies its answer, `stored_in` is the format of its sums."""
    case = load().cases[case_id]
    expected = read_golden(case, read_golden_manifest(), constants())
    wrong = deviant(case, [catalogue()[name] for name in ids]).stages(Arithmetic(np.float32, stored_in=stored_in))
    names = stages(case.layer) if "stages" in case.situation.checks else ("output",)
    answers = {name: (wrong[name] * shown).astype(dtype) for name in names}
    check = "stages" if "stages" in case.situation.checks else "output"
    outcome = judge(check, names, answers, expected, FORMATS["float32"]).outcome
    return observation_of(case, expected, FORMATS["float32"], answers, failed=outcome != Outcome.PASS)


@pytest.mark.release
def test_a_head_split_is_named_beside_what_nobody_specifies() -> None:
    """As Lucid 2.9.0 is wrong: it carries uniform rows, where the oracle has zeros, and what stands at padding, into
    valid positions, and gives float64 where a flag says causal."""
    observations = [
        seen("post-relu/no-mask", "heads-by-reshape"),
        seen("post-relu/causal", "heads-by-reshape"),
        seen("post-relu/padding-right", "heads-by-reshape"),
        seen("post-relu/blind-queries", "heads-by-reshape", "fully-masked-row-uniform"),
        seen("post-relu/padding-huge", "heads-by-reshape", shown=2.0**100),
        seen("post-relu/causal-flag", "heads-by-reshape", dtype="float64"),
    ]
    assert all(observation.failed for observation in observations)
    diagnosis = diagnose(Failing("lucid", "float32"), observations)
    assert (diagnosis.confidence, diagnosis.deviations) == ("explained", ("heads-by-reshape",))


@pytest.mark.release
@pytest.mark.parametrize("stored_in", ["float32", "float64"])
@pytest.mark.parametrize("name", ["mask-added-minus-1e9", of_a_release("mask-added-minus-1e12")])
def test_a_number_beside_which_float32_loses_the_scores_is_named(name: str, stored_in: str) -> None:
    """Then a query with no key attends to all alike, and not as its scores say; unless the sum is a wider one."""
    blind = ("post-gelu-nan-rows/blind-queries-padding-forward", "post-relu-zero-rows/blind-queries-padding")
    cases = (*blind, "post-relu/extreme-logits", "pre-gelu/padding-right", "post-relu/no-mask")
    found = diagnose(Failing("it", "float32"), [seen(case, name, stored_in=stored_in) for case in cases])
    assert found.confidence == "explained", found
    assert (name,) in (found.deviations, *found.indistinguishable)


@pytest.mark.release
@pytest.mark.parametrize("name", ["mask-strictly-causal", of_a_release("mask-inverted")])
def test_what_a_wrong_mask_leaves_without_a_key_is_unspecified(name: str) -> None:
    """JAX gives such a query the mean of all values; the layer says nothing of it (M-4)."""
    cases = ("post-relu/causal-flag-and-mask", "pre-gelu/causal-flag-padding-left-ignore", "pre-gelu/no-mask")
    found = diagnose(Failing("it", "float32"), [seen(case, name, "fully-masked-row-uniform") for case in cases])
    assert found.confidence == "explained", found
    assert (name,) in (found.deviations, *found.indistinguishable), found
