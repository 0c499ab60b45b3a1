"""`conform report`: the pages that it writes, what it refuses, and that nothing of a report runs in them."""

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.judging.verdict import MOST_COLUMNS, MOST_ROWS, heat_map
from encoder_conformance.reports.site.coding import LEVELS, MISSING, ZERO, alphabet, encode
from encoder_conformance.reports.site.writing import STATIC
from encoder_conformance.spec.outcome import SEVERITY, Outcome

CASES = ("--case", "pre-gelu/padding-right", "--case", "post-relu/no-mask", "--dtype", "float32")
LATE_ERROR = """
def stages(self, x, masks, run):
    shown = super().stages(x, masks, run)
    shown['ffn_output'] = shown['ffn_output'] * 1.001
    return shown
"""
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e{{7*7}}`${1}` 1\n2"


class Page(HTMLParser):
    """Every element of a page, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def ids(self) -> set[str | None]:
        return {attributes.get("id") for _, attributes in self.elements}


def data(site: Path, name: str) -> Any:
    """What a data script hands over, rows decoded as static/data.js does."""
    text = (site / "data" / f"{name}.js").read_text(encoding="ascii")
    match = re.fullmatch(r'conform\.receive\("(.+?)",(.*)\);\n', text, re.DOTALL)
    assert match
    assert match[1] == name
    found = json.loads(match[2])
    return {key: rows(value) if isinstance(value, dict) and "kinds" in value else value for key, value in found.items()}


def rows(written: dict[str, Any]) -> list[dict[str, Any]]:
    left = [
        iter([dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)])
        for table in written["tables"]
    ]
    shared = written["shared"]
    return [
        {name: shared[name][value] if name in shared else value for name, value in next(left[kind]).items()}
        for kind in written["kinds"]
    ]


def pages(site: Path) -> Iterator[tuple[Path, Page]]:
    for path in sorted(site.rglob("*.html")):
        yield path, Page(path)


@pytest.fixture
def failed(conform: Callable, fake: Callable, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in which one stage is out of line. It is run once, and each test has a copy."""
    kept = tmp_path_factory.getbasetemp() / "failed-run"
    if not kept.exists():
        ended = conform("run", "--impl", fake("late", LATE_ERROR), *CASES)
        assert ended.status == 1, ended.stdout + ended.stderr
        ended.out.rename(kept)
    return Path(shutil.copytree(kept, tmp_path / "report"))


def changed(run: Path, to: Path, **keys: Any) -> Path:
    """A copy of a run whose report has other values under these keys."""
    shutil.copytree(run, to)
    report = json.loads((to / "report.json").read_text())
    (to / "report.json").write_text(json.dumps({**report, **keys}))
    return to


@pytest.mark.release
def test_the_site_has_what_the_report_has(conform: Callable, failed: Path, tmp_path: Path) -> None:
    ended = conform("report", failed, "--to", tmp_path / "site")
    assert ended.status == 0, ended.stderr
    site, report = tmp_path / "site", json.loads((failed / "report.json").read_text())
    index, detail, cases = data(site, "index"), data(site, "0"), data(site, "cases")
    [column] = index["columns"]
    keys = [(index["cases"][slot["case"]]["name"], slot["dtype"]) for slot in index["slots"]]
    assert set(keys) == {(record["case"], record["dtype"]) for record in report["records"]}
    checks = iter(detail["checks"])
    for n, (case, dtype) in enumerate(keys):
        records = [record for record in report["records"] if (record["case"], record["dtype"]) == (case, dtype)]
        worst = max((Outcome(record["outcome"]) for record in records), key=lambda outcome: SEVERITY[outcome])
        assert index["outcomes"][column["cells"][n]]["name"] == worst
        for record, row in zip(records, islice(checks, detail["counts"][n]), strict=True):
            assert (row["check"], index["outcomes"][row["outcome"]]["name"]) == (record["check"], record["outcome"])
            assert row["tensors"] == [tensor["tensor"] for tensor in record["tensors"]]
            if record["outcome"] == "fail":
                assert row["rms"] == float(f"{record['rms']:.3g}")
                assert row["max"] == float(f"{record['max']:.3g}")
                assert len(row["tensor_rms"]) == len(row["tensor_max"]) == len(record["tensors"])
                first = row["off"][0]
                assert row["tensors"][first["n"]] == record["stage"] == "ffn_output"
                assert max(map(max, first["heat"])) == encode(record["max"])
                assert row["text"] == record["message"]
    assert next(checks, None) is None
    assert sorted(len(row["mask"]) for row in cases["rows"]) == [0, 3], "one has no mask, the other panels"
    page = Page(site / "implementations" / "late.html")
    assert "ffn_output" in page.text
    tally = [record["outcome"] for record in report["records"]]
    assert f"{tally.count('pass')} of {len(tally)} checks conform" in page.text


