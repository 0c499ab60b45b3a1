"""The way back of modules and adapters on PyTorch: what no golden of gradients shows is named; what is right is not."""

import contextlib
import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from products import thinned
from torch import nn

from encoder_conformance import Environment, Masks, ParameterMap, RunRequest
from encoder_conformance.adapter.views import ReadInARow
from encoder_conformance.adapter.watching import WrongInMemory
from encoder_conformance.adapter.way_back import WayBack
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK
from encoder_conformance.readers.module_target.training import with_dropout

FILE = Path(__file__).with_name("backward_modules.py")
MADE: dict[str, Any] = runpy.run_path(str(FILE))
D = MADE["D"]
X = np.random.default_rng(0).normal(size=(3, 5, D))
COTANGENT = np.random.default_rng(1).normal(size=X.shape)
IGNORED = np.arange(5) >= np.array([[3], [5], [4]])

WRONG: dict[str, tuple[Callable[[], nn.Module], dict[str, str]]] = {
    "reads memory": (
        lambda: MADE["Last"]("reads memory"),
        {
            "transposed-gradient": "lies transposed, positions before items, that by",
            "sliced-gradient": "is a part of a larger tensor, as behind torch.cat",
        },
    ),
    "reads memory, inside": (
        MADE["Inside"],
        {"transposed-gradient": "the way back reads it as contiguous", "sliced-gradient": "of its size off"},
    ),
    "views": (
        lambda: MADE["Last"]("views"),
        dict.fromkeys(
            ("transposed-gradient", "sliced-gradient", "expanded-gradient"), "is refused: RuntimeError: view"
        ),
    ),
    "writes the gradient": (
        lambda: MADE["Last"]("writes the gradient"),
        {"written-into": "it writes into the incoming gradient on the way back"},
    ),
    "writes x": (MADE["WritesX"], {"written-into": "it writes into x,"}),
    "writes x by data": (MADE["WritesXByData"], {"written-into": "it writes into x,"}),
    "writes x, back": (MADE["WritesXOnTheWayBack"], {"written-into": "it writes into x on the way back"}),
    "writes a mask": (MADE["WritesMask"], {"written-into": "it writes into padding_mask,"}),
    "draws again": (
        lambda: MADE["Again"]("nothing"),
        {"dropout-gradient": "not that of the mask that the output shows"},
    ),
    "draws nothing": (lambda: MADE["Again"]("eval"), {"dropout-gradient": "along a random direction it says"}),
    "checkpoint without state": (
        lambda: MADE["Checkpointed"](use_reentrant=False, preserve_rng_state=False),
        {"dropout-gradient": "not that of the mask that the output shows"},
    ),
    "draws again, unseeded": (
        MADE["OwnGeneratorAgain"],
        {"dropout-gradient": "of one output, asked twice, it is another"},
    ),
    "reentrant": (
        lambda: MADE["Checkpointed"](use_reentrant=True),
        {"x-without-gradient": "its gradient is lost where x needs none, as in a first layer"},
    ),
    "first part": (MADE["FirstPartLost"], {"x-without-gradient": "that by q.weight is 1 of its size off"}),
}
"""Name → a module, and what is said of each question that it fails."""
RIGHT: dict[str, Callable[[], nn.Module]] = {
    "plain": MADE["Right"],
    "relu": MADE["Relu"],
    "no dropout": MADE["WithoutDropout"],
    "a checkpoint of its own": lambda: MADE["Again"]("draws"),
    "checkpoint": lambda: MADE["Checkpointed"](use_reentrant=False),
    "reentrant where it may": MADE["CheckpointedWhereItMay"],
    "own generator": lambda: MADE["OwnGenerator"](seeded=True),
    "PyTorch's own": lambda: nn.TransformerEncoderLayer(D, 2, 24, batch_first=True),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As workers have it: small steps wait longer for threads than they take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def answers(module: nn.Module, dtype: Any = "float64") -> dict[str, WayBackAnswer]:
    with FRAMEWORK.undisturbed():
        live = FRAMEWORK.live(module).in_dtype(dtype)
        feeds, cotangent = {"x": X.astype(dtype)}, COTANGENT.astype(dtype)
        masked = feeds | ({"padding_mask": IGNORED} if "padding_mask" in live.signature.masks else {})
        asked = [*live.way_back(feeds, masked, cotangent), with_dropout(live, feeds, cotangent, dtype)]
    return {answer.name: answer for answer in asked}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_way_back_is_named(name: str) -> None:
    torch.manual_seed(0)
    made, due = WRONG[name]
    found = {question: answer.message for question, answer in answers(made()).items() if answer.outcome == "fail"}
    assert found.keys() == due.keys()
    for question, words in due.items():
        assert words in found[question]


def test_what_writes_into_a_mask_is_named_with_its_line() -> None:
    answer = answers(MADE["WritesMask"]())["written-into"]
    assert "(logical_not_ in backward_modules.py:" in answer.message
    assert answer.source is not None
    assert answer.source.file == "backward_modules.py"


@pytest.mark.parametrize(("name", "dtype"), thinned([*RIGHT], ["float64", "float32"]))
def test_a_right_one_is_asked_everything_and_passes(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    assert {question: answer.outcome for question, answer in answers(RIGHT[name](), dtype).items()} == dict.fromkeys(
        (
            "written-into",
            "transposed-gradient",
            "sliced-gradient",
            "expanded-gradient",
            "x-without-gradient",
            "dropout-gradient",
        ),
        "pass",
    )


def test_draws_that_no_seed_repeats_are_said_to_be_not_compared() -> None:
    found = answers(MADE["OwnGenerator"](seeded=False))["dropout-gradient"]
    assert (found.outcome, found.message) == (
        "not-asked",
        "gradients with dropout on were not compared with the output: with one seed it drops others each time",
    )


class Driven(TorchModule):
    """An adapter of a module, as a user writes one."""

    parameters = ParameterMap({})

    def __init__(self, module: nn.Module) -> None:
        self.module = module.double()
        self.module.eval()
        self.parameters = _AsTheyAre({})  # type: ignore[misc]

    def start(self, device: str, threads: int) -> Environment:
        raise NotImplementedError

    def made(self, layer: dict[str, Any]) -> nn.Module:
        raise NotImplementedError

    def forward(self, x: torch.Tensor, masks: Masks, run: RunRequest) -> torch.Tensor:
        valid = masks.valid()
        return self.module(x) if valid is None else self.module(x, padding_mask=to_tensor(~valid))


class _AsTheyAre(ParameterMap):
    def to_spec(self, own: Any, *_: Any) -> Any:
        return own


OF_ADAPTERS = {
    "reads memory": "where the incoming gradient lies transposed in a larger tensor, that by",
    "reads memory, inside": "of its size off what the same numbers in a row give: the way back reads it as contiguous",
    "views": "an incoming gradient that lies transposed in a larger tensor is refused: RuntimeError: view",
    "writes the gradient": "it writes into the incoming gradient, which the caller goes on with",
    "writes x": "it writes into x, which the caller goes on with",
    "writes a mask": "it writes into padding_mask, which the caller goes on with",
    "reentrant": "its gradient is lost where x needs none, as in a first layer: the output has none to go back from",
    "first part": "its gradient is lost where x needs none, as in a first layer: that by q.weight is 1 of its size off",
}


def asked(module: nn.Module) -> None:
    asking = WayBack(Driven(module))
    masks = Masks(~IGNORED[:, None, None, :], None, sequence=5)
    for check in ("output", "gradients"):
        asking.run(check, X, masks, RunRequest(), COTANGENT)


@pytest.mark.parametrize("name", OF_ADAPTERS)
def test_the_same_of_an_adapter_is_named_in_its_worker(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(WrongInMemory) as raised:
        asked(WRONG[name][0]())
    assert OF_ADAPTERS[name] in str(raised.value)


@pytest.mark.parametrize("name", ["plain", "checkpoint", "reentrant where it may"])
def test_a_right_adapter_is_not_accused(name: str) -> None:
    asked(RIGHT[name]())


ASKED: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("asked_modules.py")))


@pytest.mark.parametrize(
    "name",
    ["ReadsStorage", "ReadsByFirstStride", "ReadsMaskStorage", "ReadsMaskByFirstStride", "NeedsOnePiece"],
)
def test_an_adapter_s_module_is_given_views(name: str) -> None:
    """One that refuses a view says what it needs."""
    torch.manual_seed(0)
    refused = contextlib.nullcontext() if name == "NeedsOnePiece" else pytest.raises(ReadInARow, match="as contiguous")
    with refused:
        asked(ASKED[name](X.shape[-1], 40).eval())


@pytest.mark.release
def test_the_verdict_has_each_question_by_its_name(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:Inside", "--out", tmp_path)
    assert ended.status == 1
    assert "✗ where the incoming gradient lies transposed" in ended.stdout
    [part] = json.loads((tmp_path / "check.json").read_text())["parts"]
    assert {each["name"]: each["outcome"] for each in part["way_back"]}["transposed-gradient"] == "fail"
    assert {record["outcome"] for record in part["records"]} == {"pass"}
