"""Attention over another sequence (E-17), over the wire: the honest fake, and fakes that lose the memory in one way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from products import daily

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.outcome import Outcome

CASES = "cross-attention/memory-*"
NO_MASK = "masks = replace(masks, padding=None, attention=None)"
LOSES = {
    "the-mask-of-the-memory": ("masks = replace(masks, padding=None)", "mask-padding-missing"),
    "every-mask": (NO_MASK, "mask-ignored"),
}
"""What is lost → how, and the name that diagnosis has for it."""
LOSING = """
def _forward(self, x, masks, run):
    from dataclasses import replace
    {lie}
    return super()._forward(x, masks, run)
"""


def test_the_honest_one_passes_every_case(conform: Callable[..., Any], honest: Path) -> None:
    ended = conform("run", "--impl", honest, "--case", CASES, "--case", "cross-attention-shared-heads/memory-*")
    assert ended.status == 0, ended.stdout
    assert ended.outcomes("gradients") == ["pass"] * 28


def test_an_implementation_that_takes_no_memory_is_asked_nothing(conform: Callable[..., Any], fake: Callable) -> None:
    ended = conform("run", "--impl", fake("self_only", memory="false"), "--case", CASES)
    assert set(ended.outcomes()) == {Outcome.UNSUPPORTED.value}
    assert "memory is not among its capabilities" in ended.messages()


@pytest.mark.release
@pytest.mark.parametrize("lost", daily(["the-mask-of-the-memory"], LOSES))
def test_a_mask_that_is_lost_has_its_name(conform: Callable[..., Any], fake: Callable, lost: str) -> None:
    lie, name = LOSES[lost]
    folder = fake("liar", LOSING.format(lie=lie), checks="[output, stages, gradients]")
    ended = conform("run", "--impl", folder, "--case", CASES, "--dtype", "float64")
    assert ended.status == 1
    assert ended.outcomes("output").count("fail") == (2 if lost == "the-mask-of-the-memory" else 4)
    [diagnosis] = ended.report["diagnoses"]
    assert name in str(diagnosis)


def test_a_gradient_that_does_not_reach_the_memory_fails(conform: Callable[..., Any], fake: Callable) -> None:
    lie = """
    def gradients(self, x, masks, run, cotangent):
        found = super().gradients(x, masks, run, cotangent)
        return found | {"memory": np.zeros_like(found["memory"])}
    """
    folder = fake("liar", lie, checks="[output, gradients]")
    asked = ("--case", "cross-attention/memory-shorter", "--dtype", "float64")
    ended = conform("run", "--impl", folder, *asked, diagnosed=False)
    assert ended.outcomes("output") == ["pass"]
    assert ended.outcomes("gradients") == ["fail"]
    assert "memory" in ended.messages()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"family": "mha"}, "family"),
        ({"stack": {"layers": 2, "final_norm": False}}, "stacked"),
        ({"part": "decoder_layer"}, "part"),
        ({"padded_rows": "zero"}, "padded_rows"),
    ],
)
def test_a_layer_that_is_not_attention_alone_is_refused(
    conform: Callable[..., Any], honest: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    own = yaml.safe_load((SPECS / "layers" / "cross-attention.yaml").read_text()) | {"layer": "mine"} | change
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(own))
    ended = conform("run", "--impl", honest, "--layer", tmp_path / "mine.yaml")
    assert ended.status == 2
    assert "mine.yaml" in ended.stderr
    assert said in ended.stderr


def test_smoke_asks_it_over_a_memory(conform: Callable[..., Any], honest: Path) -> None:
    ended = conform("smoke", honest, "--layer", "cross-attention")
    assert ended.status == 0, ended.stdout
    assert "numbers     2 cases in float32" in ended.stdout


@pytest.mark.release
def test_a_trace_of_it_ends_at_the_output_projection(conform: Callable[..., Any], honest: Path) -> None:
    sizes = ("--layer", "cross-attention", "--batch", "2", "--sequence", "3", "--json", "--judge")
    ended = conform("trace", "--impl", honest, *sizes)
    assert ended.status == 0, ended.stderr
    names = [row["stage"] for row in json.loads(ended.stdout)["stages"]]
    assert names[:3] == ["query", "key", "value"]
    assert names[-2:] == ["attention_output", "output"]


@pytest.mark.parametrize(
    "command",
    [("memory",), ("validate", "model.onnx"), ("export", "onnx_pytorch", "--to", "model.onnx")],
    ids=lambda command: command[0],
)
def test_a_command_of_encoder_layers_says_so(conform: Callable[..., Any], command: tuple[str, ...]) -> None:
    ended = conform(*command, "--layer", "cross-attention")
    assert ended.status == 2
    assert "--layer: cross-attention is attention alone" in ended.stderr
