"""Writes the site: pages from templates, data as scripts. A folder gets all of it or nothing."""

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import encoder_conformance
from encoder_conformance.errors import InputError
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.report.marks import MARKS
from encoder_conformance.site import contexts
from encoder_conformance.site.cases import facts, group_of, level_of, ordered_keys
from encoder_conformance.site.coding import alphabet
from encoder_conformance.site.columns import OUTCOMES, Column
from encoder_conformance.site.exporters import exporters_context
from encoder_conformance.site.kill import kill_context
from encoder_conformance.site.trends import trends
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import clauses, load

MARKER = "encoder-conformance-site"
"""A file that a site has, and by which --overwrite knows one."""
STATIC = Path(__file__).with_name("static")
_MOST_DIAGNOSED = 12
_MENU = (
    ("index.html", "Matrix"),
    ("case.html", "Cases"),
    ("exporters.html", "Exporters"),
    ("deviations.html", "Kill matrix"),
)


def write_site(
    columns: Sequence[Column], folder: Path, *, overwrite: bool = False, changes: dict[str, Any] | None = None
) -> int:
    """Write the site of these columns. Returns its bytes. Raises InputError if the folder has anything in it.

    `changes`: what the page of changes shows; None writes none.
    With `overwrite` it may hold an earlier site, which is replaced as a whole; never anything else.
    """
    _refuse(folder, overwrite=overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            made = Path(temporary, "site")
            _fill(made, columns, changes)
            size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
            _put(made, folder, Path(temporary, "before"))
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, where=f"--to {folder}", hint="choose another folder") from None
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


def _put(made: Path, folder: Path, before: Path) -> None:
    """Put the finished site in its place. What was there goes aside first, and comes back if that fails."""
    made.chmod(0o777 & ~_umask())
    if folder.exists():
        folder.rename(before)
    try:
        made.rename(folder)
    except OSError:
        if before.exists():
            before.rename(folder)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _fill(made: Path, columns: Sequence[Column], changes: dict[str, Any] | None) -> None:
    keys = ordered_keys(columns)
    names = list(dict.fromkeys(case for case, _ in keys))
    shutil.copytree(STATIC, made / "static")
    (made / "data").mkdir()
    (made / "implementations").mkdir()
    (made / MARKER).write_text(f"conform {encoder_conformance.__version__}\n")
    pages = [contexts.page(column) for column in columns]
    _data(made, "index", index(columns, keys, names, pages))
    _data(made, "cases", facts(names))
    for number, column in enumerate(columns):
        diagnoses = [contexts.diagnosis_context(each) for each in column.diagnoses]
        machine = contexts.machine(column.run)
        _data(made, str(number), {**column.details(keys), "diagnoses": diagnoses, "machine": machine})
    _pages(made, columns, pages, changes)


