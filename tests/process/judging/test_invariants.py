"""What needs no golden: a fake that breaks an invariant fails that one, and keeps the others (I-1 to I-10)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.judging import asking
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import NOTHING
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.follow_ups import base_of, follow_ups, permutation
from encoder_conformance.spec.load import load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.session import Session

CASES = {name: case for name, case in load().cases.items() if case.situation.invariant}
ALL = [name.partition("/invariant-")[2] for name in CASES if name.startswith("post-relu/")]


def judged(folder: Path, dtype: DtypeName = "float32") -> dict[str, Record]:
    """Every invariant of post-relu, and what the judge says of the implementation in `folder`."""
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    tasks = plan(ready.implementation, [CASES[f"post-relu/invariant-{name}"] for name in ALL], (dtype,))
    session = Session(ready, "cpu", 1, folder / "worker.log")
    try:
        found = {task.case.id: asking.judged(asking.put(session, task, lambda case: NOTHING)) for task in tasks}
    finally:
        session.close()
    return {name: found[f"post-relu/invariant-{name}"] for name in ALL}


def other_than(outcome: Outcome, records: dict[str, Record]) -> dict[str, Outcome]:
    return {name: record.outcome for name, record in records.items() if record.outcome is not outcome}


LIE = """
def output(self, x, masks, run):
    x, valid = np.array(run.batch_first(x)), masks.valid()
    clean = x if valid is None else np.where(valid[..., None], x, 0)
    {before}
    out = np.array(run.batch_first(super().output(run.as_given(x), masks, run)))
    {after}
    return run.as_given(out)
