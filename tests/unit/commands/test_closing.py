"""The last lines of a check, on a terminal and in the cell of a notebook. No module is made."""

import io
from typing import Any

from rich.console import Console

from encoder_conformance.commands.check.by_reading import by_reading
from encoder_conformance.commands.check.cell import table_of
from encoder_conformance.commands.check.results import CheckResult, PartResult, VariantResult
from encoder_conformance.commands.check.show import show_check
from encoder_conformance.commands.check.verdict import closing
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.protocol.arguments import XArgument
from encoder_conformance.protocol.findings import Finding, NotRead
from encoder_conformance.protocol.module_description import ModuleDescription, ModuleSource
from encoder_conformance.spec.load import load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Reason

LAYER = load().layers["post-gelu"]
X = XArgument(argument="x", layout="[batch, sequence, d_model]", d_model=8, evidence="")


def record(case: str, outcome: Outcome, rms: float) -> Record:
    return Record(
        implementation="it", case=f"a/{case}", level="core", dtype="float32", check="output", outcome=outcome, rms=rms
    )


def part(at: str, *dtypes: str, **of: Any) -> PartResult:
    """A part that is wrong by tanh-GELU in these formats."""
    described = ModuleDescription.model_construct(
        layer=None, stated=LAYER, type="m.Block", x=X, given=(), called=(), searched=None, lines={}, not_read=None,
        parameters={}, masks=(), attention="", dtypes=dtypes, answers=(), chance=None, kept=None, other_answers=(),
    )  # fmt: skip
    found = [
        Diagnosis(
            implementation=at,
            dtype=dtype,
            confidence="explained",
            deviations=("gelu-tanh",),
            sentences=("GELU is the tanh approximation.",),
            rms=0.5,
            first_stage="ffn_activation",
            cases=("a/1",),
        )
        for dtype in dtypes
    ]
    known: dict[str, Any] = {
        "at": at,
        "described": described,
        "layer": LAYER,
        "as_told": True,
        "without": (),
        "findings": (),
        "records": (record("1", Outcome.FAIL, 285.0), record("2", Outcome.PASS, 0.5)),
        "diagnoses": tuple(found),
        "asked": (),
        "like": None,
        "way_back": (),
        "published": (),
        "variants": (),
    }
    return PartResult.model_construct(**{**known, **of})


def check(*parts: PartResult, target: str = "model.py:Block") -> CheckResult:
    return CheckResult.model_construct(target=target, versions={"torch": "2"}, parts=parts, refused=())


def test_one_cause_is_one_line_however_many_formats_and_parts_show_it() -> None:
    first, second = part("layers.0", "float64", "float32"), part("layers.1", "float64", "float32")
    [cause] = [line.text for line in closing(first) if line.of == "cause"]
    assert cause.startswith("Cause: GELU is the tanh approximation (gelu-tanh, 0.50 σ, float64 and float32).")
    assert [line.text for line in closing(second, [first]) if line.of == "cause"] == ["Cause: the same as in layers.0"]


def test_what_raises_where_gradients_are_asked_is_the_cause_where_nothing_else_is_wrong() -> None:
    said = "run: RuntimeError: one of the variables needed has been modified by an operation: [torch.{}Tensor [2, 10]]"
    raised = [
        record("1", Outcome.ERROR, 0.0).model_copy(update={"check": "gradients", "message": said.format(each)})
        for each in ("Float", "Double")
    ]
    alone = part("", "float32", records=(*raised, record("2", Outcome.PASS, 0.5)), diagnoses=())
    [cause] = [line.text for line in closing(alone) if line.of == "cause"]
    assert cause.startswith("Cause: it gives no gradients: RuntimeError: one of the variables")
    beside = part("", "float32", records=(*raised, record("2", Outcome.FAIL, 285.0)), diagnoses=())
    assert [line for line in closing(beside) if line.of == "cause"] == []


def test_of_an_unknown_cause_it_is_said_what_the_graph_has_that_no_layer_has() -> None:
    wrong = part("", "float32")
    unknown = wrong.diagnoses[0].model_copy(update={"confidence": "unknown", "deviations": (), "sentences": ()})
    [plain] = [line.text for line in closing(wrong.model_copy(update={"diagnoses": (unknown,)})) if line.of == "cause"]
    assert plain.startswith("Cause unknown: no known bug, nor any two, explain most of it. First wrong stage")
    not_read = NotRead(problem="…", where="", features=("weights_scaled",), sentence="the weights are multiplied by 2")
    described = wrong.described.model_copy(update={"not_read": not_read})
    told = wrong.model_copy(update={"diagnoses": (by_reading(described, unknown),)})
    [cause] = [line.text for line in closing(told) if line.of == "cause"]
    assert "explain most of it; but its graph has what no layer has: the weights are multiplied by 2. First" in cause


def test_a_layer_of_which_all_checks_pass_is_wrong_for_a_reason_that_the_verdict_gives() -> None:
    error = Finding(severity="error", kind="ways-of-calling-differ", message="with gradients and without differ")
    right = (record("1", Outcome.PASS, 0.5),)
    found = part("", "float32", findings=(error,), records=right, diagnoses=(), alone=1)
    [verdict] = [line.text for line in closing(found) if line.of == "verdict"]
    assert verdict.endswith(", but with gradients and without differ.")
    assert "next" not in [line.of for line in closing(found)]  # no check fails that could be shown