def index(
    columns: Sequence[Column], keys: Sequence[tuple[str, str]], names: Sequence[str], pages: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the matrix needs at once: cases, and the outcome and size of each in each column; `pages` are theirs."""
    groups = list(dict.fromkeys(map(group_of, names)))
    dtypes = list(dict.fromkeys(sorted(dtype for _, dtype in keys)))
    numbers = {case: number for number, case in enumerate(names)}
    cited = list(clauses())
    cases = load().cases
    rows = []
    for column, page in zip(columns, pages, strict=True):
        again, script = contexts.commands(column)
        rows.append(
            {
                "label": column.label,
                "page": f"implementations/{column.slug}.html",
                "versions": contexts.versions(column),
                "repeat": again,
                "reproduce": script,
                "script": [page["script"]["case"], page["script"]["dtype"]] if page["script"] else None,
                "cells": "".join(map(column.outcome_at, keys)),
                "sigmas": "".join(map(column.sigma_at, keys)),
            }
        )
    return {
        "columns": rows,
        "cases": [
            [
                name,
                level_of(name),
                groups.index(group_of(name)),
                [cited.index(clause) for clause in cases[name].clauses] if name in cases else [],
            ]
            for name in names
        ],
        "slots": [[numbers[case], dtypes.index(dtype)] for case, dtype in keys],
        "groups": groups,
        "clauses": cited,
        "clauseTexts": {name: text for name, text in clauses().items() if name in groups},
        "dtypes": dtypes,
        "levels": LEVELS,
        "outcomes": OUTCOMES,
        "unexpected": [each for each in Outcome if each not in EXPECTED and each is not Outcome.NOT_RUN],
        "marks": MARKS,
        "limits": {"rms": constants().rms_limit, "max": constants().max_limit},
        "code": alphabet(),
    }


def _data(made: Path, name: str, value: Any) -> None:
    """A script that hands over JSON, in ASCII: a page from file:// may read scripts, and no other file."""
    text = json.dumps(value, separators=(",", ":"))
    (made / "data" / f"{name}.js").write_text(f'conform.receive("{name}",{text});\n', encoding="ascii")


def _pages(
    made: Path, columns: Sequence[Column], pages: Sequence[dict[str, Any]], changes: dict[str, Any] | None
) -> None:
    loader = PackageLoader("encoder_conformance.site")
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    runs = list({id(column.run): column.run for column in columns}.values())
    templates.globals |= {
        "conform": encoder_conformance.__version__,
        "limits": {"rms": f"{constants().rms_limit:g}", "max": f"{constants().max_limit:g}"},
        "made_of": f"Made of {len(runs)} run{'s' * (len(runs) != 1)}.",
        "marks": contexts.legend(),
        "menu": [*_MENU, *([("changes.html", "Changes")] if changes else [])],
    }

    def write(path: str, template: str, **values: Any) -> None:
        root = "../" * path.count("/")
        text = templates.get_template(template).render(page=path, root=root, **values)
        (made / path).write_text(text, encoding="utf-8")

    rows = [contexts.row(column) for column in columns]
    failing = [each for each in rows if each["tally"]["unexpected"]]
    write(
        "index.html",
        "index.html",
        columns=rows,
        failing=failing[:_MOST_DIAGNOSED],
        headline=_headline(rows),
        summary=_summary(rows),
        runs=[
            {
                "name": run.name,
                "command": shlex.join(run.report.arguments),
                "started": run.report.started,
                "cut_short": run.cut_short,
                "machine": contexts.machine(run),
                "absent": run.absent,
            }
            for run in runs
        ],
    )
    write("case.html", "case.html")
    write("deviations.html", "deviations.html", **kill_context(columns))
    write("exporters.html", "exporters.html", **exporters_context(columns))
    if changes:
        write("changes.html", "changes.html", **changes)
    over_runs = trends(columns)
    for column, page in zip(columns, pages, strict=True):
        if page["script"]:
            (made / "scripts").mkdir(exist_ok=True)
            (made / page["script"]["path"]).write_text(page["script"]["text"], encoding="utf-8")
        trend = over_runs.get(column.judged.name)
        write(f"implementations/{column.slug}.html", "implementation.html", column=page, trend=trend)


def _headline(rows: Sequence[dict[str, Any]]) -> str:
    bad = sum(bool(each["tally"]["unexpected"]) for each in rows)
    of = f"{len(rows)} implementation{'s' * (len(rows) != 1)}"
    if bad:
        return f"{bad} of {of} do{'es' * (bad == 1)} not conform"
    conforming = sum(each["tally"]["conforming"] + each["tally"]["deviating"] > 0 for each in rows)
    if not conforming:
        return f"{of}, and none was asked anything" if len(rows) > 1 else f"{of}, which was asked nothing"
    text = f"{conforming} implementation{'s' * (conforming != 1)} conform{'s' * (conforming == 1)}"
    unasked = len(rows) - conforming
    return f"{text}, {unasked} {'was' if unasked == 1 else 'were'} asked nothing" if unasked else text


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    together = {name: sum(each["tally"][name] for each in rows) for name in rows[0]["tally"]} if rows else {}
    return contexts.verdict(together) if rows else "No implementation took part."
