"""Training judged over the wire: fakes that each drop, or begin, wrongly in one way, and what is said of each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from products import daily

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import DtypeName, read_implementation
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.judging.checks.training.embedded import EmbeddedProbe
from encoder_conformance.judging.checks.training.probe import Probe
from encoder_conformance.judging.checks.training.reading import read
from encoder_conformance.judging.checks.training.statistics import (
    FALSE_ALARM,
    HIDDEN,
    Z_LIMIT,
    dependence,
    is_surely_uniform,
    rate,
    uniform,
    variance,
)
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.session import Session

SPECIFICATION = load()
LAYERS = [name for name, layer in SPECIFICATION.layers.items() if layer.family == "dropout"]


def records(folder: Path, *cases: str, dtype: DtypeName = "float32") -> list[Record]:
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    tasks = plan(ready.implementation, [SPECIFICATION.cases[case] for case in cases], (dtype,))
    session, manifest = Session(ready, "cpu", 1, folder / "worker.log"), read_golden_manifest()
    try:
        return [judged(put(session, t, lambda case: read_golden(case, manifest, constants()))) for t in tasks]
    finally:
        session.close()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_honest_one_passes(honest: Path, tmp_path: Path, dtype: DtypeName) -> None:
    cases = [f"{name}/dropout" for name in (*LAYERS, "encoder-dropout")]
    cases += ["pre-gelu/initialisation", "pre-gelu-shared-heads/initialisation"]
    found = records(_copied(honest, tmp_path), *cases, dtype=dtype)
    assert len(found) == len(cases)
    for record in found:
        assert record.outcome is Outcome.PASS, f"{record.case}: {record.message}"


def told(body: str, lie: str) -> str:
    """A lie of one or more lines in the place for it."""
    return body.format(lie=lie.replace("\n", "\n    "))


def asked(folder: Path, *cases: str) -> list[Record]:
    return [record for record in records(folder, *cases) if record.outcome is not Outcome.UNSUPPORTED]


def _copied(folder: Path, below: Path) -> Path:
    """So that the log is written elsewhere."""
    made = below / folder.name
    made.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (made / path.name).write_bytes(path.read_bytes())
    return made


DROPOUT = {
    "another-rate": (
        "if placement == 'ffn_activation': left = np.where(draw.random(value.shape) >= 0.3, value / (1 - rate), 0)",
        ["dropout of ffn_activation: rate 0.299 instead of 0.5 (z = -"],
    ),
    "rates-swapped": (
        "rate = {'attention_output': 0.2, 'ffn_output': 0.25}.get(placement, rate)\n"
        "left = np.where(draw.random(value.shape) >= rate, value / (1 - rate), 0)",
        ["dropout of attention_output: rate 0.198 instead of 0.25", "dropout of ffn_output: rate 0.249 instead of 0.2"],
    ),
    "rate-to-keep": (
        "if placement == 'attention_weights': left = np.where(draw.random(value.shape) < 0.1, value * 10, 0)",
        ["dropout of attention_weights: rate 0.9", "instead of 0.1 (z = ", "multiplied by 10 instead of 1.111"],
    ),
    "none": ("left = value if placement == 'ffn_output' else left", ["dropout of ffn_output: rate 0 instead of 0.2"]),
    "not-scaled": (
        "left = left * (1 - rate)",
        [f"dropout of {name}: what is kept is multiplied by 1" for name in ("attention_weights", "ffn_activation")],
    ),
    "scaled-by-the-rate": (
        "left = left * (1 - rate) / rate if placement == 'attention_output' else left",
        ["dropout of attention_output: what is kept is multiplied by 4 instead of 1.333"],
    ),
    "one-mask-for-every-item": (
        "left = value * (draw.random(value.shape[1:]) >= rate) / (1 - rate)",
        [f"dropout of {name}: one draw for several items" for name in ("attention_weights", "ffn_output")],
    ),
    "one-mask-for-every-head": (
        "if value.ndim == 4: left = value * (draw.random((len(value), 1, *value.shape[2:])) >= rate) / (1 - rate)",
        ["dropout of attention_weights: one draw for several heads"],
    ),
    "one-draw-a-position": (
        "if 'act' in placement: left = value * (draw.random((*value.shape[:2], 1)) >= rate) / (1 - rate)",
        ["dropout of ffn_activation: one draw for several hidden units"],
    ),
    "one-mask-for-two-placements": (
        "left = value * (np.random.default_rng(draw.bit_generator.seed_seq).random(value.shape) >= rate) / (1 - rate)",
        ["dropout of attention_output and of ffn_output are drawn together"],
    ),
    "the-same-for-every-seed": (
        "left = value * (np.random.default_rng(len(placement)).random(value.shape) >= rate) / (1 - rate)",
        ["dropout of ffn_output: two seeds drop the same elements"],
    ),
    "gaussian": (
        "if placement == 'ffn_output': left = value * draw.normal(1, (rate / (1 - rate)) ** 0.5, value.shape)",
        ["dropout cannot be read off: ffn_output: one number is kept as 0.5"],
    ),
}
"""Name → what is `left` of `value` at a `placement` of `rate`, and what is said of it."""


DROPS = """
def dropped(self, placement, value, draw):
    rate, left = getattr(self.layer.dropout, placement), super().dropped(placement, value, draw)
    {lie}
    return left
