"""Of a model from ids whose layers are judged: what its own mask hides at its outputs."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from encoder_conformance.protocol.model_masks import ModelMask  # noqa: E402
from encoder_conformance.readers.module_target.errors import BadTarget  # noqa: E402
from encoder_conformance.readers.module_target.frameworks import framework_of  # noqa: E402
from encoder_conformance.readers.module_target.masks_of_model import masks_of_model  # noqa: E402

FILE = Path(__file__).with_name("model_modules.py")
MODELS = SimpleNamespace(**runpy.run_path(str(FILE)))


def masks_of(name: str) -> tuple[ModelMask, ...]:
    torch.manual_seed(0)
    model = getattr(MODELS, name)()
    framework = framework_of(model)
    assert framework is not None
    return masks_of_model(framework.whole(model), lambda: (16, 6))


@pytest.mark.parametrize(
    ("name", "effect", "meaning"),
    [
        ("Right", "hides", "attend"),
        ("WithoutAnOpenMask", "hides", "attend"),
        ("OfTwoRanks", "hides", "attend"),
        ("Inverted", "hides", "ignore"),
        ("Causal", "hides", "attend"),
        ("OfScores", "hides", "attend"),
        ("SequenceFirst", "hides", "attend"),
        ("Projected", "hides", "attend"),
        ("PooledRight", "hides", "attend"),
        ("OfAnotherInput", "hides", "attend"),
        ("NotHandedOn", "idle", None),
        ("PaddingNotHandedOn", "idle", None),
        ("ToTheFirst", "elsewhere", None),
        ("PooledAlone", "elsewhere", None),
        ("PooledWithoutPlaces", "elsewhere", None),
        ("Zeroed", "attended", "attend"),
        ("ZeroedAndPooled", "attended", "attend"),
        ("Pooled", "pooled", "attend"),
    ],
)
def test_what_a_model_does_with_its_mask_is_told(name: str, effect: str, meaning: str | None) -> None:
    [found] = masks_of(name)
    assert (found.effect, found.meaning) == (effect, meaning)


def test_an_output_of_whole_items_is_named() -> None:
    names = "Pooled", "PooledAlone", "ZeroedAndPooled", "Zeroed", "ToTheFirst"
    assert [masks_of(name)[0].output for name in names] == ["1", "output", "output", "", ""]


def test_a_model_without_a_mask_is_not_called() -> None:
    assert masks_of("WithoutMask") == ()


def test_one_that_answers_at_random_is_not_asked() -> None:
    with pytest.raises(BadTarget, match="no way was found to call the model twice alike"):
        masks_of("AtRandom")


def line_of(remark: str) -> str:
    lines = FILE.read_text().splitlines()
    return f"{FILE.name}:{1 + next(number for number, line in enumerate(lines) if line.endswith(remark))}"


def test_a_mask_that_is_not_handed_on_is_a_warning(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:NotHandedOn", "--jobs", "1", "--out", tmp_path / "out")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "attention_mask is taken, and changes nothing that the model gives" in ended.stdout
    assert f"({line_of('# takes it')})" in ended.stdout
    assert "but for what attention_mask hides (1 warning: see above)" in ended.stdout
    [found] = json.loads((tmp_path / "out" / "check.json").read_text())["of_whole"]
    assert (found["kind"], found["about"]["argument"]) == ("mask-hides-nothing", "attention_mask")


@pytest.mark.release
def test_a_mask_that_can_be_nothing_but_padding_is_an_error(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:PaddingNotHandedOn", "--jobs", "1", "--out", tmp_path / "out")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "PaddingNotHandedOn is wrong around these parts: src_key_padding_mask is taken, and changes" in ended.stdout
    assert "This is a correct" in ended.stdout, "its layers are"


@pytest.mark.release
def test_one_part_by_name_is_asked_without_its_model(conform: Callable, tmp_path: Path) -> None:
    told = ("check", f"{FILE}:PaddingNotHandedOn", "--at", "layers.0", "--jobs", "1", "--out", tmp_path / "out")
    ended = conform(*told)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "src_key_padding_mask" not in ended.stdout


@pytest.mark.release
def test_a_worker_that_is_lost_is_said_and_its_verdict_is_not_kept(conform: Callable, tmp_path: Path) -> None:
    """What it read is lost with it, and so nobody knows what the verdict rests on."""
    told = ("check", f"{FILE}:EndsWithAnOddMask", "--dtype", "float32", "--jobs", "1", "--out", tmp_path / "out")
    for _ in range(2):
        ended = conform(*told)
        assert ended.status == 0, ended.stdout + ended.stderr
        assert "hide at the model's outputs was not asked: the worker exited with status 3" in ended.stdout
        assert "nothing that this rests on has changed" not in ended.stdout


@pytest.mark.release
def test_what_may_be_a_layer_and_is_not_reached_is_said(conform: Callable, tmp_path: Path) -> None:
    told = ("check", f"{FILE}:WithLayersUnused", "--dtype", "float32", "--jobs", "1", "--out", tmp_path / "out")
    ended = conform(*told)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "Not judged: heads.0 and heads.1, which may be layers, too." in ended.stdout
    assert json.loads((tmp_path / "out" / "check.json").read_text())["beside"] == ["heads.0", "heads.1"]