@pytest.mark.release
def test_what_is_not_asked_is_no_verdict(conform: Callable, failed: Path, tmp_path: Path) -> None:
    """An opt-out hides no verdict of the same case, and who was asked nothing does not conform."""
    report = json.loads((failed / "report.json").read_text())
    [late] = report["implementations"]
    idle = {"outcome": "unsupported", "rms": None, "max": None, "stage": None, "tensors": [], "message": "none"}
    records = [
        {**record, "implementation": name, **(idle if name == "idle" or record["outcome"] != "pass" else {})}
        for name in ("half", "idle")
        for record in report["records"]
    ]
    there = changed(
        failed,
        tmp_path / "changed",
        records=records,
        implementations=[{**late, "name": name} for name in ("half", "idle")],
        diagnoses=[],
        shown=[],
    )
    site = tmp_path / "site"
    assert conform("report", there, "--to", site).status == 0
    index = data(site, "index")
    outcomes = [{index["outcomes"][cell]["name"] for cell in column["cells"]} for column in index["columns"]]
    assert outcomes == [{"pass"}, {"unsupported"}]
    assert "1 implementation conforms, 1 was asked nothing" in Page(site / "index.html").text


@pytest.mark.release
def test_every_link_leads_somewhere_and_nothing_is_fetched(conform: Callable, failed: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert conform("report", failed, "--to", site).status == 0
    seen = 0
    for path, page in pages(site):
        assert "Content-Security-Policy" in path.read_text(), "scripts of the site alone"
        for tag, attributes in page.elements:
            assert not any(name.startswith("on") for name in attributes), "an inline handler"
            assert "style" not in attributes
            for name in ("href", "src"):
                target = attributes.get(name)
                if target is None or (tag == "a" and target.startswith("https://")):
                    continue
                assert "//" not in target, f"{path.name}: {tag} fetches {target}"
                file, _, anchor = target.partition("#")
                there = (path.parent / file).resolve() if file else path
                assert there.is_file(), f"{path.name}: {target}"
                if anchor and "=" not in anchor:
                    assert anchor in Page(there).ids, f"{path.name}: {target}"
                seen += 1
    assert seen > 40
    for script in (site / "static").glob("*.js"):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|eval\(|fetch\(", script.read_text())


def test_texts_of_a_report_are_text(conform: Callable, failed: Path, tmp_path: Path) -> None:
    report = json.loads((failed / "report.json").read_text())
    hostile = json.loads(json.dumps(report).replace('"late"', json.dumps(HOSTILE)))
    for record in hostile["records"]:
        record["message"] = HOSTILE
        record["case"] = f"{HOSTILE}/{record['case']}"
    hostile["implementations"][0] |= {"versions": {HOSTILE: HOSTILE}, "settings": {HOSTILE: HOSTILE}, "title": HOSTILE}
    hostile["environment"]["processor"] = HOSTILE
    hostile["arguments"] = ["run", HOSTILE]
    run = changed(failed, tmp_path / "hostile", **hostile)
    ended = conform("report", run, "--to", tmp_path / "site")
    assert ended.status == 0, ended.stderr
    found = 0
    for path, page in pages(tmp_path / "site"):
        raw = path.read_text()
        assert "<script>" not in raw
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", raw)
        assert "img" not in {tag for tag, _ in page.elements}
        found += page.text.count("{{7*7}}")
    assert found > 5, "and it is there to be read"
    [column] = data(tmp_path / "site", "index")["columns"]
    assert "alert(1)" in column["label"]
    assert (tmp_path / "site" / column["page"]).is_file()


def test_runs_that_cannot_be_shown_are_refused(conform: Callable, failed: Path, tmp_path: Path) -> None:
    report = (failed / "report.json").read_bytes()
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"format": "something else", "version": 1}')
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "report.json").write_bytes(report[: len(report) // 2])
    newer = changed(failed, tmp_path / "newer", version=99)
    stranger = changed(failed, tmp_path / "stranger", implementations=[])
    copied = shutil.copytree(failed, tmp_path / "copied")
    for runs, said in (
        ((foreign,), "is no report of this version"),
        ((cut,), "is no report"),
        ((newer,), "is of format 99"),
        ((stranger,), "is none of its implementations"),
        ((failed, failed), "is the same run as"),
        ((failed, copied), "is the same run as"),
        ((tmp_path / "nowhere",), "cannot be read"),
    ):
        ended = conform("report", *runs, "--to", tmp_path / "site")
        assert ended.status == 2, ended.stdout + ended.stderr
        assert said in ended.stderr
        assert not (tmp_path / "site").exists(), "nothing is written"
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set()


@pytest.mark.release
def test_only_a_site_is_overwritten_and_only_where_that_is_asked(
    conform: Callable, failed: Path, tmp_path: Path
) -> None:
    full, site, file = tmp_path / "full", tmp_path / "site", tmp_path / "file"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    file.write_text("a file")
    (tmp_path / "site").mkdir()
    for to, options, said in (
        (full, (), "is not empty, and holds no site"),
        (full, ("--overwrite",), "is not empty, and holds no site"),
        (file, ("--overwrite",), "is no folder"),
    ):
        ended = conform("report", failed, "--to", to, *options)
        assert (ended.status, said in ended.stderr) == (2, True), ended.stderr
    assert (full / "thesis.tex").read_text() == "years of work"
    assert conform("report", failed, "--to", site).status == 0, "an empty folder may be there"
    (site / "own.txt").write_text("left by somebody")
    again = conform("report", failed, "--to", site)
    assert (again.status, "holds a site already" in again.stderr) == (2, True)
    assert (site / "own.txt").is_file()
    (site / "index.html").write_text("of the site before")
    (site / "data" / "link").symlink_to("nowhere")
    (site / "data" / "gone.js").write_text("of a site that had more")
    with (site / "encoder-conformance-site").open("a") as listed:
        listed.write("data/gone.js\n")
    assert conform("report", failed, "--to", site, "--overwrite").status == 0
    assert (site / "own.txt").read_text() == "left by somebody"
    assert (site / "data" / "link").is_symlink()
    assert not (site / "data" / "gone.js").exists()
    assert "of the site before" not in (site / "index.html").read_text()
    listed_without = [
        each for each in (site / "encoder-conformance-site").read_text().splitlines() if each != "case.html"
    ]
    (site / "encoder-conformance-site").write_text("\n".join(listed_without))
    (site / "case.html").write_text("somebody's own page")
    theirs = conform("report", failed, "--to", site, "--overwrite")
    assert (theirs.status, "case.html: is a file that no site has written" in theirs.stderr) == (2, True)
    assert (site / "case.html").read_text() == "somebody's own page"
    assert {path.name for path in tmp_path.iterdir()} >= {"full", "site", "file"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "nothing is left beside it"


@pytest.mark.release
def test_two_runs_of_one_implementation_are_two_columns_and_an_incomplete_one_says_so(
    conform: Callable, failed: Path, tmp_path: Path
) -> None:
    later = changed(failed, tmp_path / "later", started="2030-01-01T00:00:00+00:00", complete=False, ended_by="budget")
    assert conform("report", failed, later, "--to", tmp_path / "site").status == 0
    columns = data(tmp_path / "site", "index")["columns"]
    assert [column["label"] for column in columns] == ["late (report)", "late (later)"]
    assert len({column["page"] for column in columns}) == 2
    assert "its run is ended by the budget" in Page(tmp_path / "site" / "index.html").text
    assert columns[0]["cells"] == columns[1]["cells"]


def decoded(character: str) -> float | None:
    """As static/data.js decodes it."""
    code: dict[str, Any] = alphabet()
    if character in (MISSING, ZERO):
        return None if character == MISSING else 0.0
    level, fine = LEVELS.index(character), code["fineLevels"]
    above = level / code["fine"] if level <= fine else fine / code["fine"] + (level - fine) / code["coarse"]
    return float(10 ** (code["smallest"] + above))


def test_a_size_in_one_character_is_near_it_and_never_in_another_order() -> None:
    sizes = [10 ** (power / 40) for power in range(-80, 560)]
    characters = [encode(size) for size in sizes]
    assert characters == sorted(characters)
    for size, character in zip(sizes, characters, strict=True):
        back = decoded(character)
        assert back
        assert abs(math.log10(back / size)) < (0.042 if size <= 100 else 0.2)
    assert [decoded(encode(value)) for value in (None, math.nan, 0.0)] == [None, None, 0.0]
    assert encode(1e300) == LEVELS[-1]
    assert encode(1e-9) == LEVELS[0]


def test_a_heat_map_has_the_largest_error_of_each_field() -> None:
    shape = (2, 20, 50)
    error = np.random.default_rng(0).random(shape)
    error[1, 13, 31] = 1e7
    heat = heat_map(error.reshape(-1), np.arange(error.size), shape)
    assert (len(heat), len(heat[0])) == (MOST_ROWS, MOST_COLUMNS)
    assert heat[13 * MOST_ROWS // 20][31 * MOST_COLUMNS // 50] == 1e7
    assert sum(value > 1 for row in heat for value in row if value is not None) == 1
    one = heat_map(np.array([3.0]), np.array([5]), (7,))
    assert one == ((None,) * 5 + (3.0, None),)


@pytest.mark.release
def test_runs_of_one_implementation_have_a_trend_and_their_changes_a_page(
    conform: Callable, failed: Path, tmp_path: Path
) -> None:
    records = json.loads((failed / "report.json").read_text())["records"]
    told = {"outcome": "pass", "stage": None, "message": ""}
    right = [
        {**each, **told, "tensors": [{**tensor, "conforms": True} for tensor in each["tensors"]]}
        for each in records
        if each["tensors"]
    ]
    judged = [each for each in records if not each["tensors"]]
    before = changed(failed, tmp_path / "v1", records=[*right, *judged], diagnoses=[], started="2026-01-01")
    site = tmp_path / "site"
    ended = conform("compare", before, failed, "--to", site)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert f"Pages: {site / 'changes.html'}" in ended.stdout
    page = Page(site / "changes.html")
    assert "newly out of line" in page.text
    assert "v1 → report" in page.text
    links = {attributes["href"] for tag, attributes in page.elements if tag == "a" and attributes.get("href")}
    assert any(str(link).startswith("index.html#case=") and "report" in str(link) for link in links)
    [newest] = [each for each in data(site, "index")["columns"] if each["label"] == "late (report)"]
    text = Page(site / newest["page"]).text
    assert re.search(r"since report: out of line.*before: conforms", text)
    assert "v1" in text
    again = conform("compare", before, failed, "--to", site)
    assert (again.status, "holds a site already" in again.stderr) == (2, True)


@pytest.mark.release
def test_a_failing_implementation_s_page_has_its_script(conform: Callable, failed: Path, tmp_path: Path) -> None:
    assert conform("report", failed, "--to", tmp_path / "site").status == 0
    script = tmp_path / "site" / "scripts" / "late.py"
    text = script.read_text()
    compile(text, script.name, "exec")
    assert not re.search(r"^\s*(import|from) encoder_conformance\b", text, re.MULTILINE)
    page = Page(tmp_path / "site" / "implementations" / "late.html")
    assert "As a script of the framework alone" in page.text
    assert ("a", "../scripts/late.py") in {(tag, each.get("href")) for tag, each in page.elements}


@pytest.mark.release
def test_exporters_have_a_page(conform: Callable, failed: Path, tmp_path: Path) -> None:
    report = json.loads((failed / "report.json").read_text())
    [layer] = report["implementations"]
    name = "onnx_direct:opset=23,level=basic"
    settings = {"opset": "23", "runtime": "onnxruntime", "level": "basic"}
    exported = changed(
        failed,
        tmp_path / "exported",
        implementations=[layer | {"name": name, "settings": settings}],
        records=[each | {"implementation": name} for each in report["records"]],
        shown=[],
        diagnoses=[],
    )
    assert conform("report", exported, "--to", tmp_path / "site").status == 0
    text = Page(tmp_path / "site" / "exporters.html").text
    assert "onnx_direct" in text
    assert re.search(r"23\s*onnxruntime\s*basic", text)
    assert conform("report", failed, "--to", tmp_path / "none").status == 0
    assert "No exporter took part" in Page(tmp_path / "none" / "exporters.html").text


ELEVENTH = 'DISTURBED = "disturbed", "D", "another process took the machine", "no answer"'
WITH_ELEVENTH = """
import sys, types
from pathlib import Path
import encoder_conformance.spec as room
source = Path(room.__file__).with_name("outcome.py").read_text(encoding="utf-8")
name = room.__name__ + ".outcome"
module = sys.modules[name] = room.outcome = types.ModuleType(name)
before, mark, after = source.partition("    NOT_RUN = ")
assert mark
exec(before + "    " + sys.argv.pop(1) + "\\n" + mark + after, vars(module))
from encoder_conformance.commands.main import main
main()
"""


@pytest.mark.release
def test_an_eleventh_outcome_is_a_row_and_nothing_else(failed: Path, tmp_path: Path) -> None:
    """Its number is 10: nothing that shows outcomes may take one for a digit, or know them by their places."""
    report = json.loads((failed / "report.json").read_text())
    records = [{**each, "outcome": "disturbed", "message": "noise"} for each in report["records"][:3]]
    there = changed(failed, tmp_path / "changed", records=[*records, *report["records"][3:]])

    def conform(*arguments: str | Path) -> str:
        command = [sys.executable, "-c", WITH_ELEVENTH, ELEVENTH, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, 1), ended.stderr
        return ended.stdout

    site = tmp_path / "site"
    conform("report", there, "--to", site)
    index = data(site, "index")
    [column] = index["columns"]
    assert len(column["cells"]) == len(index["slots"])
    found = {index["outcomes"][cell]["name"]: index["outcomes"][cell] for cell in column["cells"]}
    assert found["disturbed"] == {
        "name": "disturbed",
        "sign": "D",
        "category": "bad",
        "severity": SEVERITY[Outcome.NOT_RUN],
        "applicable": True,
    }
    assert [index["outcomes"][row["outcome"]]["name"] for row in data(site, "0")["checks"]].count("disturbed") == 3
    assert "another process took the machine" in Page(site / "index.html").text
    assert '<td class="bad">disturbed</td>' in (site / "implementations" / "late.html").read_text(encoding="utf-8")
    assert conform("summarize", there, "--junit", "-").count('<error message="noise" type="disturbed"') == 3
    assert "→ disturbed" in conform("compare", failed, there)


def test_scripts_and_styles_know_no_outcome_by_its_name_or_place() -> None:
    for path in STATIC.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        quoted = set(re.findall(r"[\"'`.]([a-z-]+)[\"'`\s,:{]", text)) if path.suffix == ".css" else set()
        quoted |= set(re.findall(r"[\"'`]([\w-]+)[\"'`]", text))
        assert not quoted & {*Outcome, *map(str, range(2, 10))}, path.name