"""


@pytest.mark.parametrize("name", daily(("another-rate",), DROPOUT))
def test_dropout_that_is_wrong_in_one_way_fails(fake: Callable, name: str) -> None:
    lie, said = DROPOUT[name]
    [record] = records(fake("liar", told(DROPS, lie), checks="[dropout]"), "pre-gelu-dropout/dropout")
    assert record.outcome is Outcome.FAIL
    for words in said:
        assert words in record.message


SLOPES = {
    "drawn-again": "return super().slope(placement, ones, np.random.default_rng(7))",
    "one-placement": "return ones if placement == 'attention_weights' else super().slope(placement, ones, draw)",
    "not-scaled": "return super().slope(placement, ones, draw) * (0.8 if placement == 'ffn_output' else 1)",
}
"""Name → what the gradient of a dropped stage is multiplied by."""


@pytest.mark.parametrize("name", SLOPES)
def test_a_gradient_of_another_dropout_mask_fails(fake: Callable, name: str) -> None:
    body = f"def slope(self, placement, ones, draw):\n    {SLOPES[name]}\n"
    [record] = records(fake("liar", body, checks="[dropout, gradients]"), "pre-gelu-dropout/dropout", dtype="float64")
    assert record.outcome is Outcome.FAIL
    assert record.message.startswith("with dropout on, the gradient is not that of the mask that the output shows: ")
    assert ";" not in record.message, "nothing else is wrong"


def test_a_gradient_of_a_mask_that_no_seed_repeats_is_not_judged(fake: Callable) -> None:
    body = """
    def dropped(self, placement, value, draw):
        return super().dropped(placement, value, np.random.default_rng())
    """
    [record] = records(fake("odd", body, checks="[dropout, gradients]"), "pre-gelu-dropout/dropout", dtype="float64")
    assert record.outcome is Outcome.PASS, record.message


def test_dropout_that_is_wrong_behind_a_norm_fails(fake: Callable) -> None:
    body = """
    def dropped(self, placement, value, draw):
        if placement != "ffn_output":
            return super().dropped(placement, value, draw)
        return value * (draw.random(value.shape) >= 0.3) / 0.6
    """
    [record] = records(fake("liar", body, checks="[dropout]"), "post-relu-dropout/dropout")
    assert record.outcome is Outcome.FAIL
    assert record.message.startswith("dropout of ffn_output: rate 0.3 instead of 0.4 (z = -")
    assert ";" not in record.message, "nothing else is wrong"


def test_dropout_where_the_rate_is_0_fails(fake: Callable) -> None:
    body = """
    def _forward(self, x, masks, run):
        rates = self.layer.dropout.model_copy(update={"ffn_activation": 0.1})
        self.layer = self.layer.model_copy(update={"dropout": rates})
        return super()._forward(x, masks, run)
    """
    [record] = records(fake("liar", body, checks="[dropout]"), "pre-gelu-dropout-outside/dropout")
    assert record.outcome is Outcome.FAIL
    assert "dropout of ffn_activation: rate 0.1 instead of 0 (z = inf)" in record.message


EMBEDDED = {
    "another-rate": (
        "left = np.where(draw.random(value.shape) >= 0.3, value / 0.7, 0) if placement == 'embedded' else left",
        "dropout of embedded: rate 0.302 instead of 0.1 (z = ",
    ),
    "none": ("left = value if placement == 'embedded' else left", "this is embedded-dropout-missing"),
    "not-scaled": (
        "left = left * (1 - rate)",
        "dropout of embedded: what is kept is multiplied by",
    ),
    "one-draw-a-position": (
        "if placement == 'embedded': left = value * (draw.random((*value.shape[:2], 1)) >= rate) / (1 - rate)",
        "dropout of embedded: one draw for several features",
    ),
    "gaussian": (
        "if placement == 'embedded': left = value * draw.normal(1, (rate / (1 - rate)) ** 0.5, value.shape)",
        "dropout cannot be read off: embedded: ",
    ),
}


@pytest.mark.parametrize("name", daily(("none", "one-draw-a-position"), EMBEDDED))
def test_dropout_of_embedded_tokens_that_is_wrong_fails(fake: Callable, name: str) -> None:
    """A final norm hides how large its input is but for its epsilon, and the factor of what is kept is read all the
    same (Q-4)."""
    lie, said = EMBEDDED[name]
    [record] = records(fake("liar", told(DROPS, lie), checks="[dropout]"), "encoder-dropout/dropout")
    assert record.outcome is Outcome.FAIL
    assert said in record.message


def test_dropout_of_embedded_tokens_may_be_declared_to_be_missing(fake: Callable) -> None:
    lie = "left = value if placement == 'embedded' else left"
    declared = DECLARED.replace("ffn-activation-dropout-missing", "embedded-dropout-missing")
    [record] = records(
        fake("modest", told(DROPS, lie), checks="[dropout]", deviations=declared), "encoder-dropout/dropout"
    )
    assert (record.outcome, record.deviations) == (Outcome.DEVIATES, ("embedded-dropout-missing",))


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_the_mask_of_embedded_tokens_is_read_through_every_norm(
    placement: str, kind: str, honest_adapter: object
) -> None:
    layer = SPECIFICATION.layers["encoder-dropout"]
    layer = layer.model_copy(update={"norm": layer.norm.model_copy(update={"placement": placement, "kind": kind})})
    probe, drawn = EmbeddedProbe(layer), dict[str, np.ndarray]()

    def dropped(placement: str, value: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        kept = draw.random(value.shape) >= 0.1
        drawn.setdefault(placement, kept)
        return value * kept / 0.9

    from encoder_conformance import Masks, RunRequest

    honest_adapter.dropped = dropped  # type: ignore[attr-defined]
    parameters = {each.name: probe.parameter(each) for each in parameters_of(layer)}
    honest_adapter.build(layer.model_dump(mode="json"), parameters, "float64")  # type: ignore[attr-defined]
    ids = probe.inputs(np.dtype(np.float64))["ids"]
    reading = probe.read(honest_adapter.output(ids, Masks(None, None), RunRequest(mode="train")))  # type: ignore[attr-defined]
    seen = reading.kept["embedded"]
    shown = seen != HIDDEN
    assert shown.mean() > 0.9
    assert np.array_equal(seen[shown], drawn["embedded"][shown])
    assert np.abs(reading.scales["embedded"] * 0.9 - 1).max() < 1e-12


EVAL = """
def _forward(self, x, masks, run):
    from dataclasses import replace
    return super()._forward(x, masks, replace(run, mode="train"))
