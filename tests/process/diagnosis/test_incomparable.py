"""An answer that cannot be compared is no NaN, and an explanation of a large layer accounts for all that was asked."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.judging.records import Claim
from encoder_conformance.platform.paths import SPECS

SITUATIONS = ("padding-right", "padding-left", "padding-holes", "padded-item", "no-mask")
ANOTHER_SHAPE = """
def output(self, x, masks, run):
    return super().output(x, masks, run)[:1, :1]
"""
ANOTHER_DTYPE = """
def output(self, x, masks, run):
    return super().output(x, masks, run).astype(np.float64 if x.dtype == np.float32 else np.float32)
"""
NAN_WHERE_PADDED = """
def output(self, x, masks, run):
    right = super().output(x, masks, run)
    return right * np.nan if masks.padding is not None else right * 2
"""


LIES = {
    "shape": (ANOTHER_SHAPE, "output has the shape [1, 1, {d_model}], and not [2, 10, {d_model}], in mine/"),
    "dtype": (ANOTHER_DTYPE, "output is not in float32 in mine/"),
    "nan": (NAN_WHERE_PADDED, ""),
}
DAILY = {("shape", 18)}


@pytest.mark.release
@pytest.mark.parametrize(
    ("lie", "d_model"),
    [
        pytest.param(lie, d_model, marks=() if (lie, d_model) in DAILY else pytest.mark.release)
        for lie in LIES
        for d_model in (18, 96)
    ],
)
def test_nan_explains_nothing_else(conform: Callable, fake: Callable, tmp_path: Path, lie: str, d_model: int) -> None:
    body, told = LIES[lie]
    layer = yaml.safe_load((SPECS / "layers" / "post-gelu.yaml").read_text())
    layer["attention"] = {"fully_masked_row": "nan"}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**layer, "layer": "mine", "d_model": d_model}))
    asked = [word for situation in SITUATIONS for word in ("--case", f"*/{situation}")]
    folder = fake("liar", body, checks="[output]", stages="[]")
    ended = conform("run", "--impl", folder, "--layer", path, *asked, "--dtype", "float32")
    assert ended.status == 1, ended.stderr
    (diagnosis,) = ended.report["diagnoses"]
    assert diagnosis["confidence"] == "unknown"
    if told:
        said = [sentence(Claim.model_validate(each, strict=False)) for each in diagnosis["observed"]]
        assert said[0].startswith(told.format(d_model=d_model))
        assert not any("NaN" in each for each in said)
