"""Stacks: what one is made of, its oracle, its items, and how it is looked at and diagnosed (E-14 to E-16, G-5)."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from products import daily

from encoder_conformance import ParameterMap, Take, stack_of
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.identify.identify import deviation_of
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.condition import expectation
from encoder_conformance.oracle.deviant import changes, deviant
from encoder_conformance.oracle.encoder import encoder, evaluate
from encoder_conformance.oracle.forms.embedding import table
from encoder_conformance.oracle.golden.store import case_digest, read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.oracle.play import Play
from encoder_conformance.oracle.tape import Tape
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer, Stack
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.masking import Blind
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.plan import plan
from encoder_conformance.spec.stages import stages
from encoder_conformance.worker.marshalling import encode_inputs, run_request

Array = np.ndarray[Any, Any]
CASES = load().cases
STACKS = [layer for layer in load().layers.values() if layer.is_stack]
SMALL = [
    case
    for case in CASES.values()
    if case.layer.family in ("stacks", "encoders") and "stages" in load().cases[case.golden_id].situation.checks
]
FEW = [case for case in SMALL if case.situation.situation in ("no-mask", "padding-right", "tokens-causal")]
NO_ROWS = np.zeros((0, 2), dtype=np.int64)


def resized(name: str, situation: str, *, d_model: int = 6, num_heads: int = 2, d_ff: int = 5, **at: Any) -> Case:
    """A stack of the specification at sizes at which every gradient can be had by differences."""
    layer = load().layers[name].model_dump(mode="json")
    layer |= {"d_model": d_model}
    layer["attention"]["num_heads"], layer["feed_forward"]["d_ff"] = num_heads, d_ff
    if layer["embedding"]:
        layer["embedding"]["vocabulary"] = 4
    small = load().situations[situation].model_copy(update={"batch": 2, "sequence": 3, **at})
    return Case(Layer.model_validate_json(json.dumps(layer)), small)


TINY = {
    "pre, final norm": resized("stack-pre-gelu", "no-mask"),
    "post, ReLU": resized("stack-post-relu", "no-mask"),
    "shared by heads, uniform rows": resized("stack-shared-heads", "causal"),
    "token ids": resized("encoder-pre-gelu", "tokens"),
    "token ids, causal": resized("encoder-pre-gelu", "tokens-causal"),
    "token ids, no positions": resized("embedding-post-relu", "tokens"),
}
EACH_DAY = ("shared by heads, uniform rows", "token ids, causal")


@pytest.fixture(params=daily(EACH_DAY, TINY))
def tiny(request: Any) -> Case:
    return TINY[request.param]


def loss_of(case: Case, cotangent: Array, moved: dict[str, Array]) -> Any:
    what = given(case)
    x = moved.pop("x", what.x)
    tape = Tape(Arithmetic(np.longdouble))
    parameters = {name: tape.leaf(moved.get(name, value)) for name, value in what.parameters.items()}
    output = encoder(tape, case.layer, replace(what, x=x), parameters)[1]["output"].value
    return (output * cotangent).sum()


@pytest.mark.release
def test_every_gradient_of_a_stack_agrees_with_differences(tiny: Case) -> None:
    """At the element of each tensor whose gradient is the largest, and at one that is drawn."""
    cotangent = tiny.cotangent(NO_ROWS).astype(np.longdouble)
    gradients = evaluate(tiny, Arithmetic(np.longdouble), cotangent).gradients
    assert ("x" in gradients) is (tiny.layer.embedding is None)
    assert {name: g.shape for name, g in gradients.items()} == tiny.expected_shapes("gradients")
    leaves = {"x": tiny.x(), **tiny.parameters()} if tiny.layer.embedding is None else tiny.parameters()
    step, random = np.longdouble(2) ** -14, np.random.default_rng(0)
    for name, value in leaves.items():
        for flat in (int(np.abs(gradients[name]).argmax()), int(random.integers(value.size))):
            at = {}
            for steps in (-2, -1, 1, 2):
                moved = value.astype(np.longdouble)
                moved.flat[flat] += steps * step
                at[steps] = loss_of(tiny, cotangent, {name: moved})
            differences = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step)
            assert differences == pytest.approx(float(gradients[name].flat[flat]), rel=1e-8, abs=1e-11), name


def test_a_stack_is_its_layers_one_after_the_other() -> None:
    """E-14, R-2: each layer by itself, with its own parameters under their plain names."""
    case = CASES["stack-pre-gelu/padding-right"]
    shown, parameters = evaluate(case, Arithmetic(), None).stages, case.parameters()
    x, alone = case.x(), case.layer.one_of_it
    for number in range(case.layer.stack.layers):
        tape, start = Tape(Arithmetic()), f"layers.{number}."
        own = {n.removeprefix(start): tape.leaf(v) for n, v in parameters.items() if n.startswith(start)}
        assert set(own) == set(Case(alone, case.situation).parameters())
        inputs = LayerInputs(x, {}, case.mask())
        x = Play(tape, alone, own, inputs).run(plan(alone), x=tape.leaf(x))["output"].value
        assert np.array_equal(shown[f"layer_{number}"], x)
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + case.layer.norm.epsilon)
    assert shown["final_norm"] == pytest.approx(normed * parameters["final_norm.gain"] + parameters["final_norm.shift"])
    assert np.array_equal(shown["output"], shown["final_norm"])


@pytest.mark.parametrize("size", [6, 7, 512])
def test_positions_against_fifty_digits(size: int) -> None:
    """E-16: long double to nineteen digits of the argument, and float64 within its own σ."""
    x = np.zeros((1, 50, size))
    exact, found = np.empty(x.shape[1:], dtype=object), table(Arithmetic(np.longdouble), x)
    runs = [table(Rounded(2.0**-32, run), x) - table(Arithmetic(), x) for run in range(32)]
    condition = np.sqrt(np.mean(np.square(runs), axis=0)) * 2.0**32
    some = [(s, f) for s in (0, 1, 17, 49) for f in {*range(5), size // 2, size - 2, size - 1}]
    with mp.workdps(50):
        for s, f in some:
            angle = s / mpf(10000) ** (mpf(2 * (f // 2)) / size)
            exact[s, f] = mpmath.sin(angle) if f % 2 == 0 else mpmath.cos(angle)
            assert abs(mpf(float(found[s, f])) - exact[s, f]) < 2**-52
    double = table(Arithmetic(), x)
    error = np.array([float(double[at] - exact[at]) for at in some])
    sigma = np.array([2.0**-53 * condition[at] for at in some])
    assert np.all(np.abs(error) <= 10 * sigma + 2.0**-1022)


def test_float64_is_within_sigma_of_the_golden(tiny: Case) -> None:
    expected = expectation(tiny, 32)
    found = evaluate(tiny, Arithmetic(), tiny.cotangent(expected.kinked_rows))
    for name, value in {**found.stages, **{f"gradient.{n}": g for n, g in found.gradients.items()}}.items():
        sigma = np.maximum(2.0**-53 * expected.condition[name], 2.0**-1022)
        error = np.abs(value - expected.golden[name]) / sigma
        assert np.sqrt(np.mean(error**2)) <= 2, name
        assert error.max() <= 10, name


def test_a_kink_before_the_last_layer_takes_its_item_out() -> None:
    """B-2. A bias of the first layer's hidden units that puts one of them to 0 at one position."""
    case = CASES["stack-post-relu/no-mask"]
    hidden = evaluate(case, Arithmetic(), None).layers[0]["ffn_hidden"]

    class OnAKink(Case):
        def parameters(self) -> dict[str, Array]:
            held = super().parameters()
            held["layers.0.feed_forward.hidden.bias"][3] -= hidden[1, 2, 3]
            return held

    rows = kinked_rows(OnAKink(case.layer, case.situation))
    assert rows.tolist() == [[1, s] for s in range(case.situation.sequence)]
    assert kinked_rows(case).size == 0


