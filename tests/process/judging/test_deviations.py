"""Deviations at work: a wrong layer is named, a declared one verified, a stale one found, a bad one refused."""

import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from products import daily, of_a_release

from encoder_conformance.commands.run.update import update_declared
from encoder_conformance.diagnosis.dependence import Repeats
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.noisy_predictions import has_dropout
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.records import Diagnosis, Report
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import active_parts, changes, deviant
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.reports.run.counts import RunCounts, Standing
from encoder_conformance.reports.run.last_lines import last_lines
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages
from encoder_conformance.subjects.plan import plan

LAYERS = ("pre-gelu", "post-relu")
SITUATIONS = ("padding-right", "extreme-logits", "low-variance", "no-mask")
"""With a mask and without, and where a softmax overflows or an epsilon shows."""
SMALL = [f"{layer}/{name}" for layer in LAYERS for name in SITUATIONS]


def asking(cases: Iterable[str]) -> tuple[str, ...]:
    return (*(word for name in cases for word in ("--case", name)), "--dtype", "float32")


CASES = asking(SMALL)
CORE = asking(name for name, case in load().cases.items() if case.level == "core" and case.layer.layer in LAYERS)
EVERY = asking(name for name, case in load().with_golden.items() if case.layer.layer in LAYERS and case.situation.batch)
of_a_part_and_all = pytest.mark.parametrize(
    "asked",
    [
        pytest.param(CASES, id="small"),
        pytest.param(CORE, id="core", marks=pytest.mark.release),
        pytest.param(EVERY, id="all", marks=pytest.mark.release),
    ],
)

EPSILON = """
def build(self, layer, parameters, dtype):
    held = super().build(layer, parameters, dtype)
    self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-3})})
    return held
"""
INVERTED = """
def _forward(self, x, masks, run):
    joined = masks.joined()
    return super()._forward(x, Masks(None, None if joined is None else ~joined, masks.bias), run)
"""
NO_GRADIENTS = '[{when: {check: gradients}, reason: "not asked in this test", link: "https://example.org"}]'


QUICK = {"checks": "[output]"}


def declaring(*ids: str) -> str:
    entries = (f'{{deviation: {name}, reason: "known and accepted", link: "https://example.org"}}' for name in ids)
    return f"[{', '.join(entries)}]"


@pytest.mark.release
@of_a_part_and_all
def test_a_wrong_epsilon_is_named_in_one_line(conform: Callable, fake: Callable, asked: tuple[str, ...]) -> None:
    ended = conform("run", "--impl", fake("epsilon", EPSILON), *asked)
    assert ended.status == 1
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["norm-eps-1e-3"])
    assert diagnosis["rms"] < 2
    assert diagnosis["first_stage"] == diagnosis["predicted_stage"] == "norm1"
    assert diagnosis["amplitude"] == pytest.approx(1, abs=1e-3)
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("⇒ epsilon float32: Cause: ")]
    assert "norm-eps-1e-3" in line
    assert "First wrong stage: norm1." in line
    assert "norm-eps-1e-3" in conform("explain").stdout


ACTIVATIONS = asking(f"{name}/no-mask" for name in ("pre-gelu", "post-relu", "pre-gelu-tanh", "pre-rms-silu"))
"""Each in another layer, and wrong in one of them alone."""
MISTAKEN = {
    "gelu-tanh": ("gelu", "gelu_tanh"),
    "gelu-quick": ("gelu", "quick_gelu"),
    "gelu-exact": ("gelu_tanh", "gelu"),
    "activation-gelu": ("relu", "gelu"),
    "activation-relu": ("gelu", "relu"),
}


@pytest.mark.release
@pytest.mark.parametrize("name", daily(["gelu-tanh"], MISTAKEN))
def test_one_wrong_activation_is_named_beside_right_ones(conform: Callable, fake: Callable, name: str) -> None:
    right, wrong = MISTAKEN[name]
    lie = f"""
    def build(self, layer, *given, **more):
        network = layer["feed_forward"]
        mistaken = {{**network, "activation": "{wrong}"}} if network["activation"] == "{right}" else network
        return super().build({{**layer, "feed_forward": mistaken}}, *given, **more)
    """
    ended = conform("run", "--impl", fake("mistaken", lie, **QUICK), *ACTIVATIONS)
    assert ended.status == 1
    assert sorted(ended.outcomes("output")) == ["fail", "pass", "pass", "pass"]
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", [name])


