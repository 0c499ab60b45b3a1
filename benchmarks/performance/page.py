"""docs/performance.md, of the figures that are kept in docs/performance.json. Measures nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.platform.files import replace_file
from tools.pages.tables import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, KEPT = DOCS / "performance.md", DOCS / "performance.json"

Kind = Literal["ratio", "seconds", "milliseconds", "a second", "MB"]
_SHOWN: dict[Kind, str] = {
    "ratio": "{:.2f}",
    "seconds": "{:.2f} s",
    "milliseconds": "{:.2f} ms",
    "a second": "{:.0f} / s",
    "MB": "{:.1f} MB",
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Frozen):
    """One thing measured. `value` is the median of `taken`, one of each repeat; a target is met from one side."""

    id: str
    what: str
    kind: Kind
    value: float
    taken: tuple[float, ...]
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it meets its target; None where it has none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


@dataclass(frozen=True)
class Measured:
    """What measuring a question gave. `others`: the cores that others kept busy in the busiest turn that counts; None
    where nothing was timed."""

    settings: dict[str, str]
    figures: tuple[Figure, ...]
    others: float | None
    notes: tuple[str, ...] = ()


def median_of(
    id: str,
    what: str,
    kind: Kind,
    taken: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    found = tuple(float(f"{value:.6g}") for value in taken)
    return Figure(id=id, what=what, kind=kind, value=median(found), taken=found, at_most=at_most, at_least=at_least)


class Answer(_Frozen):
    """What one question found, when and on which processor. `others` as `Measured` has it."""

    question: str
    processor: str
    taken_on: str
    commit: str
    others: float | None
    settings: dict[str, str]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()


class Kept(_Frozen):
    """The whole file: each question's latest answer, in the order of the page."""

    machine: dict[str, str]
    versions: dict[str, str]
    answers: dict[str, Answer]


def read() -> Kept | None:
    return Kept.model_validate_json(KEPT.read_bytes()) if KEPT.is_file() else None


def still_known(before: Kept | None, now: dict[str, str]) -> dict[str, str]:
    """The versions here, and those of packages that are not here, with which the other sections were taken."""
    return {**(before.versions if before else {}), **now}


def write(kept: Kept) -> None:
    replace_file(KEPT, (kept.model_dump_json(indent=1) + "\n").encode())
    replace_file(PAGE, page(kept).encode())


def page(kept: Kept) -> str:
    figures = [figure for answer in kept.answers.values() for figure in answer.figures]
    targets = [figure for figure in figures if figure.met is not None]
    said = _PAGE.format(
        machine=", ".join(f"{name} {value}" for name, value in kept.machine.items()),
        versions=", ".join(f"{name} {value}" for name, value in kept.versions.items()),
        met=sum(figure.met is True for figure in targets),
        targets=len(targets),
        answers="\n".join(section(name, kept) for name in kept.answers),
    )
    return said.rstrip() + "\n"


def section(name: str, kept: Kept) -> str:
    """A question that sections share is asked in the first of them."""
    answer = kept.answers[name]
    first = next(other for other, each in kept.answers.items() if each.question == answer.question)
    rows = [
        (figure.what, shown(figure.kind, figure.value), spread(figure), target(figure), verdict(figure))
        for figure in answer.figures
    ]
    table = markdown(("what", "median", "quartiles, repeats", "target", "met"), rows)
    how = ", ".join(f"{key} {value}" for key, value in answer.settings.items())
    quiet = "" if answer.others is None else f" In the busiest turn others used {answer.others:.2f} of the cores."
    lines = [
        f"## {name}",
        "",
        answer.question if first == name else f"The question is that of {first}.",
        "",
        f"Taken on {answer.taken_on} at {answer.commit}, on {answer.processor}; {how}.{quiet}",
    ]
    missed = [figure for figure in answer.figures if figure.met is False]
    reasons = [f"- {figure.what}: {reason(name, figure, answer)}" for figure in missed]
    notes = [f"- {note}" for note in answer.notes]
    return "\n".join([*lines, "", table, "", *reasons, *notes, ""])


def reason(name: str, missed: Figure, answer: Answer) -> str:
    """Why a figure misses its target, with the other figures that the sentence names."""
    by_id = {figure.id: shown(figure.kind, figure.value) for figure in answer.figures}
    said = REASONS.get((name, missed.id), "**unexplained**")
    return _NAMED.sub(lambda found: by_id[found[1]], said)