"""


def test_dropout_that_stays_on_in_eval_fails_both_ways(fake: Callable) -> None:
    folder = fake("liar", EVAL, checks="[dropout, output]")
    found = {r.case: r for r in asked(folder, "pre-gelu-dropout/dropout", "pre-gelu-dropout/no-mask")}
    assert "mode eval: dropout of ffn_activation is on: " in found["pre-gelu-dropout/dropout"].message
    assert "output: rms" in found["pre-gelu-dropout/no-mask"].message


def test_an_output_that_has_nothing_to_do_with_the_probe_is_said_to_be(fake: Callable) -> None:
    for lie, said in (("out * 0", "cannot be read off"), ("out * np.nan", "not finite"), ("out[:1]", "instead of")):
        body = f"def output(self, x, masks, run):\n    out = super().output(x, masks, run)\n    return {lie}"
        name = f"liar_{len(lie)}_{len(said)}"
        [record] = records(fake(name, body, checks="[dropout]"), "post-relu-dropout/dropout")
        assert record.outcome is Outcome.FAIL
        assert said in record.message


def test_no_training_mode_is_unsupported(fake: Callable) -> None:
    [record] = records(fake("modest", modes="[eval]"), "pre-gelu-dropout/dropout")
    assert record.outcome is Outcome.UNSUPPORTED
    assert record.message == "mode train is not among its capabilities"


INITIAL = {
    "normal": (
        "made = draw.normal(0, bound / 3**0.5, shape) if weight else made",
        "attention.query.weight: as large as",
    ),
    "truncated-normal": (
        "made = np.clip(draw.normal(0, bound / 3**0.5, shape), -bound, bound) if weight else made",
        "weight: root mean square 0.1",
    ),
    "two-points": (
        "made = bound / 3**0.5 * draw.choice([-1, 1], shape) if weight else made",
        "feed_forward.hidden.weight: not drawn uniformly from ±0.306",
    ),
    "kaiming": ("made = made / bound * (6 / shape[0]) ** 0.5 if weight else made", "where Xavier's bound is 0.3536"),
    "pytorchs-own": ("made = made / bound * shape[0] ** -0.5 if weight else made", "root mean square 0.11"),
    "fans-of-the-heads": (
        "made = made / bound * (6 / (24 + 8)) ** 0.5 if 'query' in name else made",
        "attention.query.weight: as large as",
    ),
    "biases-drawn": ("made = draw.uniform(-1, 1, shape) if 'bias' in name else made", "24 elements are not 0"),
    "gains-of-0": ("made = made * 0 if 'gain' in name else made", "norm1.gain: 24 of 24 elements are not 1"),
    "shifts-of-1": ("made = made + 1 if 'shift' in name else made", "norm2.shift: 24 of 24 elements are not 0"),
    "zeros": ("made = made * 0", "attention.key.weight: root mean square 0 instead of 0.204"),
    "one-seed": (
        "made = np.random.default_rng(len(name)).uniform(-bound, bound, shape) if weight else made",
        "attention.query.weight: the same for two seeds",
    ),
    "all-alike": (
        "made = np.random.default_rng(self.drawn_from).uniform(-bound, bound, shape) if weight else made",
        "attention.query.weight and attention.key.weight are equal",
    ),
    "heads-alike": (
        "made = np.tile(made[:, :8], 3) if 'value.weight' in name else made",
        "attention.value.weight: two equal columns",
    ),
}
"""Name → how what is `made` of a parameter is wrong, and what is said of it."""


BEGINS = """
def initialise(self, seed):
    self.drawn_from = seed
    return super().initialise(seed)