def test_what_a_layer_cannot_have_is_not_excluded_by_it(conform: Callable, honest: Path) -> None:
    """A run that asks ReLU alone says nothing of GELU."""
    [shown] = conform("run", "--impl", honest, *asking(("post-relu/no-mask",))).report["shown"]
    assert {"gelu-tanh", "gelu-quick", "activation-relu", "gelu-after-ffn"} <= {*shown["not_excluded"]}
    assert not {"activation-gelu", "activation-leaky-relu", "relu-after-ffn"} & {*shown["not_excluded"]}


@pytest.mark.release
def test_two_causes_are_both_named(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("both", EPSILON + INVERTED), *CASES)
    [diagnosis] = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "explained"
    assert set(diagnosis["deviations"]) == {"norm-eps-1e-3", "mask-inverted"}


def test_a_deviation_that_needs_what_another_makes_of_the_layer_acts_beside_it() -> None:
    """A post-norm layer that is computed as pre-norm may norm its output once more."""
    case, pre, extra = load().cases["post-relu/no-mask"], "norm-placement-pre", "final-norm-extra"
    found = [catalogue()[name] for name in (pre, extra)]
    assert not changes(case, found[1])
    assert active_parts(case, found) == found
    alone, both = (deviant(case, some).stages(Arithmetic(np.float64))["output"] for some in (found[:1], found))
    assert not np.allclose(alone, both)


def of_another_pair(*ids: str) -> Any:
    """One more of a kind: a diagnosis of a pair takes seconds."""
    return pytest.param(ids, marks=pytest.mark.release)


@cache
def small_cases() -> list[tuple[Case, Expected]]:
    manifest, cases = read_golden_manifest(), load().cases
    return [(cases[name], read_golden(cases[name], manifest, constants())) for name in SMALL]


def seen(*ids: str, show: tuple[str, ...] | None = None) -> list[Observation]:
    """What a float32 layer with these deviations gives, and its own luck where something is left to chance."""
    found = []
    for case, expected in small_cases():
        wrong = deviant(case, [catalogue()[name] for name in ids]).stages(Arithmetic(np.float32, draw=99))
        names = show or stages(case.layer)
        with np.errstate(over="ignore", invalid="ignore"):
            answers = {name: wrong[name].astype(np.float32) for name in names}
        check = "stages" if show is None else "output"
        outcome = judge(check, names, answers, expected, FORMATS["float32"]).outcome
        found.append(observation_of(case, expected, FORMATS["float32"], answers, failed=outcome != Outcome.PASS))
    return found


def repeats(*ids: str) -> Repeats:
    return "differ" if has_dropout([catalogue()[name] for name in ids]) else "same"


@pytest.mark.release
@pytest.mark.parametrize(
    "ids",
    [
        # The second shows only where a softmax overflows, or where something is masked.
        of_another_pair("softmax-without-largest", "residual1-missing"),
        of_another_pair("mask-filled-minus-10", "residual2-from-normed"),
        # Rounding to a narrow format is as large as the second, and would do in its place.
        of_another_pair("residual2-from-normed", "value-bias-missing"),
        ("final-norm-extra", "key-from-query"),
        # The second is behind what scatters, or is what scatters.
        of_another_pair("dropout-left-on", "attention-output-weight-transposed"),
        of_another_pair("norms-skipped", "attend-in-bfloat16"),
        of_another_pair("linear-in-bfloat16", "ffn-dropout-left-on"),
    ],
    ids=" + ".join,
)
def test_a_pair_is_named(ids: tuple[str, str]) -> None:
    diagnosis = diagnose(Failing("both", "float32", repeats=repeats(*ids)), seen(*ids))
    assert (diagnosis.confidence, set(diagnosis.deviations)) == ("explained", set(ids))


@pytest.mark.release
@pytest.mark.parametrize(
    "name",
    [
        "attention-dropout-left-on",
        *(
            pytest.param(name, marks=pytest.mark.release)
            for name in ("attend-in-tf32", "dropout-left-on", "bfloat16-inside")
        ),
    ],
)
def test_what_scatters_is_named_by_what_else_it_predicts(name: str) -> None:
    diagnosis = diagnose(Failing("noisy", "float32", repeats=repeats(name)), seen(name))
    assert diagnosis.confidence == "explained"
    assert (name,) in {diagnosis.deviations, *diagnosis.indistinguishable}  # float16 and TF32 round alike
    assert "Predicted and seen: " in diagnosis_text(diagnosis)


