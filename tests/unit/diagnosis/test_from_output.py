"""Values of a stage that are played to the output together give what each gives alone, whatever else was found."""

import numpy as np
import pytest
from wrong_layers import observed

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.equation_search import Effort
from encoder_conformance.diagnosis.identify.from_output import OutputSample, nearest_by_output, output_samples
from encoder_conformance.diagnosis.identify.samples import Asked, cost
from encoder_conformance.spec.load import load

FOUND = {
    "none": {},
    "items are mixed": {"residual1": {"x + attention_output": "x + flip(attention_output, 0)"}},
    "items are counted": {"residual1": {"x + attention_output": "x + batch_size * attention_output"}},
    "a mean over items": {"residual2": {"residual1 + ffn_output": "residual1 + mean(ffn_output, 0)"}},
    "two items exchanged": {"residual1": {"x + attention_output": "x + exchange(attention_output, 0, 1, 5)"}},
}
"""Equations of later stages that were found before."""


def test_a_part_of_a_stage_times_a_number_is_found_behind_an_output() -> None:
    last = "index(x @ attention.query.weight + attention.query.bias, -1) == d_model - 1"
    cases = [load().cases[f"post-relu/{name}"] for name in ("mask-per-head", "no-mask", "single-item")]
    wrong = {"query": lambda text: f"where({last}, 1.5 * ({text}), {text})"}
    pieces = [Evidence(observed(case, wrong, output_only=True)) for case in cases]
    found = nearest_by_output("query", output_samples(pieces)["query"], Effort(3000), numbers=True)
    assert "d_model - 1, 1.5 * (x @ attention.query.weight + attention.query.bias)," in found[0].text


STAGES = ("query", "attention_scores", "attention_weights", "context_merged", "norm1")
FORMS = ("{0}", "2 * ({0})", "flip({0}, 0)", "({0}) + x", "log(0 - 1) * ({0})", "c * ({0})", "mean({0}, 0)")


def samples(case: str, found: str) -> dict[str, list[OutputSample]]:
    wrong = {"ffn_output": lambda text: f"0.9 * ({text})"}
    return output_samples([Evidence(observed(load().cases[case], wrong, output_only=True))], FOUND[found])


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("case", ["post-relu/mask-per-item", "post-relu/no-mask", "post-relu/single-item"])
def test_what_is_played_together_gives_what_it_gives_alone(case: str, found: str) -> None:
    of_stages = samples(case, found)
    for stage in STAGES:
        [sample] = of_stages[stage]
        specified = sample.specified.text
        asked: list[Asked] = [(parsed(form.format(specified)), 3.0) for form in FORMS]
        together, costs = sample.computed_of(asked), sample.costs_of(asked)
        assert sum(each is not None for each in together) >= 4
        for (tree, constant), each, left in zip(asked, together, costs, strict=True):
            alone = sample.computed(tree, constant)
            assert (alone is None) is (each is None)
            assert left == pytest.approx(cost([sample], tree, constant), rel=1e-6)
            if alone is not None and each is not None:
                np.testing.assert_allclose(each, alone, rtol=1e-9, atol=1e-12)