def initial(self, draw, name, shape):
    made, weight, bound = super().initial(draw, name, shape), "weight" in name, (6 / sum(shape)) ** 0.5
    {lie}
    return made
"""


@pytest.mark.parametrize("name", daily(("kaiming",), INITIAL))
def test_a_layer_that_begins_wrongly_fails(fake: Callable, name: str) -> None:
    lie, said = INITIAL[name]
    [record] = records(fake("liar", told(BEGINS, lie), checks="[initialisation]"), "pre-gelu/initialisation")
    assert record.outcome is Outcome.FAIL
    assert said in record.message


PARAMETERS = {
    "frozen": (
        "return Fresh(made.parameters, tuple(name for name in made.trainable if name != 'norm1.gain'))",
        "4,456 of 4,480 parameters are trained: not norm1.gain",
    ),
    "missing": (
        "del made.parameters['norm2.shift']; return made",
        "4,456 parameters instead of 4,480; missing norm2.shift",
    ),
    "left-over": (
        "made.parameters['scale'] = np.ones(3); return made",
        "4,483 parameters instead of 4,480; left over scale",
    ),
    "transposed": (
        "made.parameters['feed_forward.hidden.weight'] = made.parameters['feed_forward.hidden.weight'].T; return made",
        "feed_forward.hidden.weight is float32 [40, 24] instead of float32 [24, 40]",
    ),
    "trains-what-it-has-not": ("return Fresh(made.parameters, (*made.trainable, 'ghost'))", "of this layer: ghost"),
}


HOLDS = """
def initialise(self, seed):
    from encoder_conformance import Fresh
    made = super().initialise(seed)
    {lie}
