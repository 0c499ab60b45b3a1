"""`pytest --conform` of modules: each check is an item, and declared deviations are verified."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester):
    """pytest in a process of its own, as a user runs it."""
    return lambda *arguments: pytester.runpytest_subprocess("-q", *arguments)


def test_what_does_not_exist_is_a_wrong_use(pytester: pytest.Pytester, run) -> None:
    ended = run("--conform", "nowhere.py:Layer")
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["*there is no file 'nowhere.py'*"])


LAYER = """
from torch import nn


class Right(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(8, 2, 12, batch_first=True)


class Tanh(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(8, 2, 12, batch_first=True, activation=lambda y: nn.functional.gelu(y, approximate="tanh"))
"""


@pytest.fixture
def layers(pytester: pytest.Pytester) -> Path:
    pytester.makepyfile(test_own="def test_own(): pass")
    return pytester.makepyfile(layers=LAYER)


FEW = ("-k", "as-stated or (no-mask and float32)")


def test_each_check_is_an_item(layers: Path, run) -> None:
    ended = run("--conform", "layers.py:Right", "--conform-layer", "post-relu", *FEW, "-vv", "--junitxml=junit.xml")
    assert ended.ret == 0
    ended.stdout.fnmatch_lines(["conform::layers.py:Right::post-relu/no-mask?float32-gradients? PASSED*"])
    ended.stdout.fnmatch_lines(["*conform: layers.py:Right: examining the module …"])
    assert "test_own" not in ended.stdout.str(), "no path was given: the module alone is judged"
    assert 'name="post-relu/no-mask[float32-output]"' in layers.with_name("junit.xml").read_text()


@pytest.mark.release
def test_a_wrong_one_fails_is_named_and_declared(layers: Path, run) -> None:
    told = ("--conform", "layers.py:Tanh", "--conform-layer", "post-gelu", *FEW)
    ended = run(*told, "test_own.py")
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(
        ["*feed_forward.activation is gelu_tanh in the module*", "*Cause: GELU is its tanh*(gelu-tanh)*"]
    )
    assert run(*told, "--conform-update").ret == 0
    assert "deviation: gelu-tanh" in layers.with_name("conform.yaml").read_text()
    assert run("--conform", "layers.py:Tanh", *FEW).ret == 0, "conform.yaml has layer and deviations"


@pytest.mark.release
def test_a_declaration_that_is_stale_fails(layers: Path, run) -> None:
    known = "{layer: post-gelu, deviations: [{deviation: norm-eps-1e-3, reason: it was once}]}"
    layers.with_name("conform.yaml").write_text(f"modules: {{'layers.py:Tanh': {known}}}")
    assert run("--conform", "layers.py:Tanh", *FEW).ret == 1
    assert run("--conform", "layers.py:Tanh", "--conform-update", *FEW).ret == 0
    text = layers.with_name("conform.yaml").read_text()
    assert "gelu-tanh" in text
    assert "norm-eps" not in text


@pytest.mark.release
def test_a_choice_is_a_warning_as_in_a_check(pytester: pytest.Pytester, run) -> None:
    """-1e9 where a mask hides: `conform check` says it, and ends with 0."""
    pytester.makepyfile(filled=Path(__file__).with_name("also_modules.py").read_text(encoding="utf-8"))
    ended = run("--conform", "filled.py:Filled", "-k", "as-stated or (extreme-logits and float32)")
    assert ended.ret == 0, ended.stdout.str()
    ended.stdout.fnmatch_lines(["*UserWarning: a choice of its own, mask-filled-minus-1e9: *"])
    assert ended.parseoutcomes()["passed"] > 2


@pytest.mark.release
def test_what_is_around_the_layers_of_a_model_is_an_item(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(models=Path(__file__).with_name("model_modules.py").read_text(encoding="utf-8"))
    few = ("-k", "around-its-layers or (no-mask and float32)")
    ended = run("--conform", "models.py:PaddingNotHandedOn", *few)
    assert ended.ret == 1, ended.stdout.str()
    ended.stdout.fnmatch_lines(["*src_key_padding_mask is taken, and changes nothing that the model gives*"])
    assert ended.parseoutcomes()["failed"] == 1
    ended = run("--conform", "models.py:NotHandedOn", *few)
    assert ended.ret == 0, ended.stdout.str()
    ended.stdout.fnmatch_lines(["*UserWarning: attention_mask is taken, and changes nothing that the model gives*"])