"""
"""x, `clean` without padding, and out are [B, S, D]."""


def liar(fake: Callable, after: str = "pass", before: str = "pass", **manifest: str) -> Path:
    return fake("liar", LIE.format(before=before, after=after), **manifest)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_honest_one_keeps_them_all(honest: Path, dtype: DtypeName) -> None:
    records = judged(honest, dtype)
    assert len(records) == 10
    assert not other_than(Outcome.PASS, records)
    for record in records.values():
        assert record.check == "invariant"
        assert record.rms == max(tensor.rms or 0 for tensor in record.tensors)


BROKEN: dict[str, tuple[str, set[str], str]] = {
    # What stands in padding is added up. Under a causal mask padding comes after t too.
    "reads-padding": (
        "out += 1e-4 * (x - clean).sum(axis=1, keepdims=True)",
        {"padding-content", "padding-length", "causality"},
        "padding_content: with other padding gives ",
    ),
    # As a layer does that divides by the length of the batch, not of the item.
    "depends-on-the-length": (
        "out *= 1 + 1e-5 * out.shape[1]",
        {"padding-length"},
        "padding_length: padded by 6 more gives ",
    ),
    # The mean over the batch is mixed in, as batch normalisation in mode train does.
    "mixes-items": ("out += 1e-5 * out.mean(axis=0)", {"batch"}, "batch_independence: item 0 alone gives "),
    # A buffer that is never cleared.
    "first-item-is-different": ("out[0] += 1e-5", {"batch"}, "batch_independence: item 1 alone gives "),
    "knows-positions": (
        "out += 1e-4 * np.arange(out.shape[1])[:, None]",
        {"permutation"},
        "permutation: permuted gives ",
    ),
    "sees-the-future": (
        "out += 1e-4 * clean.sum(axis=1, keepdims=True, dtype='float64')",
        {"causality"},
        "causality: with other positions after 20 gives ",
    ),
    # Only the last position but one sees the last.
    "sees-one-ahead": (
        "out[:, -2:-1] += 1e-4 * clean[:, -1:] * (out.shape[1] == 41)",
        {"causality"},
        "causality: with other positions after 39 gives ",
    ),
    # Where a transpose is due.
    "reshapes-to-sequence-first": (
        "out = out if run.layout == 'batch_first' else out.swapaxes(0, 1).reshape(out.shape)",
        {"layout"},
        "layout: sequence first gives ",
    ),
    "draws-the-last-bit": (
        "out = np.where(np.random.default_rng().random(out.shape) > 0.5, out, np.nextafter(out, np.float32(9)))",
        {"determinism"},
        "elements have other bits)",
    ),
    # As a compiled layer does that keeps the sizes of its first run.
    "remembers-one-position": (
        "self.short = getattr(self, 'short', False) or out.shape[1] == 1; out += 1e-4 * self.short",
        {"history"},
        "history: after one position gives ",
    ),
    # It is right until a run at one position comes first.
    "takes-sizes-from-the-first-run": (
        "built = self.layer.layer; self.first = getattr(self, 'first', {}); "
        "self.first.setdefault(built, out.shape[1]); "
        "out += 1e-4 * (self.first[built] == 1)",
        {"history"},
        "history: of another layer that is built anew, after one position gives ",
    ),
    "trains-otherwise": (
        "out *= 1 + 1e-5 * (run.mode == 'train')",
        {"train"},
        "train_without_dropout: in mode eval gives ",
    ),
    # Both answers are NaN, and NaN agrees with NaN.
    "not-a-number": ("out[:] = np.nan", set(ALL) - {"determinism"}, "nan at [0, 0, 0], where the layer gives a number"),
    "not-a-number-alone": ("out[:] = np.nan if len(out) == 1 else out", {"batch"}, "item 0 alone: nan at [0, 0, 0]"),
    "no-batch-of-one": (
        "out = out[0] if len(out) == 1 else out",
        {"batch", "history"},
        "item 0 alone: shape [33, 20] instead of [1, 33, 20]",
    ),
    "another-dtype": (
        "out = out.astype('float64' if out.shape[1] == 39 else 'float32')",
        {"padding-length"},
        "padded by 6 more: dtype float64 instead of float32",
    ),
}
"""Name → what is done to the right output, the invariants that it breaks, and what is said of the first."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_fake_that_breaks_an_invariant_fails_that_one(fake: Callable, name: str) -> None:
    lie, broken, said = BROKEN[name]
    records = judged(liar(fake, lie))
    ignored = {at: Outcome.INCONCLUSIVE for at in ("determinism",) if name == "not-a-number"}  # whatever it is asked
    assert other_than(Outcome.PASS, records) == dict.fromkeys(broken, Outcome.FAIL) | ignored
    assert any(said in records[name].message for name in broken), [records[name].message for name in broken]


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ("ignore", "masks true to ignore"),
        ("integer", "masks of integers"),
        ("float", "masks of 1.0 and 0.0"),
        ("additive", "masks to be added"),
    ],
)
def test_a_mask_that_is_read_wrong_in_one_form_fails(fake: Callable, encoding: str, says: str) -> None:
    """The last key is forgotten."""
    lie = f"""
    def output(self, x, masks, run):
        if masks.encoding == "{encoding}":
            masks = Masks(np.roll(masks.padding, 1, -1), masks.attention, encoding="{encoding}")
        return super().output(x, masks, run)
    """
    records = judged(fake("liar", lie))
    assert other_than(Outcome.PASS, records) == {"mask-encoding": Outcome.FAIL}
    assert f"mask_encoding: {says}" in records["mask-encoding"].message


def test_what_is_wrong_in_the_same_way_each_time_keeps_every_invariant(fake: Callable) -> None:
    """That is meant: the goldens see it."""
    assert not other_than(Outcome.PASS, judged(liar(fake, "out *= 2")))


def test_the_message_says_what_differs_most(fake: Callable) -> None:
    lie = "out[:, 3, 5] += 1e-3 * (len(out) == 1); out[:, 2, 2] += 2e-3 * (len(out) == 1)"
    record = judged(liar(fake, lie))["batch"]
    assert "batch_independence: item 0 alone gives " in record.message
    assert " at [0, 2, 2], in the batch " in record.message
    assert " σ, rms " in record.message
    assert [tensor.conforms for tensor in record.tensors] == [False, False, False, True]
    assert [tensor.worst_index for tensor in record.tensors][1] == (1, 2, 2)  # of the batch, not of the item alone


@pytest.mark.parametrize(("lie", "outcome"), [("os._exit(0)", Outcome.CRASH), ("raise KeyError('x')", Outcome.ERROR)])
def test_an_answer_that_does_not_come_names_the_way_of_asking(fake: Callable, lie: str, outcome: Outcome) -> None:
    records = judged(liar(fake, before=f"if len(x) == 1: {lie}"))
    assert other_than(Outcome.PASS, records) == dict.fromkeys(("batch", "history"), outcome)
    assert "batch_independence: item 0 alone: " in records["batch"].message


