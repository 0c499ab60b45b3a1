"""Since which run what is so: records of several runs, put in a row."""

from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.reports.compare.show import trend_line
from encoder_conformance.reports.compare.trend import Point, Trend, explained_by, state_of
from encoder_conformance.spec.outcome import Outcome

CASE = "pre-gelu/fully-masked-row"


def record(outcome: Outcome, check: str = "output", **more: object) -> Record:
    values = {"implementation": "layer", "case": CASE, "level": "core", "dtype": "float32", "check": check}
    return Record.model_validate({**values, "outcome": outcome, **more})


def point(label: str, *records: Record, diagnoses: tuple[Diagnosis, ...] = ()) -> Point:
    made = Point(label)
    for each in records:
        made.add(each, state_of(each, explained_by(diagnoses, "layer")))
    return made


NAN = Diagnosis(
    implementation="layer",
    dtype="float64, float32",
    confidence="explained",
    deviations=("fully-masked-row-nan",),
    first_stage="attention_weights",
    cases=(CASE,),
)


def test_a_change_says_since_when_and_what_was_before() -> None:
    failed = record(Outcome.FAIL, rms=1e5)
    zeros = record(Outcome.DEVIATES, deviations=("fully-masked-row-zero",), rms=0.5, digest="a")
    trend = Trend(
        "layer",
        (
            point("2.3", failed, diagnoses=(NAN,)),
            point("2.4", failed, diagnoses=(NAN,)),
            point("2.5", zeros),
            point("2.6", zeros),
        ),
    )
    [change] = trend.changes
    assert change.sentence == (
        "since 2.5: deviates as declared by fully-masked-row-zero; before: out of line by fully-masked-row-nan"
    )
    assert not change.worse
    assert change.keys == ((CASE, "float32", "output"),)
    assert trend.same_bits(3) == (1, 1)
    assert trend.same_bits(0) is None
    assert trend_line(trend).plain == "layer: 1 check changed its verdict from 2.3 to 2.6"


def test_what_got_worse_at_the_newest_is_worse_and_what_was_mended_is_not() -> None:
    right, wrong = record(Outcome.PASS, rms=1.0), record(Outcome.FAIL, rms=9e9, stage="norm1")
    assert Trend("layer", (point("1", right), point("2", wrong))).changes[0].worse
    mended = Trend("layer", (point("1", right), point("2", wrong), point("3", right))).changes[0]
    assert not mended.worse
    assert mended.sentence == "since 3: conforms; 2: out of line (at norm1); before: conforms"


def test_kinds_of_failure_are_told_apart_and_what_is_not_asked_changes_nothing() -> None:
    error = record(Outcome.ERROR, message="ImportError: no name Layer\n  Traceback …")
    nan = {"tensor": "output", "conforms": False, "problem": {"kind": "non-finite", "text": "nan at [0]"}}
    nothing = record(Outcome.FAIL, stage="output", tensors=[nan])
    asked_later = Trend("layer", (point("1", record(Outcome.UNSUPPORTED)), point("2", record(Outcome.PASS))))
    assert asked_later.changes == ()
    assert "nothing changed its verdict from 1 to 2" in trend_line(asked_later).plain
    three = Trend("layer", (point("1", error), point("2", nothing), point("3", record(Outcome.STALE))))
    assert three.changes[0].sentence == (
        "since 3: a declared deviation is not seen; 2: out of line (not finite at output); "
        "before: no answer (error: ImportError: no name Layer)"
    )


def test_a_version_without_a_run_is_left_out_of_the_sentences() -> None:
    right, wrong = record(Outcome.PASS), record(Outcome.FAIL, stage="norm1")
    absent = Point("2", absent="cannot be installed: no wheel")
    trend = Trend("layer", (point("1", wrong), absent, point("3", right)))
    assert trend.changes[0].sentence == "since 3: conforms; before: out of line (at norm1)"
    assert trend.same_bits(2) == (0, 0)
    assert "1 of 2 versions were judged" in trend_line(Trend("layer", (absent, point("3", right)))).plain