def test_items_that_are_named_are_compared_and_the_others_are_not() -> None:
    whole = CASES["stack-pre-gelu/padding-right"]
    part = Case(whole.layer, whole.situation.model_copy(update={"items": (1,)}))
    assert part.specified()[1].tolist() == whole.specified()[1].tolist()
    assert not part.specified()[0].any()
    all_of_it, some = evaluate(whole, Arithmetic(), None), evaluate(part, Arithmetic(), None)
    for name, stage in some.stages.items():
        assert stage.shape == all_of_it.stages[name].shape
        assert stage[1] == pytest.approx(all_of_it.stages[name][1], rel=1e-12)
        assert not stage[0].any()
    cotangent = part.cotangent(NO_ROWS)
    of_whole, of_part = (evaluate(case, Arithmetic(), cotangent).gradients for case in (whole, part))
    for name, gradient in of_whole.items():
        assert of_part[name] == pytest.approx(gradient, rel=1e-9, abs=1e-12), name


def test_a_situation_that_names_no_items_has_the_digest_that_it_had() -> None:
    """No golden is rebuilt because the language got a key."""
    case = CASES["pre-gelu/no-mask"]
    assert case_digest(case, constants()) == read_golden_manifest().cases[case.id].case_sha256
    part = Case(case.layer, case.situation.model_copy(update={"items": (0,)}))
    assert case_digest(part, constants()) != case_digest(case, constants())


