"""docs/zoo.md, of what docs/zoo.json keeps and what the pages beside it keep."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.zoo.elsewhere import ROWS
from benchmarks.zoo.results import DOCS, beside, read
from encoder_conformance.implementation.limitations import Declared, Unsupported
from encoder_conformance.implementation.manifest import Implementation, find_folder, read_implementation_manifest
from encoder_conformance.spec.load import published_layers
from encoder_conformance.spec.words import choices

PAGE = DOCS / "zoo.md"
Kept = Mapping[str, Any]
NOT_ASKED = "not asked"
_COLUMNS = ("layer", "oracle", "eager", "sdpa", "`check`", "export", "two layers", "ONNX Runtime", "OpenVINO")

__all__ = ["PAGE", "page", "read"]


def page(kept: Kept) -> str:
    """The page as Markdown."""
    return "\n".join([*_head(kept), *_table(kept), *_others(kept), *_descriptions(kept), *_findings(kept)]) + "\n"


def _rows(kept: Kept, section: str) -> dict[str, Any]:
    found: dict[str, Any] = kept.get(section, {}).get("rows", {})
    return found


def _attention(kept: Kept, kind: str) -> dict[str, Any]:
    """Layer → what was seen of it with this kind of attention."""
    return {layer: row[kind] for layer, row in _rows(kept, "layers").items()}


def _head(kept: Kept) -> list[str]:
    versions = kept.get("oracle", {}).get("versions", {})
    return [
        _HEAD.format(
            count=len(published_layers()),
            asked=", ".join(f"{name} {number}" for name, number in versions.items()),
            largest=max((row["error"] for row in _rows(kept, "oracle").values()), default=0.0),
            eager=_counts(_attention(kept, "eager")),
            sdpa=_counts(_attention(kept, "sdpa")),
            not_asked=NOT_ASKED,
        )
    ]


def _counts(rows: Mapping[str, Any]) -> str:
    words = {"conforms": "conform", "deviates": "deviate as declared", "fails": "fail", "refused": "is refused"}
    counts = {words[key]: sum(row["verdict"] == key for row in rows.values()) for key in words}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or NOT_ASKED


_HEAD = """# The zoo: encoders that people ship

{count} published encoders' layers ([specs/layers/published](../specs/README.md)), each beside transformers' own
({asked}).

- *oracle*: the largest relative difference from theirs in float64: output and gradients, {largest:.1e} at most.
- *eager*, *sdpa*: largest error of any check in σ, by kind of attention. Eager: {eager}. Sdpa: {sdpa}.
- *`check`*: `conform check hf:NAME` of a tiny model. *export*: torch's exporter, its file inferred and proved.
- *two layers*: of two in a row, told nothing. *ONNX Runtime*, *OpenVINO*: the file of one, in every situation.

What deviates as declared does so in float64 alone. What was not run says *{not_asked}*. `python -m benchmarks.zoo` runs
it, `python -m tools pages zoo` makes this page of docs/zoo.json.
"""


def _table(kept: Kept) -> list[str]:
    oracle, files = _rows(kept, "oracle"), _rows(kept, "files")
    eager, sdpa = _attention(kept, "eager"), _attention(kept, "sdpa")
    checks, exports = _by_layer("published_encoders.json"), _by_layer("published_files.json")
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    for name in published_layers():
        own = files.get(name)
        cells = [
            f"[{name}](#each-layer)",
            _oracle(oracle.get(name)),
            _judged(eager.get(name)),
            _judged(sdpa.get(name)),
            _verdict(*checks.get(name, ())),
            _verdict(*(_of_layers(exports, name, 1) or ([own] if own else []))),
            _verdict(*_of_layers(exports, name, 2)),
            _runtime(own, "onnxruntime"),
            _runtime(own, "openvino"),
        ]
        lines.append(_line(cells))
    return [*lines, ""]


def _of_layers(exports: Mapping[str, list[dict[str, Any]]], name: str, layers: int) -> list[dict[str, Any]]:
    """The exports of so many of a layer in a row, in every opset that was asked."""
    return [row for row in exports.get(name, ()) if row["layers"] == layers]


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _by_layer(name: str) -> dict[str, list[dict[str, Any]]]:
    """Layer → the rows of another page's figures that are of it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in beside(name):
        for layer in _layers_of(row):
            found.setdefault(layer, []).append(row)
    return found


def _layers_of(row: Kept) -> list[str]:
    """The published layers that a row is of. A row of an encoder names each layer that is like its own: it is of the
    one that has the encoder's name, and of all where all are that encoder's."""
    own = str(row["name"]).partition(",")[0].replace("_", "-")
    named = [layer for each in str(row.get("layer") or own).split(",") if (layer := each.strip()) in published_layers()]
    if len(named) == 1 or all(layer.startswith(own) for layer in named):
        return named
    return [own] if own in named else []


def _oracle(row: Kept | None) -> str:
    return f"agrees, {row['error']:.1e}" if row else NOT_ASKED


def _judged(row: Kept | None) -> str:
    if row is None:
        return NOT_ASKED
    if row["verdict"] == "refused":
        return "refused"
    by = f" by {' and '.join(f'`{name}`' for name in row['deviates'])}" if row.get("deviates") else ""
    return f"{row['verdict']}{by}, {row['sigma']:.2f} σ"


def _verdict(*rows: Kept) -> str:
    """The verdict that all of these rows have, and the largest σ; or how many have which."""
    if not rows:
        return NOT_ASKED
    verdicts = Counter(_PASSES.get(row["verdict"], str(row["verdict"])) for row in rows)
    sigmas = [row["sigma"] for row in rows if isinstance(row.get("sigma"), (int, float))]
    if len(verdicts) > 1:
        return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return f"{next(iter(verdicts))}, {max(sigmas):.2f} σ" if sigmas else next(iter(verdicts))


