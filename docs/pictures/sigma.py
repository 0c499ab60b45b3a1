"""Draws docs/pictures/sigma.svg: how far right and wrong layers are from the golden, in σ. Needs matplotlib.

    python docs/pictures/sigma.py

The numbers are those of docs/rewritings.json, docs/findings.json and the table of docs/deviations.md, in float32.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
PICTURE = Path(__file__).with_name("sigma.svg")
_SIZE = r"(∞|[0-9.e+]+)"
_ROW = re.compile(rf"^\| `[^`]+` \| {_SIZE} [^|]*\| {_SIZE} [^|]*\|", re.MULTILINE)
_LARGEST = 1e12
"""Larger sizes, NaN and other shapes are drawn here."""


def right() -> list[float]:
    """The largest rms of each honest rewriting and of each implementation that conforms, in σ."""
    rewritings = json.loads((DOCS / "rewritings.json").read_text(encoding="utf-8"))["rows"].values()
    found = [each["by_format"]["float32"]["rms"] for each in rewritings if not each["less_exact"]]
    rows = json.loads((DOCS / "findings.json").read_text(encoding="utf-8"))
    return [*found, *(each["rms"] for each in rows if each["rms"] is not None and not each["deviates"])]


def wrong() -> list[float]:
    """The size of each deviation that float32 can show, in σ: at the output, or else at a stage."""
    return [size for size in _deviations() if size > 10]


def hidden() -> list[float]:
    """The sizes of deviations that float32 cannot show, such as a softmax in float32."""
    return [size for size in _deviations() if size <= 10]


def _deviations() -> list[float]:
    text = (DOCS / "deviations.md").read_text(encoding="utf-8")
    _, _, after = text.partition("## The detection matrix, float32")
    table, _, _ = after.partition("\n## ")
    return [
        at_output if at_output > 10 else at_stage
        for at_output, at_stage in ((_size(row[1]), _size(row[2])) for row in _ROW.finditer(table))
    ]


def _size(text: str) -> float:
    return _LARGEST if text == "∞" else min(float(text), _LARGEST)


def caption(good: Sequence[float], bad: Sequence[float]) -> str:
    return (
        f"{len(good)} right layers: at most {max(good):.2f} σ. "
        f"{len(bad)} wrong ones: at least {min(bad):.0f} σ. The limit is 2 σ."
    )


def draw() -> None:
    import matplotlib
    import numpy as np

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "σ", "font.family": "sans-serif", "font.size": 10}
    from matplotlib import pyplot

    good, bad, unseen = right(), wrong(), hidden()
    figure, axes = pyplot.subplots(figsize=(8, 3.1), layout="constrained")
    edges = np.logspace(-1, 12.25, 54)
    axes.hist([good, unseen, bad], bins=edges, stacked=True, color=["#1f6b3a", "#b9bcc0", "#b0201a"])
    axes.set_xscale("log")
    axes.set_xticks([10.0**power for power in range(-1, 13)])
    axes.set_xticklabels(["0.1", "1", "10", "100", *(f"1e{power}" for power in range(3, 12)), "∞"])
    axes.set_xlabel("largest rms error in σ, float32")
    axes.set_ylabel("layers")
    axes.axvline(2, color="#1c1d1f", linewidth=1)
    top = axes.get_ylim()[1]
    axes.text(2.3, 0.94 * top, "limit: 2 σ")
    axes.text(0.11, 0.94 * top, "right", color="#1f6b3a", weight="bold")
    axes.text(4e3, 0.94 * top, "wrong", color="#b0201a", weight="bold")
    axes.text(12, 0.72 * top, "grey: to be seen\nin float64 alone", color="#5d6166", size=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    metadata = {
        "Date": None,
        "Title": "How far right and wrong layers are from the golden",
        "Description": caption(good, bad),
    }
    figure.savefig(PICTURE, metadata=metadata)


if __name__ == "__main__":
    draw()
    print(caption(right(), wrong()))
