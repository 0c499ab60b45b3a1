"""Where the stages of transformers' layers are seen: at the inputs and outputs of their maps, norms and activations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from encoder_conformance import Take

MADE = {
    "attention.query": "query",
    "attention.key": "key",
    "attention.value": "value",
    "attention.output": "attention_output",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.hidden": "ffn_hidden",
    "feed_forward.output": "ffn_output",
    "norm1": "norm1",
    "norm2": "norm2",
    "attention_output_norm": "attention_output_norm",
    "ffn_output_norm": "ffn_output_norm",
}
"""What holds parameters in the specification → the stage that it makes."""
ACTIVATIONS = ("act", "act_fn", "activation_fn")
"""The last words of the paths of activations that are modules."""


@dataclass(frozen=True)
class Places:
    """Stage → the submodule whose output it is, or whose input. Stages that one map makes beside each other are one
    entry, their names joined by "|"."""

    made: dict[str, str] = field(default_factory=dict)
    entered: dict[str, str] = field(default_factory=dict)


def places_of(takes: Mapping[str, Take], modules: Iterable[str], *, post: bool, gated: bool) -> Places:
    """Of a layer whose own parameters take these of the specification's, and that has these submodules."""
    found = Places()
    for name, take in takes.items():
        path, _, leaf = name.rpartition(".")
        owners = [source.rpartition(".")[0] for source in take.sources]
        if leaf == "weight" and all(owner in MADE for owner in owners):
            found.made["|".join(MADE[owner] for owner in owners)] = path
            found.entered.update({stage: path for owner in owners if (stage := _before(owner, post=post, gated=gated))})
    for path in modules if gated else ():
        if path.rpartition(".")[2] in ACTIVATIONS:
            found.made["ffn_activation"] = path
    return found


def _before(owner: str, *, post: bool, gated: bool) -> str:
    """The stage that goes into what holds these parameters; "" where it is another's output, or the layer's input."""
    return {
        "attention.output": "context_merged",
        "feed_forward.output": "ffn_gated" if gated else "ffn_activation",
        "norm1": "residual1" if post else "",
        "norm2": "residual2" if post else "residual1",
    }.get(owner, "")
