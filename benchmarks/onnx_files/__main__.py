"""Makes the files, validates them, and writes docs/onnx-files.md.

python -m benchmarks.onnx_files                        what is not in docs/onnx_files.json yet: half an hour for all
python -m benchmarks.onnx_files --only files --anew    all of one table
python -m benchmarks.onnx_files --seconds 170          as many as fit
"""

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.onnx_files import judging
from benchmarks.onnx_files.edited import Edited, all_edited, edited_row
from benchmarks.onnx_files.exporters import quiet
from benchmarks.onnx_files.page import PAGE, read, write
from benchmarks.onnx_files.planted import NAMES, Planted, planted
from benchmarks.onnx_files.table import File, files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("files", "faults", "edits"))
    parser.add_argument("--matching", default="", help="part of a name")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    quiet()
    end = time.monotonic() + options.seconds
    work: list[tuple[str, File | Planted | Edited, bool]] = []
    asked = {options.only} if options.only else {"files", "faults", "edits"}
    if "files" in asked:
        work += [("files", each, False) for each in files()]
    if "faults" in asked:
        work += [("faults", each, True) for each in planted()]
    if "edits" in asked:
        with tempfile.TemporaryDirectory() as folder:
            work += [("edits", each, True) for each in all_edited(Path(folder))]
    if "files" in asked:
        work += [("files", each, True) for each in files()]
    for table, each, fully in work:
        if time.monotonic() > end:
            break
        known = read()[table].get(each.name)
        if options.matching not in each.name or (known and not options.anew and known.get("fully", True) >= fully):
            continue
        row = row_of(each, fully)
        kept = read()  # another of these may have written since
        kept[table][each.name] = row
        write(kept)
        print(f"{table} {each.name}: {row}", flush=True)
    write(read())
    print(PAGE)


def row_of(each: File | Planted | Edited, fully: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, judging.benchmarked(fewer=not isinstance(each, File)):
        if isinstance(each, Edited):
            return edited_row(each, Path(folder))
        return file_row(each, Path(folder), fully) if isinstance(each, File) else fault_row(each, Path(folder))


def file_row(file: File, folder: Path, fully: bool) -> dict[str, Any]:
    """What is said of it; of what a tool made, against the file that the tool was given. Not `fully`: the file is
    looked into, and its layer proved by a run, in this process."""
    (folder / "file").mkdir()
    row: dict[str, Any] = {"exporter": file.exporter, "tool": file.tool, "due": file.due, "fully": fully}
    try:
        path = file.make(folder / "file")
    except Exception as error:  # an exporter may fail in any way
        said = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
        return {**row, "fully": True, "came": "not made", "said": said}
    source = next((folder / "file" / "source").glob("*.onnx"), None) if file.source else None
    row |= judging.validated_row(path, source, folder) if fully else judging.inspected_row(path)
    try:
        far = _far(file, path, source)
    except Exception as error:  # a runtime may refuse a file
        far = None
        row["unrun"] = str(error)[:100]
    changed = file.name.split(", ")[-1]
    limit = judging.FAR["float16" if "half" in changed else "int" if "int" in changed else "float32"]
    return {**row, "error": far, "differs": far is not None and not far < limit}


def _far(file: File, path: Path, source: Path | None) -> float | None:
    if source is not None:
        return judging.error_against_file(path, source)
    return None if file.module is None else judging.error_against_module(path, file.module)


def fault_row(each: Planted, folder: Path) -> dict[str, Any]:
    """What was said against the right file, and alone."""
    for name in ("right", "wrong"):
        (folder / name).mkdir()
    right, wrong = each.right(folder / "right"), each.make(folder / "wrong")
    compared = judging.validated(wrong, right, folder)
    alone = judging.validated(wrong, None, folder)
    said = judging.sentences(compared)
    return {
        "placement": each.placement,
        "exporter": each.exporter,
        "caught": compared.status != 0,
        "named": compared.status != 0 and _names(each.fault, said),
        "said": next((error.message for error in compared.errors), "").replace(f"{folder}/", "")[:300],
        "alone": "caught" if alone.status else "warned" if alone.warnings else "invisible",
    }


def _names(fault: str, said: Iterable[str]) -> bool:
    return any(word in sentence for word in NAMES[fault] for sentence in said)


if __name__ == "__main__":
    main()