def shown(kind: Kind, value: float) -> str:
    return _SHOWN[kind].format(value)


def spread(figure: Figure) -> str:
    """Of the repeats the first and the last quartile, and how many there are: what a reader judges a median by."""
    first, last = (sorted(figure.taken)[place] for place in quartiles(len(figure.taken)))
    return f"{shown(figure.kind, first)} … {shown(figure.kind, last)}, of {len(figure.taken)}"


def quartiles(count: int) -> tuple[int, int]:
    """Where they are among `count` sorted values: as far from either end."""
    return count // 4, count - 1 - count // 4


def target(figure: Figure) -> str:
    if figure.at_most is not None:
        return f"≤ {shown(figure.kind, figure.at_most)}"
    return "" if figure.at_least is None else f"≥ {shown(figure.kind, figure.at_least)}"


def verdict(figure: Figure) -> str:
    return {True: "yes", False: "**no**", None: ""}[figure.met]


_SHAPES = (
    "the export takes its mask whole, [B, H, S, S]. ONNX Runtime's profile counts 9 % of the pass to the Cast to int64 "
    "and the ReduceMax that torch.onnx.export makes of `mask.any`, 5 % to the Where that empties rows without a key, "
    "and 1 % to the Expand of the mask."
)
_SCALED = (
    "without jit_compile `ops.dot_product_attention`, which ours calls, scales the scores, [B, H, S, S]; "
    "MultiHeadAttention, which has dropout here, scales the queries. Of the attention alone (8 items of 512 positions, "
    "8 heads of 64) that is 4 % of the processor time, and no argument takes it away: scores are multiplied by a scale "
    "of 1 all the same, so that scaling the queries before saves nothing. With jit_compile ours take {ours} and theirs "
    "{theirs}."
)
_TWENTY = (
    "the parent's own work. Of its processor time with two of the copies, by cProfile and thread, 18 % is judging, "
    "17 % reading parameters back to see that a worker has them as they were sent, 10 % the checks of dropout, 8 % "
    "those of initialisation and 7 % reading goldens. The parts overlap, and the profiler takes a share of its own."
)
REASONS: dict[tuple[str, str], str] = {
    ("checks", "torch_layer"): "PyTorch's import and one export alone take [[alone]].",
    ("checks", "keras_block"): "it takes [[keras_block-script]] times as long as the script, which takes [[alone]].",
    ("checks", "flax_block"): "XLA compiles the module for each shape: [[flax_block-script]] times the script.",
    ("sources", "twelve"): (
        "the machine that it was taken on is the slower EPYC of the section checks, whose last row says how slow."
    ),
    ("load", "checks-processor"): _TWENTY,
    **{
        ("layers-keras", f"{way}, S=512"): _SCALED.format(
            ours=f"[[{way}, S=512: ours, tf.function with jit_compile]]",
            theirs=f"[[{way}, S=512: MultiHeadAttention, tf.function with jit_compile]]",
        )
        for way in ("forward", "forward and backward")
    },
    ("layers-onnx", "forward, S=50"): (
        "the products are not it: alone they take [[forward, S=50: its matrix products alone, ONNX Runtime]] in ONNX "
        "Runtime and [[forward, S=50: its matrix products alone, OpenVINO, float32]] in OpenVINO. What stands "
        "beside them takes longer in ONNX Runtime, in every form that was tried, fused offline or not."
    ),
    ("layers-onnx", "forward, S=512"): (
        "the same export takes [[forward, S=512: ours in OpenVINO, float32]] in OpenVINO, and one with no mask takes "
        "[[forward, S=512: nn.TransformerEncoderLayer exported without a mask]] in ONNX Runtime: " + _SHAPES
    ),
}
"""Question and figure → what keeps it from its target, as it was measured. [[id]] is another figure of the section."""
_NAMED = re.compile(r"\[\[(.+?)\]\]")

_PAGE = """# Performance

Generated by `python -m benchmarks.performance` of the figures that it keeps in docs/performance.json; a test checks
that the page is what they say. `--only NAME` measures one section anew and leaves the others as they are.

Machine: {machine}. Versions: {versions}.

Contenders take turns (A B C A B C …), and a ratio is the median of the ratios within each turn, so that a machine that
slows down slows both. A turn in which others use more than a tenth of a core is taken again, at most as often, and the
quietest count. Seconds are this machine's alone. A figure with a target says whether it is met; below its table stands
why not. {met} of {targets} targets are met.

{answers}
"""