def test_what_nobody_specifies_goes_on_into_its_item() -> None:
    """E-14: a query with no key, in a stack that does not say what it gives."""
    blind = CASES["pre-gelu/no-mask"].situation.mask.model_copy(
        update={"attention": Blind(kind="blind", queries=((3,), ()))}
    )
    situation = CASES["pre-gelu/no-mask"].situation.model_copy(update={"mask": blind})
    one, several = (Case(load().layers[name], situation).specified() for name in ("pre-gelu", "stack-pre-gelu"))
    assert [int((~rows).sum()) for rows in one] == [1, 0]
    assert [bool(rows.any()) for rows in several] == [False, True]


def test_token_ids_cross_the_wire_in_place_of_x(honest_task: Callable[[Case], Task]) -> None:
    case = CASES["encoder-pre-gelu/tokens-padding"]
    sent = encode_inputs(honest_task(case))
    assert set(sent) == {"ids", "padding_mask"}
    assert sent["ids"].dtype == np.int64
    assert np.array_equal(sent["ids"], case.ids())


def test_padding_ids_cross_the_wire_in_place_of_a_mask(honest_task: Callable[[Case], Task]) -> None:
    """M-9, P-7: id 0 is at padding, and nowhere else, whatever the seed."""
    case = CASES["encoder-pre-gelu/tokens-padding-ids"]
    for seed in (0, 1):
        request, sent = run_request(honest_task(replace(case, seed=seed)), NO_ROWS)
        assert set(sent) == {"ids"}
        assert request.given.padding_id == 0
        assert np.array_equal(sent["ids"] != 0, case.valid())
    assert run_request(honest_task(CASES["encoder-pre-gelu/tokens-padding"]), NO_ROWS)[0].given.padding_id is None


