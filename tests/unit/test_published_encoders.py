"""docs/published_encoders.json, which a benchmark keeps: what `conform check hf:NAME` says of published encoders."""

import json
import re
from pathlib import Path

from benchmarks.published_encoders.encoders import ENCODERS

ROWS = json.loads((Path(__file__).parents[2] / "docs" / "published_encoders.json").read_text(encoding="utf-8"))
DUE = 36
"""Of the 46."""


def test_no_published_encoder_is_accused_or_described_wrongly() -> None:
    assert not [f"{row['name']}: {row['verdict']}" for row in ROWS if row["verdict"] not in ("true", "refused")]
    assert not [row["name"] for row in ROWS if not row["sentence"]]


def test_most_of_those_that_were_surveyed_end_in_a_true_verdict() -> None:
    verdicts = {row["name"]: row["verdict"] for row in ROWS if row["name"] in ENCODERS}
    assert [*verdicts] == [*ENCODERS]
    assert sum(verdict == "true" for verdict in verdicts.values()) >= DUE


def test_no_sentence_has_a_place_of_one_machine() -> None:
    """An exception quotes its frames, with the folders of whoever ran it."""
    kept = (Path(__file__).parents[2] / "docs" / "published_encoders.json").read_text(encoding="utf-8")
    assert re.findall(r"[^\w.]/(?:\w[\w.-]*/){2,}[\w.-]+\.py", kept) == []
