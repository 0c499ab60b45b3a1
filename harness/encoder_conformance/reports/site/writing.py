"""Writes the site: pages from templates, data as scripts. A folder gets all of it or nothing."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import encoder_conformance
from encoder_conformance.judging.tally import Tally
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import writable
from encoder_conformance.reports.run.matrix import format_sigma
from encoder_conformance.reports.run.repeating import reproduce_command
from encoder_conformance.reports.site import contexts
from encoder_conformance.reports.site.cases import facts, group_of, listed, ordered_keys
from encoder_conformance.reports.site.coding import Rows, alphabet, outcomes
from encoder_conformance.reports.site.columns import Column
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import clauses, constants
from encoder_conformance.spec.outcome import Outcome

MARKER = "encoder-conformance-site"
"""A file that a site has, and by which --overwrite knows it: the version, and the path of each of its own files."""
STATIC = Path(__file__).with_name("static")
_MOST_DIAGNOSED, _MOST_FAILURES = 12, 60
_MENU = (
    ("index.html", "Matrix"),
    ("case.html", "Cases"),
    ("exporters.html", "Exporters"),
    ("deviations.html", "Detection matrix"),
)


def write_site(
    columns: Sequence[Column], folder: Path, *, overwrite: bool = False, changes: dict[str, Any] | None = None
) -> int:
    """Write the site of these columns. Returns its bytes. Raises InputError if the folder has anything in it.

    `changes`: what the page of changes shows; None writes none.
    With `overwrite` it may hold an earlier site, which is replaced file by file; what else lies there stays.
    """
    _refuse(folder, overwrite=overwrite)
    with writable(f"--to {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            made = Path(temporary, "site")
            _fill(made, columns, changes)
            size = sum((made / name).stat().st_size for name in _files(made))
            if folder.exists():
                _keep_others(folder, made)
            _put(made, folder, Path(temporary, "before"))
    return size


def _refuse(folder: Path, *, overwrite: bool) -> None:
    where = f"--to {folder}"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError("is no folder", where=where, hint="choose another one")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MARKER).is_file():
        hint = "choose an empty folder; --overwrite replaces an earlier site and nothing else"
        raise InputError("is not empty, and holds no site", where=where, hint=hint)
    if not overwrite:
        raise InputError("holds a site already", where=where, hint="--overwrite replaces it")


def _files(folder: Path) -> list[str]:
    """The paths of all that is in a folder and is none itself, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def _keep_others(folder: Path, made: Path) -> None:
    """Take over into the finished site whatever lies in the folder and is not of the site that was there.

    Raises InputError where the new site has a file of the same name: it is somebody's.
    """
    of_site = {MARKER, *(folder / MARKER).read_text(encoding="utf-8").splitlines()[1:]} if any(folder.iterdir()) else {}
    for name in _files(folder):
        if name in of_site:
            continue
        if (made / name).exists():
            hint = "move it away, or choose another folder: --overwrite replaces an earlier site and nothing else"
            raise InputError("is a file that no site has written", where=f"--to {folder / name}", hint=hint)
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, made / name, follow_symlinks=False)


def _put(made: Path, folder: Path, before: Path) -> None:
    """Put the finished site in its place. What was there goes aside first, and comes back if that fails."""
    if folder.exists():
        folder.rename(before)
    try:
        made.rename(folder)
    except OSError:
        if before.exists():
            before.rename(folder)
        raise


def _fill(made: Path, columns: Sequence[Column], changes: dict[str, Any] | None) -> None:
    keys = ordered_keys(columns)
    names = list(dict.fromkeys(case for case, _ in keys))
    shutil.copytree(STATIC, made / "static")
    (made / "data").mkdir()
    (made / "implementations").mkdir()
    for column in columns:
        column.script = contexts.script_context(column)
    _data(made, "index", _index(columns, keys, names))
    _data(made, "cases", facts(names))
    for number, column in enumerate(columns):
        diagnoses = [contexts.diagnosis_context(each) for each in column.diagnoses]
        _data(made, str(number), {**column.details(keys), "diagnoses": diagnoses, "machine": column.run.machine})
    _pages(made, columns, changes)
    (made / MARKER).write_text("\n".join([f"conform {encoder_conformance.__version__}", *_files(made), ""]), "utf-8")