def test_what_an_implementation_does_not_take_is_not_asked(fake: Callable) -> None:
    modest = fake("modest", modes="[eval]", layouts="[batch_first]", masks="[attend, integer]", checks="[output]")
    records = judged(modest)
    assert other_than(Outcome.PASS, records) == dict.fromkeys(("layout", "train"), Outcome.UNSUPPORTED)
    assert records["layout"].message == "layout sequence_first is not among its capabilities"
    assert records["train"].message == "mode train is not among its capabilities"
    ways = [tensor.tensor for tensor in records["mask-encoding"].tensors]
    assert ways == ["masks of integers", "masks of two axes", "a causal mask as a flag"]


@pytest.mark.parametrize("when", ["check: invariant", "check: output"])
def test_an_opt_out_is_heeded(fake: Callable, when: str) -> None:
    entry = f'[{{when: {{{when}}}, reason: "it cannot do that", link: "https://example.org"}}]'
    records = judged(fake("idle", unsupported=entry))
    assert {(record.outcome, record.message) for record in records.values()} == {
        (Outcome.UNSUPPORTED, "it cannot do that")
    }


def declaring(deviation: str) -> str:
    return f'[{{deviation: {deviation}, reason: "as it is known to do", link: "https://example.org"}}]'


BLIND = """
def output(self, x, masks, run):
    return super().output(x, Masks(None, None), run)
"""


def test_a_declared_deviation_that_breaks_an_invariant_deviates(fake: Callable) -> None:
    records = judged(fake("declares", BLIND, deviations=declaring("mask-ignored")))
    broken = other_than(Outcome.PASS, records)
    assert broken == dict.fromkeys(("padding-content", "padding-length", "causality"), Outcome.DEVIATES)
    assert "as declared: mask-ignored breaks it" in records["causality"].message


def test_a_declared_deviation_excuses_no_invariant_that_it_keeps(fake: Callable) -> None:
    lie = "out += 1e-5 * out.mean(axis=0)"
    records = judged(liar(fake, lie, deviations=declaring("mask-ignored")))
    assert records["batch"].outcome is Outcome.FAIL
    assert "mask-ignored, as declared, does not break it" in records["batch"].message


def test_what_a_deviation_leaves_to_chance_is_not_judged(fake: Callable) -> None:
    records = judged(fake("narrow", deviations=declaring("bfloat16-inside")))
    assert {record.outcome for record in records.values()} == {Outcome.UNSUPPORTED}
    assert "bfloat16-inside is predicted in size only" in records["batch"].message


def test_run_and_explain_say_which_way_of_asking_gave_what(conform: Callable, fake: Callable) -> None:
    folder = liar(fake, "out += 1e-5 * out.mean(axis=0)")
    ran = conform("run", "--impl", folder, "--case", "post-relu/invariant-*", "--dtype", "float32")
    assert ran.status == 1
    assert "9 of 10 checks conform (1 fail)" in ran.stdout
    assert "✗ liar post-relu/invariant-batch float32 invariant: fail: batch_independence: item 0 alone" in ran.stdout
    ended = conform("explain")
    assert ended.status == 0
    for words in ("✗ item 0 alone", "✗ item 2 alone", "the batch reversed", "at", "--case post-relu/invariant-batch"):
        assert words in ended.stdout
    [record] = json.loads(conform("explain", "--json").stdout)
    assert record["tensors"][0]["tensor"] == "item 0 alone"


