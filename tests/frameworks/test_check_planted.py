"""Each of two dozen layers as its framework has it, and with three bugs planted in it: `conform check` reads and judges
the right one with no help, names each bug where the layer is stated, and where it is not calls none right in silence.

One worker is asked everything: its framework is imported once.
"""

import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from encoder_conformance.commands.check.checking import Checking
from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.commands.check.results import PartResult
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.spec.layer import Layer
from encoder_conformance.worker.session import Session

HERE = Path(__file__).parent
JAX: dict[str, dict[str, str]] = {
    "bare_jax.py:Nnx": {
        "gelu-tanh": "NnxTanh",
        "residual1-missing": "NnxNoResidual",
        "norm-eps-1e-3": "NnxEpsilon",
    },
    "bare_jax.py:Linen": {
        "activation-silu": "LinenSilu",
        "residual2-twice": "LinenTwice",
        "norm-eps-1e-3": "linen_epsilon",
    },
    "bare_jax.py:Equinox": {
        "gelu-tanh": "EquinoxTanh",
        "norm-eps-1e-3": "EquinoxEpsilon",
        "residual1-missing": "EquinoxNoResidual",
    },
    "bare_jax.py:function": {
        "norm-eps-1e-3": "function_epsilon",
        "scale-by-d-model": "function_scale",
        "activation-silu": "function_silu",
    },
}
KERAS: dict[str, dict[str, str]] = {
    "bare_keras.py:Block": {"gelu-tanh": "Tanh", "residual1-missing": "NoResidual", "norm-eps-1e-3": "Epsilon"},
    "bare_keras.py:functional": {
        "activation-silu": "functional_silu",
        "norm-eps-1e-3": "functional_epsilon",
        "residual2-twice": "functional_twice",
    },
    "bare_keras.py:hub": {
        "norm-eps-1e-3": "hub_epsilon",
        "activation-silu": "hub_silu",
        "activation-missing": "hub_linear",
    },
}
"""Target → the deviation that is planted → the name of the one that has it, in the same file."""
TORCH = (
    *("torch post", "torch post, batch first", "torch post gelu", "torch pre", "torch pre gelu", "torch stack"),
    *("einsum", "fused qkv", "fused kvq", "fused vqk"),
    *("bert", "roberta", "distilbert", "vit", "whisper", "gpt2", "x-transformers"),
)
SAID = {
    "norm-eps-1e-3": "epsilon is 0.001",
    "activation-silu": "silu",
    "activation-relu": "relu",
    "gelu-tanh": "gelu_tanh",
    "gelu-quick": "quick",
    "scale-by-d-model": "√d_model",
    "norm-placement-pre": "pre-norm",
    "key-from-query": "read",
}
"""What a warning says of a choice that was read, where that is one which no published encoder has."""

ALIKE = {("fused kvq", "key-from-query"): ("query-from-key",)}
"""Of three parts in no usual order, of which one is read twice and one never, nothing tells whose that one is."""


@dataclass(frozen=True)
class Target:
    target: str
    bug: str = ""

    @property
    def arguments(self) -> dict[str, str]:
        if ".py" in self.target:
            return {}
        return {"module": self.target, **({"bug": self.bug} if self.bug else {})}

    @property
    def named(self) -> str:
        file, _, right = self.target.partition(":")
        if ".py" not in file:
            return f"{HERE}/planted.py:made"
        name = {**JAX, **KERAS}[self.target][self.bug] if self.bug else right
        return f"{HERE}/{file}:{name}"


@cache
def planted(target: str) -> tuple[str, ...]:
    """The deviations that are planted in it. What it needs is imported only here: pytest collects without it."""
    if ".py" in target:
        return tuple({**JAX, **KERAS}[target])
    return tuple(runpy.run_path(str(HERE / "planted.py"))["MODULES"][target][1])


def needs(target: str) -> tuple[str, ...]:
    if target.startswith("bare_jax"):
        return ("flax", "equinox", "jax2onnx")
    if target.startswith("bare_keras"):
        return ("keras", "tensorflow", "tf2onnx", *(("keras_hub",) if target.endswith("hub") else ()))
    if target == "x-transformers":
        return ("torch", "x_transformers")
    of_transformers = ("bert", "roberta", "distilbert", "vit", "whisper", "gpt2")
    return ("torch", "transformers") if target in of_transformers else ("torch",)


class Warm:
    """Checks of one framework's layers in one worker."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.session: Session | None = None
        self.right: dict[str, Layer] = {}

    def checking(self, asked: Target, layer: Layer | None = None) -> Checking:
        request = CheckRequest(target=asked.named, arguments=asked.arguments, folder=HERE, layer=layer)
        checking = Checking(request, self.log, SILENT)
        self.session = checking.module.session = self.session or checking.module.session
        return checking

    def checked(self, asked: Target, layer: Layer | None = None) -> PartResult:
        checking = self.checking(asked, layer)
        [part] = [checking.judged(part) for part in checking.parts()]
        return part

    def said(self, asked: Target) -> list[str]:
        """The warnings of a check that states nothing, before anything is judged."""
        [part] = self.checking(asked).parts()
        found = findings_of(part.described)
        return [finding.message for finding in found if finding.severity == "warning"]

    def intended(self, target: str) -> Layer:
        """What the right one was read to be."""
        if target not in self.right:
            [part] = self.checking(Target(target)).parts()
            assert part.described.layer is not None, part.described.not_read
            self.right[target] = part.described.layer.model_copy(update={"layer": "intended"})
        return self.right[target]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Warm]]:
    made = {name: Warm(tmp_path_factory.mktemp(name) / "check.log") for name in ("torch", "bare_jax", "bare_keras")}
    yield made
    for each in made.values():
        if each.session is not None:
            each.session.close()


@pytest.fixture
def warm(workers: dict[str, Warm], request: pytest.FixtureRequest) -> Warm:
    target: str = request.getfixturevalue("target")
    missing = [name for name in needs(target) if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    return workers[target.partition(".py")[0] if ".py" in target else "torch"]


EVERY = (*TORCH, *JAX, *KERAS)


@pytest.mark.release
@pytest.mark.parametrize("target", EVERY)
def test_the_right_one_is_read_proved_and_judged(warm: Warm, target: str) -> None:
    part = warm.checked(Target(target))
    described = part.described
    assert described.proof is not None, described.not_read
    assert described.proof.holds
    assert described.proof.moved == described.proof.of >= 10  # x-transformers has no shift and no bias in attention
    assert part.status == 0, [record for record in part.records if record.outcome != "pass"]
    assert len(part.records) > 20


@pytest.mark.release
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("target", EVERY)
def test_a_planted_bug_is_named_and_never_right_in_silence(warm: Warm, target: str, number: int) -> None:
    bug = planted(target)[number]
    asked = Target(target, bug)
    if not any(SAID.get(bug, "-") in message for message in warm.said(asked)):
        alone = warm.checked(asked)  # what is read off it warns of nothing: then it must not be right without a warning
        assert alone.status != 0 or any(bug in finding.message for finding in alone.findings), (bug, alone.findings)
    stated = warm.checked(asked, warm.intended(target))
    assert stated.status == 1
    found = {name for each in stated.diagnoses for name in each.deviations}
    assert found & {bug, *ALIKE.get((target, bug), ())}, (bug, stated.diagnoses)
