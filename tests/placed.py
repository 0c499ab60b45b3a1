"""Token ids that lie elsewhere than at 0 … S − 1, given to an adapter in this process (S-3)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from encoder_conformance import Masks, RunRequest
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation


def placed() -> Iterator[Case]:
    """Each kind of positions, the same for every item or each item's own."""
    tokens = load().cases["encoder-pre-gelu/tokens"]
    B, S, _ = tokens.x_shape
    padding = {"kind": "left", "lengths": (S, *(S - 2 for _ in range(B - 1)))}
    for positions, mask in (
        ({"kind": "offset", "by": 100}, tokens.situation.mask.model_dump()),
        ({"kind": "restart", "at": (2, 3)}, tokens.situation.mask.model_dump()),
        ({"kind": "left_padding"}, {"padding": padding, "attention": None, "bias": None}),
    ):
        keys = {
            **tokens.situation.model_dump(),
            "positions": positions,
            "mask": mask,
            "checks": ("output", "gradients"),
        }
        yield Case(tokens.layer, Situation.model_validate(keys))


def assert_told(adapter: Any) -> None:
    """Stages and output of a started adapter are the oracle's, and gradients are there, in float64."""
    for case in placed():
        parameters = {name: np.asarray(value) for name, value in case.parameters().items()}
        adapter.build(case.layer.model_dump(mode="json"), parameters, "float64")
        masks, run = Masks(case.padding_mask(), None), RunRequest(positions=case.coordinates())
        due, rows = forward(case.layer, given(case), Arithmetic(np.float64)), case.specified()
        found = adapter.stages(case.ids(), masks, run)
        for stage in ("embedded", "output"):
            np.testing.assert_allclose(found[stage][rows], due[stage][rows], rtol=1e-8, atol=1e-10, err_msg=stage)
        output = adapter.output(case.ids(), masks, run)
        np.testing.assert_allclose(output[rows], due["output"][rows], rtol=1e-8, atol=1e-10)
        gradients = adapter.gradients(case.ids(), masks, run, case.cotangent())
        assert gradients.keys() == case.expected_shapes("gradients").keys()