def test_a_cell_is_a_table_of_what_was_found_and_escapes_whatever_the_module_says() -> None:
    hostile = "<script>alert(1)</script>"
    finding = Finding(severity="error", kind="layer-not-read", message=hostile)
    variant = VariantResult(word="half", said="", format="float16", problem=hostile)
    wrong = part(hostile, "float32", findings=(finding,), variants=(variant,))
    page = table_of(check(wrong, target=hostile))
    assert page.startswith("<table")
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5
    for said in (
        "This is not post-gelu: 1 of 2 checks pass",
        "Cause: GELU is the tanh approximation",
        "was not asked",
        "Next: ",
    ):
        assert said in page


def test_at_eighty_columns_no_word_is_broken() -> None:
    variants = (
        VariantResult(word="compile-max-autotune", said="", format="bfloat16", first_stage="layers.0.attention_output",
                      records=(record("1", Outcome.FAIL, 2e5),)),
    )  # fmt: skip
    wrong = part("encoder.layer.0", "float64", "float32", variants=variants)
    pages = []
    for width in (80, 500):
        screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        show_check(screen, check(wrong))
        assert isinstance(screen.file, io.StringIO)
        pages.append(screen.file.getvalue())
    assert pages[0].split() == pages[1].split()
    assert max(map(len, pages[0].splitlines())) <= 80


def test_the_last_line_names_the_warning_that_is_least_likely_meant() -> None:
    """A count of warnings alone is taken for a pass."""
    rare = Finding(severity="warning", kind="unusual-choice", message="norm.epsilon is 0.1, which none has; usual: 1")
    idle = Finding(severity="warning", kind="parameter-unused", message="the parameter out.weight changes nothing")
    often = Finding(severity="warning", kind="state-changed-by-calls", message="weights is changed by each call")
    filled, outside = (
        Finding(
            severity="warning",
            kind="choice-of-its-own",
            message=f"a choice of its own, {name}: what it is",
            about={"deviations": [name]},
        )
        for name in ("mask-filled-minus-1e9", "norm-eps-outside-root")
    )
    for findings, due in (
        ((often,), "1 warning"),
        ((often, rare), "2 warnings: norm.epsilon is 0.1, which none has"),
        ((rare, idle), "2 warnings: the parameter out.weight changes nothing"),
        ((filled, rare), "2 warnings: norm.epsilon is 0.1, which none has"),
        ((rare, outside), "2 warnings: a choice of its own, norm-eps-outside-root"),
        ((filled,), "1 warning: a choice of its own, mask-filled-minus-1e9"),
        ((rare,), "1 warning: norm.epsilon is 0.1, which none has"),
    ):
        [line] = [each.text for each in closing(part("", "float32", findings=findings)) if each.of == "checks"]
        assert line == due


def test_an_output_that_is_wrong_alone_has_no_place_in_the_output_of_attention() -> None:
    """Their stages end alike, and the line of `attention.output` has nothing to do with it."""
    wrong = part("", "float32")
    source = ModuleSource.model_construct(own="proj.weight")
    described = wrong.described.model_copy(
        update={"parameters": {"attention.output.weight": source}, "lines": {"proj.weight": "m.py:3"}}
    )
    for stage, due in (("output", []), ("attention_output", ["At: m.py:3"])):
        found = [each.model_copy(update={"first_stage": stage}) for each in wrong.diagnoses]
        shown = wrong.model_copy(update={"described": described, "diagnoses": tuple(found)})
        assert [each.text for each in closing(shown) if each.of == "place"] == due


def verdict_of(*records: Record) -> str:
    [verdict] = [line.text for line in closing(part("", "float32", records=records)) if line.of == "verdict"]
    return verdict


def of_tensor(outcome: Outcome, **tensor: Any) -> Record:
    judged = TensorVerdict(tensor="norm1", conforms=outcome is Outcome.PASS, **tensor)
    return record("1", outcome, 0.5).model_copy(update={"rms": judged.rms, "tensors": (judged,)})


def test_an_error_that_no_rounding_measures_has_no_number_of_it() -> None:
    """1e300 σ is said of no error: σ is the least number of the format there."""
    least = {"sigma": 2.0**-126, "rms": 1e36, "observed": 0.51, "expected": 0.5}
    assert "checks pass, norm1 is 0.01 off where a right layer has no rounding at all." in verdict_of(
        of_tensor(Outcome.FAIL, **least)
    )
    assert "largest error 3e6 σ" in verdict_of(of_tensor(Outcome.FAIL, **{**least, "sigma": 3e-9, "rms": 3e6}))


def test_a_number_that_is_not_finite_is_said_beside_the_largest_error_of_the_others() -> None:
    """Which were right: `largest error 0.50 σ` alone is that of a layer that passes."""
    lost = of_tensor(Outcome.FAIL, problem=Reason(kind="non-finite", text="nan"))
    said = verdict_of(lost, record("2", Outcome.PASS, 0.5))
    not_finite = "some numbers are not finite where they should be, or the reverse"
    assert f"1 of 2 checks pass, {not_finite}, largest error 0.50 σ" in said
    other = of_tensor(Outcome.FAIL, problem=Reason(kind="shape", text="of another shape"))
    assert verdict_of(other).endswith("0 of 1 checks pass.")