@pytest.mark.release
def test_a_layer_that_makes_no_mask_of_padding_ids_fails_or_says_so(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        from dataclasses import replace
        return super().output(x, replace(masks, padding_id=None), run)
    """
    asked = ("--case", "e*/tokens-padding*", "--dtype", "float32")
    ended = conform("run", "--impl", fake("deaf", lie, checks="[output]"), *asked, diagnosed=False)
    failed = {record["case"] for record in ended.report["records"] if record["outcome"] == "fail"}
    assert failed == {"encoder-pre-gelu/tokens-padding-ids", "embedding-post-relu/tokens-padding-ids"}
    ended = conform("run", "--impl", fake("modest", checks="[output]", padding_ids="false"), *asked)
    assert ended.status == 0
    assert sorted(ended.outcomes("output")) == ["pass", "pass", "unsupported", "unsupported"]
    assert "padding_ids is not among its capabilities" in ended.messages()


@pytest.fixture
def honest_task(honest: Path) -> Callable[[Case], Task]:
    from encoder_conformance.implementation.manifest import read_implementation

    return lambda case: Task(read_implementation(honest), case, "float32", "output", None)


@pytest.mark.parametrize("layer", STACKS, ids=lambda layer: layer.layer)
def test_a_map_of_one_layer_serves_a_stack(layer: Layer) -> None:
    """There and back bit for bit; what is left over or missing is named."""
    if layer.d_model > 64:
        layer = layer.model_copy(update={"d_model": 16, "stack": layer.stack.model_copy(update={"layers": 12})})
    spec = Case(layer, CASES["pre-gelu/no-mask"].situation).parameters()
    every = {name.split(".", 2)[2] for name in spec if name.startswith("layers.")}
    takes = {f"own/{name}": Take(name, transpose=name.endswith("weight")) for name in every}
    around = {name: Take(name) for name in spec if not name.startswith("layers.")}
    parameters = ParameterMap(takes, around, of_layer="block{}/")
    own = parameters.to_own(spec, layer.model_dump(mode="json"))
    assert f"block{layer.stack.layers - 1}/own/norm2.gain" in own
    weight = spec["layers.0.attention.output.weight"]
    assert np.array_equal(own["block0/own/attention.output.weight"], weight.T)
    back = parameters.to_spec(own)
    assert {name: value.tobytes() for name, value in back.items()} == {n: v.tobytes() for n, v in spec.items()}
    with pytest.raises(KeyError, match=r"missing: block0/own/attention\.output\.weight"):
        parameters.to_spec({name: value for name, value in own.items() if name != "block0/own/attention.output.weight"})


def test_what_a_stack_is_made_of() -> None:
    made = {layer.layer: stack_of(layer.model_dump(mode="json")) for layer in load().layers.values()}
    assert made["pre-gelu"] == {}
    assert made["stack-post-relu"] == {"layers": 2, "final_norm": False}
    one = {"layers": 1, "final_norm": False, "vocabulary": 37, "positions": "none"}
    assert made["embedding-post-relu"] == one
    assert {name for name, choices in made.items() if choices} == {layer.layer for layer in STACKS}


def seen(cases: list[Case], *deviations: Deviation) -> list[Observation]:
    """What float32 stacks with these deviations give."""
    found = []
    for case in cases:
        expected = read_golden(case, read_golden_manifest(), constants())
        wrong = deviant(case, deviations).stages(Arithmetic(np.float32))
        names = stages(case.layer)
        answers = {name: wrong[name].astype(np.float32) for name in names}
        outcome = judge("stages", names, answers, expected, FORMATS["float32"]).outcome
        found.append(observation_of(case, expected, FORMATS["float32"], answers, failed=outcome != Outcome.PASS))
    return found


@pytest.mark.release
@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(("positions-halves",), marks=pytest.mark.release),
        pytest.param(("final-norm-added",), marks=pytest.mark.release),
        pytest.param(("last-layer-missing",), marks=pytest.mark.release),
        ("layers-share-parameters",),
        pytest.param(("norm-eps-1e-3",), marks=pytest.mark.release),
    ],
    ids=" + ".join,
)
@pytest.mark.parametrize("cases", [FEW, pytest.param(SMALL, marks=pytest.mark.release)], ids=["few", "all"])
def test_what_is_wrong_in_a_stack_is_named(ids: tuple[str, ...], cases: list[Case]) -> None:
    diagnosis = diagnose(Failing("stacked", "float32"), seen(cases, *(catalogue()[name] for name in ids)))
    assert (diagnosis.confidence, set(diagnosis.deviations)) == ("explained", set(ids))


def test_a_deviation_of_a_stack_says_nothing_of_one_layer() -> None:
    only = ("final-norm-missing", "final-norm-added", "positions-missing", "embedding-scaled", "last-layer-missing")
    one, ids = CASES["pre-gelu/no-mask"], CASES["encoder-pre-gelu/tokens"]
    assert not any(changes(one, catalogue()[name]) for name in only)
    assert [name for name in only if changes(ids, catalogue()[name])] == [n for n in only if n != "final-norm-added"]
    assert not changes(CASES["embedding-post-relu/tokens"], catalogue()["positions-missing"])
    zeroed = deviant(CASES["stack-pre-gelu/no-mask"], [catalogue()["ffn-biases-missing"]]).given.parameters
    assert not any(value.any() for name, value in zeroed.items() if "feed_forward" in name and name.endswith("bias"))


@pytest.mark.release
def test_a_stack_is_run_traced_and_its_memory_predicted(conform: Callable, honest: Path) -> None:
    ran = conform("run", "--impl", honest, "--case", "encoder-pre-gelu/*", "--case", "stack-shared-heads/*")
    assert ran.status == 0, ran.stdout + ran.stderr
    traced = conform("trace", "--impl", honest, "--case", "encoder-pre-gelu/tokens-padding", "--json")
    assert traced.status == 0, traced.stdout + traced.stderr
    shown = json.loads(traced.stdout)
    assert all(row["note"] for row in shown["stages"])
    judged = [row["stage"] for row in shown["stages"] if row["rms"] is not None]
    assert [name for name in judged if "." not in name] == ["embedded", "layer_0", "layer_1", "final_norm", "output"]
    assert [name.partition(".")[0] for name in judged if "." in name] == ["layer_0"] * 18 + ["layer_1"] * 18
    assert [row["stage"] for row in shown["stages"] if row["rms"] is None] == ["token_embedding", "positions"]
    assert shown["case"].endswith("N = 2")
    predicted = json.loads(conform("memory", "--layer", "encoder-512", "--json").stdout)
    assert predicted["layers"] == 6
    assert predicted["bytes"][0]["all_layers"] == 6 * predicted["bytes"][0]["total"]


@pytest.mark.release
def test_a_manifest_may_list_one_layer_of_a_stack_among_its_stages(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        return {name: value for name, value in super().stages(x, masks, run).items() if name in ("layer_0", "output")}
    """
    asked = ("--case", "stack-pre-gelu/no-mask", "--dtype", "float32")
    ended = conform("run", "--impl", fake("first", lie, stages="[layer_0, output]"), *asked)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.outcomes("stages") == ["pass"]
    ended = conform("run", "--impl", fake("all_of_them", lie, stages="[layer_k, output]"), *asked)
    assert ended.outcomes("stages") == ["error"]
    assert "missing layer_1" in ended.messages()
    inside = lie.replace('"layer_0"', '"layer_0.norm1", "layer_1.norm1", "layer_2.norm1"')
    ended = conform("run", "--impl", fake("inside", inside, stages="[layer_k.norm1, output]"), *asked)
    assert ended.outcomes("stages") == ["pass"]
    ended = conform("run", "--impl", fake("unknown", lie, stages="[layer_one]"), *asked)
    assert ended.status == 2
    assert "stages has layer_one, which the specification does not know" in ended.stderr


def with_equation(stage: str, specified: str, found: str) -> Deviation:
    return deviation_of({stage: {Equation(specified).form: found}})


@pytest.mark.release
def test_a_step_that_is_wrong_in_every_layer_of_a_stack_has_its_equation() -> None:
    """No catalogue has it, and a stack is all that is seen."""
    wrong = with_equation("residual2", "residual1 + ffn_output", "residual1 + 0.5 * ffn_output")
    diagnosis = diagnose(Failing("halved", "float32"), seen([CASES["stack-pre-gelu/no-mask"]], wrong))
    assert (diagnosis.confidence, diagnosis.first_stage) == ("explained", "layer_0.residual2")
    [equation] = diagnosis.equations
    assert (equation.stage, equation.found) == ("residual2", "residual1 + 0.5 * ffn_output")
    assert equation.rms < 2


@pytest.mark.release
def test_a_step_that_is_wrong_in_one_layer_is_named_with_its_layer() -> None:
    """An equation of every layer says nothing of it: the layer and the stage are what is said."""
    case = CASES["stack-pre-gelu/no-mask"]
    [right] = seen([case])
    scores = right.whole["layer_1.attention_scores"]
    places = right.expected.tensors["layer_1.attention_scores"].positions
    tripled = replace(
        right,
        failed=True,
        whole={**right.whole, "layer_1.attention_scores": 3 * scores},
        values={**right.values, "layer_1.attention_scores": 3 * scores.reshape(-1)[places]},
    )
    diagnosis = diagnose(Failing("tripled", "float32"), [tripled])
    assert diagnosis.confidence == "unknown"
    assert diagnosis.first_stage == "layer_1.attention_scores"
    assert diagnosis.left_open[0] == "layer_1.attention_scores"
    [said] = diagnosis.observed
    assert (said.kind, said.values["stage"]) == ("factor", "attention_scores")
    assert abs(said.values["factor"] - 3) < 1e-6


def test_a_long_stack_shows_its_layers_alone() -> None:
    """T-3: goldens of every stage of every layer would say no more."""
    layer = load().layers["stack-pre-gelu"]
    few, many = (layer.model_copy(update={"stack": Stack(layers=n, final_norm=True)}) for n in (4, 5))
    assert len(stages(few)) == 4 * 19 + 2
    assert stages(many) == (*(f"layer_{k}" for k in range(5)), "final_norm", "output")
    case = Case(many, CASES["stack-pre-gelu/single-item"].situation)
    assert tuple(evaluate(case, Arithmetic(), None).stages) == stages(many)
