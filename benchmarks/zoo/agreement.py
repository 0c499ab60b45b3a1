"""The oracle beside transformers' own encoder layers, in float64: the output, and the gradients by x and by each
parameter.

The plan, the oracle and our encoders have one author; these layers have others. Our side of a comparison is made of
`specs/layers/published/` alone and theirs of its class and configuration, which holds those files, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from encoder_conformance import Take
from encoder_conformance.impls.hf_encoders.driving import Driven
from encoder_conformance.impls.hf_encoders.in_float64 import InFloat64
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load, published_layers

EAGER_ALONE = {"t5gemma"}
"""Layers whose scores are capped, which sdpa cannot do: transformers refuses it."""
QUERY_BIAS, KEY_BIAS = "attention.query.bias", "attention.key.bias"
"""Where nothing reads positions, a key's bias adds one number to all scores of a query, and changes no weight: its
gradient is 0. The roundings found there are compared with the gradient by the query's bias."""


@dataclass(frozen=True)
class Comparison:
    """A layer of the specification, as code in float64 has it, their layer that should be it, and what each of their
    parameters takes of the specification's."""

    layer: Layer
    module: Driven
    takes: Mapping[str, Take]

    def errors(self, situation: str) -> dict[str, float]:
        """Output, "x" or parameter → the largest difference over the largest number; of outputs at valid positions."""
        case = Case(self.layer, load().situations[situation])
        due = self.theirs(case)
        evaluation = evaluate(case, Arithmetic(np.float64), case.cotangent())
        found = {**evaluation.gradients, "output": evaluation.stages["output"][case.valid()]}
        assert set(found) == set(due)
        sizes = {name: np.abs(value).max() for name, value in due.items()}
        if KEY_BIAS in sizes:
            sizes[KEY_BIAS] = sizes[QUERY_BIAS]
        return {name: float(np.abs(found[name] - due[name]).max() / sizes[name]) for name in due}

    def theirs(self, case: Case) -> dict[str, Array]:
        """Their output at valid positions, and their gradients by x and by each parameter, as the specification has
        their names and axes."""
        given = case.parameters()
        assert sorted(source for take in self.takes.values() for source in take.sources) == sorted(given)
        drawn = {name: take.to_own(given, {}) - self.module.plus_one(name) for name, take in self.takes.items()}
        self.module.load_state_dict({name: torch.tensor(value) for name, value in drawn.items()})
        self.module.zero_grad()
        x = torch.tensor(case.x(), requires_grad=True)
        allowed, positions = case.mask(), case.coordinates()
        with InFloat64():
            output = self.module(
                x,
                None if allowed is None else torch.tensor(allowed),
                None if positions is None else torch.tensor(positions[..., 0]),
            )
        output.backward(torch.tensor(case.cotangent()))
        gradients: dict[str, Array] = {}
        for name, parameter in self.module.named_parameters():
            take = self.takes[name]
            pieces = take.to_spec(parameter.grad.numpy(), given[take.sources[0]].shape)
            gradients |= dict(zip(take.sources, pieces, strict=True))
        return {**gradients, "x": x.grad.numpy(), "output": output.detach().numpy()[case.valid()]}


@cache
def comparison(name: str, attention: str = "sdpa") -> Comparison:
    layer = published_layers()[name].with_decimal_epsilon
    module = Driven(name, layer.model_dump(mode="json"), "eager" if name in EAGER_ALONE else attention).eval().double()
    return Comparison(layer, module, module.takes())