@pytest.mark.release
def test_a_pair_is_named_by_the_output_alone() -> None:
    ids = ("norm-rms", "value-and-output-swapped")
    diagnosis = diagnose(Failing("fused", "float32"), seen(*ids, show=("output",)))
    assert (diagnosis.confidence, set(diagnosis.deviations)) == ("explained", set(ids))


@pytest.mark.release
def test_what_predicts_the_same_is_a_twin() -> None:
    """A mask on the queries leaves every key to the rows that are compared."""
    diagnosis = diagnose(Failing("blind", "float32"), seen("mask-on-queries"))
    assert diagnosis.confidence == "explained"
    assert {diagnosis.deviations, *diagnosis.indistinguishable} >= {("mask-ignored",), ("mask-on-queries",)}


def test_of_many_twins_a_few_are_shown() -> None:
    indistinguishable = tuple((f"twin-{number}",) for number in range(9))
    diagnosis = Diagnosis(
        implementation="many",
        dtype="float32",
        confidence="explained",
        deviations=("mask-ignored",),
        indistinguishable=indistinguishable,
        first_stage="attention_weights",
        cases=("pre-gelu/padding-right",),
    )
    assert "These cases cannot distinguish it from twin-0, twin-1, twin-2, and 6 more." in diagnosis_text(diagnosis)


TWO_SIZES = """
def build(self, layer, parameters, dtype):
    wrong = {"activation": "gelu_tanh"} if layer["d_model"] <= 64 else {"activation": "relu"}
    return super().build({**layer, "feed_forward": {**layer["feed_forward"], **wrong}}, parameters, dtype)
"""


@pytest.mark.release
def test_what_explains_small_layers_is_held_to_large_ones(conform: Callable, fake: Callable) -> None:
    """A false "explained" is worse than a miss: what is wrong with the large one is something else."""
    asked = asking(("post-gelu-bert/low-variance", "vit-base/vision-no-mask"))
    ended = conform("run", "--impl", fake("two_sizes", TWO_SIZES, **QUICK), *asked)
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("closest", ["gelu-tanh"])
    assert "Not accounted for: vit-base/vision-no-mask (" in ended.stdout