_PASSES = {"as_stated": "passes"}
"""What `conform validate` concludes of a file that is the layer that was stated → the word here."""


def _runtime(row: Kept | None, runtime: str) -> str:
    if row is None or "runtimes" not in row:
        return NOT_ASKED
    seen = row["runtimes"].get(runtime)
    if seen is None:
        return NOT_ASKED
    if seen["sigma"] is None:
        return "does not run it"
    return f"{seen['passed']} of {seen['applicable']}, {seen['sigma']:.2f} σ"


def _others(kept: Kept) -> list[str]:
    rows, versions = _rows(kept, "elsewhere"), kept.get("elsewhere", {}).get("versions", {})
    lines = [
        "## Layers of other libraries",
        "",
        "`conform check benchmarks/zoo/theirs.py:NAME --layer …`, each as its library describes it.",
        "",
        _line(("layer", "library", "described as", "verdict")),
        _line(["---"] * 4),
    ]
    for name, row in ROWS.items():
        seen = rows.get(name)
        library = f"{row.package} {versions.get(row.package, '')}".strip()
        text = _verdict(*([seen] if seen else [])) + (f": {seen['why']}" if seen and "why" in seen else "")
        said = ", ".join(choices(row.layer)) + (", final norm" if row.layer.stack.final_norm else "")
        lines.append(_line([f"`{name}`", f"{library}, {row.source}", f"{row.like}: {said}", _cell(text)]))
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _descriptions(kept: Kept) -> Iterator[str]:
    """A row for each layer: its choices, and what transformers does otherwise."""
    yield from ("## Each layer", "", _line(("layer", "what it is", "choices", "transformers' own")), _line(["---"] * 4))
    implementation = read_implementation_manifest(find_folder("hf_encoders"))
    exports = _by_layer("published_files.json")
    for name, layer in published_layers().items():
        own = list(_otherwise(name, implementation))
        if why := _rows(kept, "files").get(name, {}).get("why"):
            own.append(f"export: {_cell(why)}")
        failed = [row for row in exports.get(name, ()) if row["verdict"] != "passes"]
        own += [f"{row['name'].removeprefix(f'{name}, ')}: {_cell(row['sentence'])}" for row in failed]
        yield _line((f"[{name}]({layer.source})", layer.title, ", ".join(choices(layer)), "; ".join(own) or "the same"))
    yield ""


def _otherwise(name: str, implementation: Implementation) -> Iterator[str]:
    for entry in (each for each in _entries(implementation) if name in _layers(each)):
        deviation = f"`{entry.deviation}`: " if isinstance(entry, Declared) else "not asked: "
        chosen = ", ".join(f"{key} {value}" for key, value in ((entry.when and entry.when.choices) or {}).items())
        yield f"{deviation}{entry.reason}{f' ({chosen})' if chosen else ''}"


def _entries(implementation: Implementation) -> tuple[Declared | Unsupported, ...]:
    return (*implementation.deviations, *implementation.unsupported)


def _layers(entry: Declared | Unsupported) -> tuple[str, ...]:
    layers = entry.when.layer if entry.when else None
    return (layers,) if isinstance(layers, str) else layers or ()


def _findings(kept: Kept) -> Iterator[str]:
    yield from ("## Findings", "", *_ABOUT_FINDINGS, "", _line(("finding", "of", "script")), _line(["---"] * 3))
    for entry in _entries(read_implementation_manifest(find_folder("hf_encoders"))):
        if entry.script:
            of = f"{', '.join(_layers(entry))}{_distance(kept, entry)}"
            yield _line((_told(entry.script, new=entry.new), of, f"{_link(entry.script)}, [source]({entry.link})"))
    for script in sorted(path.name for name in ROWS for path in (DOCS / "findings").glob(f"{name}-*.py")):
        row = ROWS[script.partition("-")[0]]
        yield _line((_told(script, new=True), f"{row.package}, {row.source}", _link(script)))
    for script, of in _OF_THE_EXPORTER.items():
        yield _line((_told(script, new=False), f"torch.onnx.export, {of}", _link(script)))


_OF_THE_EXPORTER = {
    "onnx_pytorch-mask-with-a-gradient.py": "t5, t5-v1-1, umt5 by sdpa, which are exported without gradients"
}
"""Script of a finding of the exporter → the layers that it is of."""
_ABOUT_FINDINGS = (
    "Each script shows it with the framework alone. **New**: nothing public said so when it was found here.",
)


def _link(script: str) -> str:
    return f"[script](findings/{script})"


def _told(script: str, *, new: bool) -> str:
    """What a script says of itself."""
    told = ast.get_docstring(ast.parse((DOCS / "findings" / script).read_text(encoding="utf-8"))) or ""
    return _cell(f"{'**New.** ' if new else ''}{' '.join(told.split())}")


def _distance(kept: Kept, entry: Declared | Unsupported) -> str:
    """How far layers are from the specification by a deviation: those that have no other, where there are any."""
    if not isinstance(entry, Declared):
        return ""
    rows = (_attention(kept, kind).get(layer, {}) for kind in ("eager", "sdpa") for layer in _layers(entry))
    found = [each for row in rows if entry.deviation in (each := row.get("deviates", {}))]
    chosen = [each for each in found if len(each) == 1] or found
    largest = max((each[entry.deviation]["distance"] for each in chosen), default=None)
    return "" if largest is None else f", up to {largest:.1e} σ in float64"
