"""docs/onnx.md, of the rows that are kept."""

from collections.abc import Collection, Iterable

from encoder_conformance.implementation.limitations import ManifestEntry
from tools import ROOT
from tools.onnx_table.configurations import LEVELS_OF
from tools.pages.tables import markdown
from tools.survey.page import entries
from tools.survey.results import SurveyRow

PAGE = ROOT / "docs" / "onnx.md"
KEPT = ROOT / "docs" / "onnx.json"
COLUMNS = ("opset", "runtime", "level", "passed", "largest rms σ", "not asked, or failed")
OTHER = ("runtime", "level")


def page(rows: list[SurveyRow], waiting: Collection[str]) -> str:
    """`waiting` are the variants that there are and of which no row is kept."""
    exporters: dict[str, list[SurveyRow]] = {}
    for row in rows:
        exporters.setdefault(row.implementation, []).append(row)
    parts = [exporter_of(exporter, held) for exporter, held in sorted(exporters.items())]
    failing = sum(bool(row.failed) for row in rows)
    whole = sum(not row.failed and bool(row.applicable) for row in rows)
    none = sum(not row.applicable for row in rows)
    known = markdown(("what", "here", "link"), _KNOWN)
    counts = {"rows": len(rows), "whole": whole, "none": none, "failing": failing, "waiting": unjudged(waiting)}
    said = _PAGE.format(**counts, exporters="\n".join(parts), known=known)
    return said.rstrip() + "\n"


def unjudged(waiting: Collection[str]) -> str:
    """What is said of the variants that were not judged yet; "" where there are none."""
    if not waiting:
        return ""
    exporters = ", ".join(sorted({variant.partition(":")[0] for variant in waiting}))
    return f" {len(waiting)} more wait to be judged, of {exporters}: nothing below speaks of them."


def exporter_of(exporter: str, rows: list[SurveyRow]) -> str:
    """A table, and below it the reasons by number."""
    numbers: dict[str, int] = {}
    table = []
    for row in sorted(shown(rows), key=place):
        marks = [
            f"[{numbers.setdefault(reason.text, len(numbers) + 1)}] {reason.checks}"
            for reason in (*row.unsupported, *row.failed)
        ]
        variant = " ".join(value for name, value in row.choices.items() if name not in OTHER)
        runtime = row.choices["runtime"] if row.applicable else "every"
        level = "–" if runtime != "onnxruntime" else row.choices["level"]
        passed = f"{row.passed} / {row.applicable}" if row.applicable else "–"
        rms = "–" if row.rms is None else f"{row.rms:.2f}"
        table.append((variant, runtime, level, passed, rms, ", ".join(marks) or "–"))
    versions = ", ".join(f"{name} {version}" for name, version in versions_of(rows).items())
    notes = [f"{number}. {note(text, entries(exporter).get(text), rows)}" for text, number in numbers.items()]
    return "\n".join([f"## {exporter}", "", f"{versions}.", "", markdown(COLUMNS, table).rstrip(), "", *notes, ""])


def shown(rows: Iterable[SurveyRow]) -> Iterable[SurveyRow]:
    """All, but for those that no runtime can have: these are one."""
    begun: set[tuple[str, ...]] = set()
    for row in rows:
        others = tuple(value for name, value in row.choices.items() if name not in OTHER)
        if row.applicable or others not in begun:
            yield row
        if not row.applicable:
            begun.add(others)


def place(row: SurveyRow) -> tuple[object, ...]:
    others = tuple(value for name, value in row.choices.items() if name not in OTHER)
    runtime = row.choices["runtime"]
    return others, list(LEVELS_OF).index(runtime), LEVELS_OF[runtime].index(row.choices["level"])


def versions_of(rows: Iterable[SurveyRow]) -> dict[str, str]:
    return {name: version for row in rows for name, version in row.versions.items()}


def note(text: str, entry: ManifestEntry | None, rows: Iterable[SurveyRow]) -> str:
    """The reason, where it shows, and the link; without an entry it is a failure that nobody has explained."""
    found = [reason for row in rows for reason in (*row.unsupported, *row.failed) if reason.text == text]
    where = max(found, key=lambda reason: reason.checks).cases
    return f"{text} ({where}) {entry.link if entry else '**unexplained**'}"


_PAGE = """# ONNX: every exporter, opset, runtime and level

`python -m tools.onnx_table` generates this page from docs/onnx.json. A test compares
them.
A row is a configuration of an exporter (`conform run --impl onnx_jax:opset=18,level=basic`). It was judged on each
required case in float32: output, stages, attention weights, refusals and invariants. Batch and sequence are free, and
one export serves all cases. Notes below each table say why checks are not asked in a row and how many they are,
with the link from the manifest. A failed check shows the first words of its message.

The exporters write attention and GELU out as elementary operators where a framework's own export of them differs.
tests/frameworks/test_onnx_known.py holds these differences; they are listed below.

{rows} rows: {whole} pass all that they are asked, {none} cannot be had at all, {failing} fail a check.{waiting}

{exporters}
## What is known to go wrong, and where it shows

{known}
"""
_KNOWN = (
    (
        "PyTorch's fused attention at opset 18 and 20 gives a query with no key the mean of the values, where PyTorch "
        "gives it nothing",
        "reproduced by tests/frameworks/test_onnx_known.py; onnx_pytorch writes attention out",
        "https://github.com/microsoft/onnxscript/pull/2479",
    ),
    (
        "PyTorch's fused attention at opset 23 and 24 is an Attention that ONNX Runtime refuses with a mask of one "
        "query",
        "reproduced there; given a mask for every query it is right. onnx_attention gives it so",
        "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/llm/attention_helper.h",
    ),
    (
        "jax2onnx makes jax.nn.dot_product_attention an Attention, which gives a query with no key nothing, where JAX "
        "gives it the mean",
        "reproduced there; onnx_jax writes attention out",
        "https://github.com/onnx/onnx/pull/8068",
    ),
    (
        "jax2onnx drops two reshapes that undo each other around an activation, though what is between them is an "
        "output: that comes out in the shape before the first",
        "reproduced there; onnx_jax puts a barrier before its outputs",
        "https://github.com/enpasos/jax2onnx/blob/main/jax2onnx/converter/ir_optimizations.py",
    ),
    (
        "Keras' exact GELU becomes Erfc, an operator that ONNX does not have, without an error",
        "reproduced there; onnx_keras computes it by erf",
        "https://github.com/onnx/tensorflow-onnx/issues/2463",
    ),
    (
        "tf2onnx writes a choice between a score and minus infinity as a product, and every output is NaN",
        "mended in tf2onnx 1.17.0 where the other value is a constant infinity: onnx_keras passes post-gelu-nan-rows. "
        "A choice between x and 0 is a product still: NaN in the padding goes through (onnx_keras)",
        "https://github.com/onnx/tensorflow-onnx/issues/1988",
    ),
    (
        "torch.onnx.export asked for opset 17 leaves the file at 18",
        "reproduced by the rows of onnx_pytorch at opset 17, which cannot be had",
        "https://github.com/pytorch/pytorch/pull/161056",
    ),
    (
        "The tracing exporter bakes shapes in",
        "not where sizes are taken from tensors, as onnx_pytorch_legacy has them; but an empty batch it cannot",
        "https://github.com/pytorch/pytorch/issues/122321",
    ),
    (
        "ONNX Runtime's optimisation levels change numbers",
        "by less than the noise of float32, in every row above",
        "https://github.com/microsoft/onnxruntime/issues/17689",
    ),
)