@pytest.mark.release
def test_a_cause_that_is_not_in_the_catalogue_is_not_invented(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        return super().output(x, masks, run)[:, :, ::-1]

    def stages(self, x, masks, run):
        return {name: value[..., ::-1] for name, value in super().stages(x, masks, run).items()}
    """
    ended = conform("run", "--impl", fake("mirror", lie), *CASES)
    [diagnosis] = ended.report["diagnoses"]
    assert diagnosis["confidence"] != "explained"


def test_a_conforming_run_has_no_diagnosis(conform: Callable, honest: Path) -> None:
    assert conform("run", "--impl", honest, "--case", "pre-gelu/no-mask").report["diagnoses"] == []


@pytest.mark.parametrize(
    ("name", "of", "not_of"),
    [
        # Of a layer that says 1e-6 the float32 number, and of a library its double: 366,000 σ in float64.
        ("norm-eps-1e-6", "pre-rms-silu/low-variance", None),
        ("gelu-root-in-float32", "pre-gelu/no-mask", "post-relu/no-mask"),
        ("norm-in-bfloat16", "pre-rms-silu/no-mask", None),
        ("matmul-in-bfloat16", "pre-gelu-shared-heads/no-mask", None),
        ("norm-unbiased-variance", "pre-gelu/no-mask", "pre-rms-silu/no-mask"),
    ],
)
def test_a_deviation_acts_where_it_says_something(name: str, of: str, not_of: str | None) -> None:
    assert changes(load().cases[of], catalogue()[name])
    assert not_of is None or not changes(load().cases[not_of], catalogue()[name])


@of_a_part_and_all
def test_a_declared_deviation_is_verified(conform: Callable, fake: Callable, asked: tuple[str, ...]) -> None:
    folder = fake("known", EPSILON, deviations=declaring("norm-eps-1e-3"), unsupported=NO_GRADIENTS)
    ended = conform("run", "--impl", folder, *asked)
    assert ended.status == 0, ended.stdout
    assert set(ended.outcomes("output")) == set(ended.outcomes("stages")) == {"deviates"}
    assert ended.report["diagnoses"] == []


def test_what_nothing_specifies_beside_what_is_declared_is_left_out_when_the_run_is_planned(fake: Callable) -> None:
    """So that the suite makes no item of a case of which nothing can be judged, and starts nobody for it."""
    cases = [load().cases[f"pre-gelu/{name}"] for name in ("checkpointed", "no-mask", "invariant-batch")]
    for deviation, left_out in (
        ("norm-eps-1e-3", {"gradients": "no gradient is specified for norm-eps-1e-3"}),
        (
            "bfloat16-inside",
            {
                "gradients": "no gradient is specified for bfloat16-inside",
                "invariant": "bfloat16-inside is predicted in size only, and batch_independence asks for less",
            },
        ),
    ):
        implementation = read_implementation(fake(deviation.replace("-", "_"), deviations=declaring(deviation)))
        tasks = plan(implementation, cases, ("float32",))
        assert {task.check: task.opt_out.text for task in tasks if task.opt_out} == left_out
        assert {task.check for task in tasks} == {"output", "stages", "gradients", "invariant"}


@pytest.mark.release
def test_a_declared_deviation_that_is_not_there_is_stale(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("mended", deviations=declaring("norm-eps-1e-3")), *CASES)
    assert ended.status == 1
    assert set(ended.outcomes("output")) == {"stale"}
    assert "meets the specification without it" in ended.messages()


@pytest.mark.release
def test_a_declared_deviation_hides_no_other(conform: Callable, fake: Callable) -> None:
    folder = fake("half_known", EPSILON + INVERTED, deviations=declaring("norm-eps-1e-3"), unsupported=NO_GRADIENTS)
    ended = conform("run", "--impl", folder, *CASES, diagnosed=False)
    assert ended.status == 1
    by_case = {record["case"]: record["outcome"] for record in ended.report["records"] if record["check"] == "output"}
    assert by_case["pre-gelu/no-mask"] == "deviates"
    assert by_case["pre-gelu/padding-right"] == "fail"


def test_an_unknown_deviation_is_refused(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("typo", deviations=declaring("norm-eps-1e3")), *CASES)
    assert ended.status == 2
    assert "did you mean norm-eps-1e-3" in ended.stderr


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        of_a_release("{}", "changes nothing"),
        ("{steps: {norm3: skipped}}", "there is no step 'norm3'"),
        of_a_release("{steps: {norm1: skiped}}", "norm1 has no wrong form 'skiped'"),
        of_a_release("{steps: {norm1: standard}}", "norm1 has no wrong form 'standard'"),
        of_a_release("{parameters: {norm3.gain: zero}}", "norm3.gain"),
        of_a_release("{parameters: {norm1.gain: half}}", "patch.parameters.norm1.gain"),
        of_a_release("{layer: {norm: {epsilon: -1.0}}}", "patch.layer.norm.epsilon"),
        of_a_release("{parameters: {norm1.gain: from norm1.gain}}", "changes nothing in any case"),
        of_a_release("{layer: {d_model: 7}}", "d_model"),
        of_a_release("{mask: upside-down}", "patch.mask"),
        ("{layer: {norm: {epsilon: 1.0e-3}}}", "has the same patch as norm-eps-1e-3"),
        of_a_release("{steps: {norm2: skipped, norm1: skipped}}", "has the same patch as norms-skipped"),
    ],
)
def test_a_patch_that_is_wrong_is_named(tmp_path: Path, patch: str, said: str) -> None:
    for folder in ("layers", "situations", "deviations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    text = f'deviation: zz-mine\nsentence: "A deviation of the test\'s own"\nkind: numerics\npatch: {patch}\n'
    (tmp_path / "deviations" / "zz-mine.yaml").write_text(text + "unseen: null\nlinks: []\n")
    with pytest.raises(InputError) as refused:
        catalogue(tmp_path)
    assert said in str(refused.value)
    assert "zz-mine" in str(refused.value)


@pytest.mark.parametrize("missing", ["kind", "sentence", "unseen", "links", "patch"])
def test_a_deviation_without_a_key_is_refused(tmp_path: Path, missing: str) -> None:
    for folder in ("layers", "situations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    (tmp_path / "deviations").mkdir()
    lines = (SPECS / "deviations" / "mask-inverted.yaml").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{missing}:"))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    (tmp_path / "deviations" / "mask-inverted.yaml").write_text("\n".join(lines[:start] + lines[end:]))
    with pytest.raises(InputError, match=f"key {missing} is missing"):
        catalogue(tmp_path)


@pytest.mark.release
def test_what_explains_a_run_is_declared_and_comments_stay(conform: Callable, fake: Callable) -> None:
    folder = fake("porter", EPSILON, **QUICK)
    manifest = folder / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("timeouts:", "# a comment of the maintainer's\ntimeouts:"))
    ended = conform("run", "--impl", folder, *CASES)
    before = manifest.read_text()
    nobody = update_declared(read_report(ended.out), read_implementation(folder), folder, lambda name: None)
    assert (nobody, manifest.read_text()) == (["? norm-eps-1e-3"], before)
    why = {"norm-eps-1e-3": "Our checkpoints were trained with it"}
    changed = update_declared(read_report(ended.out), read_implementation(folder), folder, why.get)
    assert changed == ["+ norm-eps-1e-3"]
    assert "# a comment of the maintainer's" in manifest.read_text()
    [entry] = read_implementation(folder).deviations
    assert entry.link == read_implementation(folder).homepage, "and no link about another project"
    assert entry.reason == why["norm-eps-1e-3"], "and no sentence of the catalogue"
    again = conform("run", "--impl", folder, *CASES)
    assert again.status == 0, again.stdout
    assert set(again.outcomes("output")) == {"deviates"}
    assert update_declared(read_report(again.out), read_implementation(folder), folder, why.get) == []


@pytest.mark.release
def test_what_is_stale_is_declared_no_more(conform: Callable, fake: Callable) -> None:
    folder = fake("repaired", deviations=declaring("norm-eps-1e-3"), **QUICK)
    ended = conform("run", "--impl", folder, *CASES)
    assert update_declared(read_report(ended.out), read_implementation(folder), folder, {}.get) == ["- norm-eps-1e-3"]
    assert conform("run", "--impl", folder, *CASES).status == 0


@pytest.mark.parametrize("part", [("--case", "pre-gelu/*"), ("--dtype", "float32"), ("--level", "required")])
def test_update_declared_refuses_a_part_of_the_suite(conform: Callable, honest: Path, part: tuple[str, str]) -> None:
    before = (honest / "impl.yaml").read_text()
    ended = conform("run", "--impl", honest, *part, "--update-declared")
    assert ended.status == 2
    assert "a part of the suite cannot say" in ended.stderr
    assert (honest / "impl.yaml").read_text() == before


def test_a_number_that_is_declared_where_nan_is_specified_is_verified(conform: Callable, fake: Callable) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        filled = {**layer["attention"], "fully_masked_row": "uniform"}
        return super().build({**layer, "attention": filled}, parameters, dtype)
    """
    declared = "[{deviation: fully-masked-row-uniform, reason: it fills with a number, link: 'https://example.org'}]"
    folder = fake("finite", lie, deviations=declared)
    ended = conform("run", "--impl", folder, "--case", "post-gelu-nan-rows/blind-queries-forward", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert set(ended.outcomes()) == {"deviates"}


def test_what_shows_in_evaluation_alone_is_not_asked_of_dropout(conform: Callable, fake: Callable) -> None:
    """Dropout is read off in training: what rounds a softmax is neither there nor missed."""
    folder = fake("narrow", deviations=declaring("softmax-in-float32"), checks="[output, dropout]")
    ended = conform("run", "--impl", folder, "--case", "post-relu-dropout/dropout", "--dtype", "float64")
    assert ended.outcomes("dropout") == ["pass"], ended.stdout


@pytest.mark.parametrize(("predicting", "said"), [(61.0, True), (9.0, False)])
def test_declarations_that_take_longer_than_the_answers_are_said(predicting: float, said: bool) -> None:
    digest = RunCounts([])
    digest.standings["slow"] = Standing(1, seconds=20.0)
    digest.predicting["slow"] = round(1000 * predicting)
    report = SimpleNamespace(ended_by=None, shown=(), suspicious=())
    lines = last_lines(cast(Report, report), digest, {})
    line = (
        "slow: 61 s went into what its declared deviations predict, and 20 s into its answers; `when` in impl.yaml "
        "narrows a declaration"
    )
    assert (line in lines) is said
    assert any("declared deviations predict" in each for each in lines) is said