def _index(columns: Sequence[Column], keys: Sequence[tuple[str, str]], names: Sequence[str]) -> dict[str, Any]:
    """The data of the matrix. `keys`: its cases and dtypes; `names`: its cases."""
    groups = list(dict.fromkeys(map(group_of, names)))
    slots = Rows("dtype")
    numbers = {case: number for number, case in enumerate(names)}
    for case, dtype in keys:
        slots.add({"case": numbers[case], "dtype": dtype})
    return {
        "columns": [_column(column, keys) for column in columns],
        "cases": listed(names),
        "slots": slots.written(),
        "groups": groups,
        "clauses": list(clauses()),
        "clauseTexts": {name: text for name, text in clauses().items() if name in groups},
        "dtypes": sorted({dtype for _, dtype in keys}),
        "levels": LEVELS,
        "outcomes": outcomes(),
        "limits": {"rms": constants().rms_limit, "max": constants().max_limit},
        "code": alphabet(),
    }


def _column(column: Column, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """An implementation, and the outcome and size of each of its cells."""
    repeat, reproduce = contexts.commands(column)
    return {
        "label": column.label,
        "page": column.page,
        "versions": column.judged.made_with,
        "repeat": repeat,
        "reproduce": reproduce,
        "script": {name: column.script[name] for name in ("case", "dtype")} if column.script else None,
        **column.codes(keys),
    }


def _data(made: Path, name: str, value: Any) -> None:
    """A script that hands over JSON, in ASCII: a page from file:// may read scripts, and no other file."""
    text = json.dumps(value, separators=(",", ":"))
    (made / "data" / f"{name}.js").write_text(f'conform.receive("{name}",{text});\n', encoding="ascii")


def _pages(made: Path, columns: Sequence[Column], changes: dict[str, Any] | None) -> None:
    runs = list({id(column.run): column.run for column in columns}.values())
    templates = _templates(len(runs), [*_MENU, *([("changes.html", "Changes")] if changes else [])])

    def write(path: str, template: str, **values: Any) -> None:
        root = "../" * path.count("/")
        text = templates.get_template(template).render(page=path, root=root, **values)
        (made / path).write_text(text, encoding="utf-8")

    failing = [each for each in columns if each.tally.unexpected][:_MOST_DIAGNOSED]
    every = Tally.of(sum((column.point.outcomes for column in columns), Counter[Outcome]()))
    heading = {
        "headline": _headline([column.tally for column in columns]),
        "summary": contexts.verdict(every) if columns else "No implementation took part.",
    }
    write("index.html", "index.html", columns=columns, runs=runs, failing=failing, **heading)
    write("case.html", "case.html")
    write("deviations.html", "deviations.html", **contexts.kill_context(columns))
    write("exporters.html", "exporters.html", **contexts.exporters_context(columns))
    if changes:
        write("changes.html", "changes.html", **changes)
    over_runs = contexts.trends(columns)
    for column in columns:
        if column.script:
            (made / "scripts").mkdir(exist_ok=True)
            (made / column.script["path"]).write_text(column.script["text"], encoding="utf-8")
        values = {
            "trend": over_runs.get(column.judged.name),
            "command": reproduce_command(column.run.report, column.judged.name, "*", None),
            "declared": [contexts.declared(name, count) for name, count in column.deviations.items()],
            "facts": contexts.facts(column),
        }
        write(column.page, "implementation.html", column=column, **values)


def _templates(runs: int, menu: Sequence[tuple[str, str]]) -> Environment:
    loader = PackageLoader("encoder_conformance.reports.site")
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    templates.globals |= {
        "conform": encoder_conformance.__version__,
        "limits": {"rms": f"{constants().rms_limit:g}", "max": f"{constants().max_limit:g}"},
        "made_of": f"Made of {runs} run{'s' * (runs != 1)}.",
        "outcomes": list(Outcome),
        "levels": LEVELS,
        "menu": menu,
        "anchor": contexts.anchor,
        "most_failures": _MOST_FAILURES,
    }
    templates.filters |= {
        "sigma": lambda size: "" if size is None else format_sigma(size),
        "tally": Tally.of,
        "verdict": contexts.verdict,
        "diagnosis": contexts.diagnosis_context,
    }
    return templates


def _headline(tallies: Sequence[Tally]) -> str:
    bad = sum(bool(each.unexpected) for each in tallies)
    of = f"{len(tallies)} implementation{'s' * (len(tallies) != 1)}"
    if bad:
        return f"{bad} of {of} do{'es' * (bad == 1)} not conform"
    conforming = sum(each.as_expected > 0 for each in tallies)
    if not conforming:
        return f"{of}, and none was asked anything" if len(tallies) > 1 else f"{of}, which was asked nothing"
    text = f"{conforming} implementation{'s' * (conforming != 1)} conform{'s' * (conforming == 1)}"
    unasked = len(tallies) - conforming
    return f"{text}, {unasked} {'was' if unasked == 1 else 'were'} asked nothing" if unasked else text