@pytest.mark.release
def test_another_seed_asks_of_other_numbers(conform: Callable, honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", "post-relu/invariant-*", "--dtype", "float64", "--seed", "3")
    assert ended.status == 0, ended.stdout + ended.stderr
    case = CASES["post-relu/invariant-padding-content"]
    [one], [other] = follow_ups(case), follow_ups(Case(case.layer, case.situation, 3))
    assert not np.array_equal(one.case.x()[0, -1], other.case.x()[0, -1])
    assert permutation(33, 0).tolist() != permutation(33, 3).tolist()


@pytest.mark.parametrize("name", ALL)
def test_the_oracle_keeps_every_invariant(name: str) -> None:
    """Each follow-up's answer, back in the base's place, is the base's: the clauses are true."""
    case = CASES[f"post-relu/invariant-{name}"]
    base = output(base_of(case))
    for follow_up in follow_ups(case):
        same = follow_up.case.comparable()
        assert same.any() or name == "history"  # its one position comes between, and is compared with nothing
        expected = base[follow_up.case.items[same], follow_up.case.positions[same]]
        np.testing.assert_allclose(output(follow_up.case)[same], expected, rtol=1e-12, atol=1e-13)


def output(case: Case) -> Any:
    return evaluate(case, Arithmetic(np.float64), None).stages["output"]


def test_a_follow_up_differs_where_it_should() -> None:
    """A comparison of a question with itself would hold always."""
    for name in ALL:
        case = CASES[f"post-relu/invariant-{name}"]
        for follow_up in follow_ups(case):
            base, other = base_of(case), follow_up.case
            x_differs = base.x().shape != other.x().shape or not np.array_equal(base.x(), other.x())
            asked = base.situation.given, base.situation.mode
            given_differs = asked != (other.situation.given, other.situation.mode)
            again = name == "determinism" or (name == "history" and other.comparable().any())
            assert (x_differs or given_differs) != again, (name, follow_up.description)
            kept = other.redrawn
            assert not np.array_equal(other.x()[kept], base.x()[other.items, other.positions][kept]) or not kept.any()


def test_noise_is_measured_once_for_all_situations_of_the_same_numbers() -> None:
    names = ("batch", "train", "causality")
    found = [measured_condition(base_of(CASES[f"post-relu/invariant-{name}"]))["output"] for name in names]
    assert found[0] is found[1] is not found[2]
    assert found[0].shape == (3, 33, 20)
    assert np.isfinite(found[0]).all()


def test_a_layer_with_dropout_is_asked_without_it() -> None:
    case = CASES["post-relu/invariant-train"]
    dropping = case.layer.model_copy(update={"dropout": case.layer.dropout.model_copy(update={"ffn_output": 0.1})})
    base = base_of(Case(dropping, case.situation))
    assert not base.layer.dropout.rates()
    assert base.layer.layer != dropping.layer  # another layer has to be built
    assert follow_ups(Case(dropping, case.situation))[0].case.layer == base.layer


UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "no padding": ("padding-content", {"padding": None}, "there is no padding"),
    "padding at the left": ("padding-length", {"padding": {"kind": "left", "lengths": (33, 9, 9)}}, "is left"),
    "a drawn mask of one size": ("padding-length", {"attention": {"kind": "drawn", "axes": "S,S"}}, "for one size"),
    "a drawn mask of each item": ("batch", {"attention": {"kind": "drawn", "axes": "B,S,S"}}, "for one size"),
    "an order": ("permutation", {"attention": {"kind": "causal"}}, "tells positions apart"),
    "a bias": ("permutation", {"bias": "alibi"}, "tells positions apart"),
    "no causal mask": ("causality", {"attention": None}, "is not causal"),
    "no mask": ("mask-encoding", {"padding": None, "attention": None}, "no mask to give"),
    "too many axes": ("mask-encoding", {"attention": {"kind": "drawn", "axes": "H,S,S"}}, "along H,S,S"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_situation_where_an_invariant_says_nothing_is_refused(name: str) -> None:
    at, mask, said = UNFIT[name]
    situation = load().situations[f"invariant-{at}"].model_dump()
    with pytest.raises(ValidationError, match=said):
        Situation.model_validate({**situation, "mask": {**situation["mask"], **mask}})


@pytest.mark.parametrize(
    ("at", "change", "said"),
    [
        ("batch", {"batch": 1, "mask": {"padding": None, "attention": None, "bias": None}}, "no other item"),
        ("batch", {"batch": 0, "mask": {"padding": None, "attention": None, "bias": None}}, "nothing to compare"),
        ("train", {"mode": "eval"}, "mode is eval"),
        ("padding-content", {"input": {"pattern": "symmetric", "exponent": -7, "padding": "nan"}}, "padding is nan"),
        ("batch", {"invariant": None}, "invariant is null, but checks has invariant"),
    ],
)
def test_an_invariant_of_nothing_is_refused(at: str, change: dict[str, Any], said: str) -> None:
    situation = load().situations[f"invariant-{at}"].model_dump()
    with pytest.raises(ValidationError, match=said):
        Situation.model_validate({**situation, **change})