"""


@pytest.mark.parametrize("name", daily(("frozen", "missing"), PARAMETERS))
def test_other_parameters_than_the_specifications_fail(fake: Callable, name: str) -> None:
    lie, said = PARAMETERS[name]
    [record] = records(fake("liar", told(HOLDS, lie), checks="[initialisation]"), "pre-gelu/initialisation")
    assert record.outcome is Outcome.FAIL
    assert said in record.message


def test_a_layer_is_built_again_after_it_was_initialised(fake: Callable) -> None:
    """The next check is put to the parameters of its own case."""
    lie = "def initialise(self, seed):\n    self.parameters = super().initialise(seed).parameters\n"
    lie += "    return super().initialise(seed)"
    folder = fake("forgetful", lie, checks="[initialisation, output]")
    found = asked(folder, "pre-gelu/initialisation", "pre-gelu/no-mask", "pre-gelu/single-item")
    assert [record.outcome for record in found] == [Outcome.PASS] * 3


@pytest.mark.parametrize("layer", LAYERS)
def test_every_mask_is_read_as_it_was(layer: str, honest_adapter: object) -> None:
    """Masks that are known, through a layer in float64: read where they show, and shown somewhere each."""
    adapter, probe = honest_adapter, Probe(SPECIFICATION.layers[layer])
    drawn: dict[str, np.ndarray] = {}

    def dropped(placement: str, value: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        rate = getattr(probe.layer.dropout, placement)
        drawn[placement] = draw.random(value.shape) >= rate
        return value * drawn[placement] / (1 - rate)

    from encoder_conformance import Masks, RunRequest

    adapter.dropped = dropped  # type: ignore[attr-defined]
    parameters = {each.name: probe.parameter(each) for each in parameters_of(probe.layer)}
    adapter.build(probe.layer.model_dump(mode="json"), parameters, "float64")  # type: ignore[attr-defined]
    out = adapter.output(np.array(probe.x), Masks(None, None), RunRequest(mode="train"))  # type: ignore[attr-defined]
    reading = read(probe, out)
    for placement, mask in drawn.items():
        seen = reading.kept[placement]
        shown = seen != HIDDEN
        assert shown.mean() > 0.2
        assert np.array_equal(seen[shown], mask[shown]), placement


@pytest.mark.release
def test_statistics_fail_what_is_wrong_and_pass_what_is_not() -> None:
    """What is drawn here is drawn right: how often a statistic is beyond 1 in 100 is how honest its chance is."""
    draw = np.random.default_rng(0)
    chances, zs = [], []
    for _ in range(400):
        mask = (draw.random(5000) >= 0.1).astype(np.uint8)
        chances.append(rate([mask], 0.1).chance)
        zs.append(dependence([(mask[1:], mask[:-1])]))
        zs.append(variance(values := draw.uniform(-2, 2, 5000), 2))
        chances.append(uniform(values, 2))
    assert 0.002 < np.mean(np.array(chances) < 0.01) < 0.025
    assert 0.9 < np.std(zs) < 1.1
    assert np.abs(zs).max() < Z_LIMIT
    assert rate([np.zeros(100, np.uint8)], 0.5).wrong
    assert uniform(draw.normal(size=5000), 2) < FALSE_ALARM


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [8, 300, 9_000, 50_000])
def test_a_histogram_says_uniform_only_where_the_test_does(count: int, dtype: type[np.floating]) -> None:
    """Values that are stretched more and more: of what is drawn right nearly all need no sorting."""
    draw, sure = np.random.default_rng(count), []
    for stretch in (1.0, 0.99, 0.95, 0.9, 0.8, 0.5, 0.2):
        for _ in range(5):
            values = (draw.uniform(-2, 2, count) * stretch).astype(dtype)
            sure.append(is_surely_uniform(values, 2))
            assert not sure[-1] or uniform(values, 2) >= FALSE_ALARM
    assert all(sure[:5])
    assert count < 50 or not any(sure[-5:])


MISSING = {
    "ffn-activation-dropout-missing": ("ffn_activation",),
    "attention-dropout-missing": ("attention_weights",),
    "attention-output-dropout-missing and ffn-output-dropout-missing": ("attention_output", "ffn_output"),
    "dropout-missing": ("attention_weights", "attention_output", "ffn_activation", "ffn_output"),
}


@pytest.mark.parametrize("named", MISSING)
def test_dropout_that_is_built_and_never_used_is_named(fake: Callable, named: str) -> None:
    lie = f"left = value if placement in {MISSING[named]} else left"
    [record] = records(fake("unused", told(DROPS, lie), checks="[dropout]"), "pre-gelu-dropout/dropout")
    assert record.outcome is Outcome.FAIL
    causes = record.message.split(": this is ")[1]
    ids = [cause.split(" (")[0] for cause in causes.split(") and ")]
    assert " and ".join(ids) == named
    for placement in MISSING[named]:
        assert f"dropout of {placement}: rate 0 instead of" in record.message


def test_dropout_at_another_rate_is_not_called_missing(fake: Callable) -> None:
    lie, _ = DROPOUT["another-rate"]
    [record] = records(fake("liar", told(DROPS, lie), checks="[dropout]"), "pre-gelu-dropout/dropout")
    assert "this is" not in record.message


UNUSED = "left = value if placement == 'ffn_activation' else left"
DECLARED = '[{deviation: ffn-activation-dropout-missing, reason: "known and accepted", link: "https://example.org"}]'


def test_dropout_that_is_declared_to_be_missing_is_verified(fake: Callable) -> None:
    folder = fake("unused", told(DROPS, UNUSED), checks="[dropout, output]", deviations=DECLARED)
    [dropout, output] = asked(folder, "pre-gelu-dropout/dropout", "pre-gelu-dropout/no-mask")
    assert (dropout.outcome, dropout.deviations) == (Outcome.DEVIATES, ("ffn-activation-dropout-missing",))
    assert output.outcome is Outcome.PASS


def test_dropout_that_is_declared_to_be_missing_and_is_there_is_stale(fake: Callable) -> None:
    [record] = records(fake("mended", checks="[dropout]", deviations=DECLARED), "pre-gelu-dropout/dropout")
    assert record.outcome is Outcome.STALE


def test_what_is_declared_hides_no_other_dropout_that_is_missing(fake: Callable) -> None:
    lie = "left = value if placement in ('ffn_activation', 'ffn_output') else left"
    folder = fake("half_known", told(DROPS, lie), checks="[dropout]", deviations=DECLARED)
    [record] = records(folder, "pre-gelu-dropout/dropout")
    assert record.outcome is Outcome.FAIL
