"""What a module of PyTorch drops in training, and whether it sets the program's generators: wrong ones are named."""

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from products import daily
from torch import nn

from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.dropping import judged
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK
from encoder_conformance.readers.module_target.way_back import drawn_compiled

FILE = Path(__file__).with_name("training_modules.py")
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(FILE.parent), *sys.path])
    MADE: dict[str, Any] = vars(import_module("training_modules"))
DTYPES = ["float64", pytest.param("float32", marks=pytest.mark.release)]
X = np.random.default_rng(0).normal(size=(3, 5, 16))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def dropout_of(module: nn.Module, dtype: Any = "float64") -> WayBackAnswer:
    torch.manual_seed(0)
    with FRAMEWORK.undisturbed():
        live = FRAMEWORK.live(module).in_dtype(dtype)
        feeds = {"x": X.astype(dtype)}
        return judged(live.trained(feeds), live.call(feeds), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MADE["WRONG"])
def test_wrong_dropout_is_named(name: str, dtype: str) -> None:
    made, due = MADE["WRONG"][name]
    answer = dropout_of(made(), dtype)
    assert answer.outcome == "fail"
    assert due in answer.message
    assert answer.message.count("dropout (") <= 2, "nothing else is said of it"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MADE["RIGHT"])
def test_right_dropout_passes(name: str, dtype: str) -> None:
    answer = dropout_of(MADE["RIGHT"][name](), dtype)
    assert (answer.outcome, answer.message) == ("pass", "")


def test_where_it_drops_is_told_with_its_rate() -> None:
    drops = dropout_of(nn.TransformerEncoderLayer(16, 2, 24, dropout=0.2, batch_first=True)).drops
    assert drops is not None
    assert [(each.part, each.rate) for each in drops] == [
        ("self_attn", 0.2), ("dropout1", 0.2), ("dropout", 0.2), ("dropout2", 0.2)
    ]  # fmt: skip
    inline = dropout_of(MADE["RIGHT"]["inline"]()).drops
    assert inline
    assert {each.where.partition(":")[0] for each in inline} == {FILE.name}
    assert dropout_of(nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)).drops == ()


def test_a_submodule_that_is_never_called_is_a_warning() -> None:
    answer = dropout_of(MADE["InModules"](nn.Dropout(0.1), unused=True))
    assert (answer.outcome, answer.message) == ("unusual", "in training second (p = 0.3) is never called")


def test_noise_is_no_dropout_and_not_asked() -> None:
    noisy = MADE["_of"](dropped=lambda self, y: y + 0.1 * torch.randn_like(y))()
    answer = dropout_of(noisy)
    assert answer.outcome == "not-asked"
    assert "it changes numbers at random, and drops none" in answer.message


def compiled_dropout_of(module: nn.Module) -> WayBackAnswer:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with FRAMEWORK.undisturbed():
        live = FRAMEWORK.live(module).bare().in_dtype("float64")  # as an examination has it
        [answer] = drawn_compiled(live, {"x": X}, live.call({"x": X}), "float64")
    assert answer.name == "dropout-compiled"
    return answer


@pytest.mark.parametrize("name", daily(("positions",), MADE["COMPILED_WRONG"]))
def test_wrong_dropout_of_compiled_code_is_named_though_its_own_code_is_right(name: str) -> None:
    made, due = MADE["COMPILED_WRONG"][name]
    assert dropout_of(made()).outcome == "pass"
    answer = compiled_dropout_of(made())
    assert answer.outcome == "fail"
    assert answer.message.startswith("compiled: in training")
    assert due in answer.message


@pytest.mark.parametrize("name", daily(("plain",), MADE["COMPILED_RIGHT"]))
def test_right_dropout_of_compiled_code_passes(name: str) -> None:
    answer = compiled_dropout_of(MADE["COMPILED_RIGHT"][name]())
    assert (answer.outcome, answer.message) == ("pass", "")


@pytest.mark.parametrize("name", daily((), MADE["COMPILED_UNSEEN"]))
def test_compiled_code_of_several_graphs_is_said_not_to_be_asked(name: str) -> None:
    answer = compiled_dropout_of(MADE["COMPILED_UNSEEN"][name]())
    assert answer.outcome == "not-asked"
    assert "its code is not one graph" in answer.message


def generators_of(module: nn.Module) -> WayBackAnswer | None:
    with FRAMEWORK.undisturbed():
        return FRAMEWORK.live(module).in_dtype("float32").generators({"x": X.astype("float32")})


@pytest.mark.parametrize("name", MADE["SETS"])
def test_a_call_that_sets_a_generator_is_named_with_its_line(name: str) -> None:
    answer = generators_of(MADE["setting"](name))
    assert answer is not None
    assert answer.outcome == "fail"
    whose = MADE["SETS"][name][1]
    assert f"in evaluation each call sets where {whose} random numbers begin (training_modules.py:" in answer.message


@pytest.mark.parametrize("name", MADE["RIGHT"])
def test_one_that_sets_none_passes(name: str) -> None:
    answer = generators_of(MADE["RIGHT"][name]())
    assert answer is not None
    assert answer.outcome == "pass"


@pytest.mark.release
def test_the_verdict_of_a_compiled_module_says_it(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:compiled_never", "--dtype", "float32", "--out", tmp_path)
    assert ended.status == 1
    assert "✗ compiled: in training it drops nothing, and it has dropout = 0.1" in ended.stdout
    [part] = json.loads((tmp_path / "check.json").read_text())["parts"]
    outcomes = {each["name"]: each["outcome"] for each in part["way_back"]}
    assert (outcomes["dropout"], outcomes["dropout-compiled"]) == ("pass", "fail")


@pytest.mark.release
def test_a_right_compiled_module_is_asked_what_it_drops(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:compiled_right", "--dtype", "float32", "-v", "--out", tmp_path)
    assert ended.status == 0
    assert "drops      0.1 (training_modules.py:" in ended.stdout
    assert "without what it drops in training" not in ended.stdout


@pytest.mark.release
def test_the_verdict_says_it(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:never", "--out", tmp_path)
    assert ended.status == 1
    assert "✗ in training it drops nothing, and it has dropout = 0.1" in ended.stdout
    [part] = json.loads((tmp_path / "check.json").read_text())["parts"]
    assert {each["name"]: each["outcome"] for each in part["way_back"]}["dropout"] == "fail"
    assert {record["outcome"] for record in part["records"]} == {"pass"}
