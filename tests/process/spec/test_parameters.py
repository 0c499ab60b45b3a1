"""`conform parameters`: what a live layer holds, total and trainable, by name, and the norms of gradients."""

import json
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import pytest

from encoder_conformance.commands.inspect.layer_selection import at_size, find_layer
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.parameters import parameter_count, parameters_of

SIZES = ("--layer", "pre-gelu", "--batch", "3", "--sequence", "7")
NO_ROWS = np.zeros((0, 2), dtype=np.int64)


def test_every_parameter_total_and_trainable_by_name(conform: Callable, honest: Path) -> None:
    ended = conform("parameters", "--impl", honest, *SIZES)
    assert ended.status == 0, ended.stderr
    layer = find_layer("pre-gelu")
    shown = {line.split()[0]: line for line in ended.stdout.splitlines() if line.split()}
    for parameter in parameters_of(layer):
        shape = parameter.shape(layer)
        assert str(list(shape)) in shown[parameter.name]
        assert f"{prod(shape):,}" in shown[parameter.name]
        assert "yes" in shown[parameter.name]
    count = f"{parameter_count(layer):,}"
    assert f"{count} parameters in {len(parameters_of(layer))} tensors, {count} trainable" in ended.stdout
    assert "gradient" not in ended.stdout


def test_the_norms_of_gradients_are_those_of_the_oracle(conform: Callable, honest: Path) -> None:
    arguments = ("parameters", "--impl", honest, *SIZES, "--gradients", "--dtype", "float64")
    found = json.loads(conform(*arguments, "--json").stdout)
    case = at_size(find_layer("pre-gelu"), 3, 7)
    due = evaluate(case, Arithmetic(np.float64), case.cotangent(NO_ROWS)).gradients
    assert found["by_input"] == pytest.approx(np.linalg.norm(due["x"]))
    for row in found["rows"]:
        assert row["gradient"] == pytest.approx(np.linalg.norm(due[row["name"]]), abs=1e-9), row["name"]
    shown = conform(*arguments).stdout
    [line] = [line.split() for line in shown.splitlines() if "the input" in line]
    assert line == ["x,", "the", "input", "[3,", "7,", "24]", f"{found['by_input']:.4g}"]


def test_what_is_frozen_is_told_from_what_is_trained(conform: Callable, fake: Callable) -> None:
    lie = """
    def initialise(self, seed):
        from encoder_conformance import Fresh
        fresh = super().initialise(seed)
        return Fresh(fresh.parameters, tuple(name for name in fresh.trainable if not name.startswith("norm")))
    """
    folder = fake("frozen", lie)
    found = json.loads(conform("parameters", "--impl", folder, *SIZES, "--json").stdout)
    frozen = {row["name"] for row in found["rows"] if not row["trainable"]}
    assert frozen == {"norm1.gain", "norm1.shift", "norm2.gain", "norm2.shift"}
    assert found["trainable"] == found["total"] - 4 * 24
    assert f"{found['total']:,} parameters in 16 tensors, {found['trainable']:,} trainable" in (
        conform("parameters", "--impl", folder, *SIZES).stdout
    )


def test_one_that_does_not_say_what_is_trained(conform: Callable, fake: Callable) -> None:
    lie = """
    def initialise(self, seed):
        raise NotImplementedError("it draws nothing")
    """
    ended = conform("parameters", "--impl", fake("silent", lie), *SIZES)
    assert ended.status == 0, ended.stderr
    assert "how many are trainable is unknown" in ended.stdout
    assert "it draws nothing" in ended.stdout


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("del held['norm1.gain']", "parameters missing from the built layer: norm1.gain"),
        ("held['norm1.gain'] = held['norm1.gain'][:5]", "norm1.gain came back as float32 [5] instead of float32 [24]"),
        ("held['norm1.gain'] = held['norm1.gain'] * 2", "parameter norm1.gain came back with other values"),
    ],
    ids=["missing", "shape", "values"],
)
def test_a_layer_that_does_not_hold_what_it_was_sent(conform: Callable, fake: Callable, lie: str, said: str) -> None:
    body = f"""
    def build(self, layer, parameters, dtype):
        held = dict(super().build(layer, parameters, dtype))
        {lie}
        return held
    """
    ended = conform("parameters", "--impl", fake("forgetful", body), *SIZES)
    assert ended.status == 1
    assert said in ended.stderr
    assert not ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_stack_of_token_ids_has_no_gradient_by_x(conform: Callable, honest: Path) -> None:
    sizes = ("--layer", "encoder-pre-gelu", "--batch", "2", "--sequence", "5")
    found = json.loads(conform("parameters", "--impl", honest, *sizes, "--gradients", "--json").stdout)
    assert found["by_input"] is None
    assert found["rows"][0]["name"] == "embedding.weight"
    assert found["rows"][0]["gradient"] > 0
    assert found["total"] == parameter_count(find_layer("encoder-pre-gelu"))
