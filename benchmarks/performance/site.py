"""How large is the site of all implementations, how soon is it painted, and how long does a filter take?

It needs Chromium and Playwright beside the frameworks (tox -e site says how), and a run of all implementations with
all required cases, which takes an hour: CONFORM_RUN names one that is there already.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.performance.measuring import command
from benchmarks.performance.page import Measured, median_of
from encoder_conformance.reports.run.reading import read_report

QUESTION = (
    "How large is the site that `conform report` writes of all implementations and all required cases, and how fast is "
    "it in headless Chromium, from file://? First paint is the browser's own first-contentful-paint. A filter is timed "
    "from the event of its control to the second frame after it, when its result is on the screen."
)
MEGABYTES, PAINT, FILTER = 5.0, 1000.0, 100.0
_PAINT, _ALL = "first paint", "every group opened"
_LIMITS = {_PAINT: PAINT, _ALL: None}
REPEATS = 5
_FILTERS = ("level", "layer", "situation", "dtype", "outcome")
_CHANGE = """([name, chooses]) => new Promise(done => {
    const control = document.querySelector(`#filters select[name=${name}]`);
    const begun = performance.now();
    control.selectedIndex = chooses ? 1 : 0;
    control.dispatchEvent(new Event("change", {bubbles: true}));
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
})"""
_PAINTED = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
_COUNT = "document.getElementById('count').textContent"
_OPEN = """() => new Promise(done => {
    const begun = performance.now();
    document.getElementById("open-all").click();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
})"""


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    run = Path(os.environ.get("CONFORM_RUN", scratch / "run")).resolve()
    conform = [sys.executable, "-m", "encoder_conformance.commands.main"]
    if not run.exists():
        command([*conform, "run", "--level", "required", "--out", str(run)], scratch / "log", accepted=(0, 1))
    site = scratch / "site"
    command([*conform, "report", str(run), "--to", str(site)], scratch / "log")
    report = read_report(run)
    files = [file for file in site.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 1e6
    taken = _in_chromium(site)
    settings = {
        "implementations": str(len(report.implementations)),
        "checks": f"{len(report.records):,}",
        "files": str(len(files)),
    }
    figures = (
        median_of("size", "all of the site", "MB", [size], at_most=MEGABYTES),
        *(
            median_of(what.replace(" ", "-"), what, "milliseconds", milliseconds, at_most=_LIMITS.get(what, FILTER))
            for what, milliseconds in taken.items()
        ),
    )
    return Measured(settings, figures, None)


def _in_chromium(site: Path) -> dict[str, list[float]]:
    """Milliseconds of each repeat, by what takes them."""
    from playwright.sync_api import sync_playwright  # only this section needs it

    taken: dict[str, list[float]] = {what: [] for what in (_PAINT, *(f"filter by {name}" for name in _FILTERS), _ALL)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(REPEATS):
            page: Any = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto((site / "index.html").as_uri())
            page.wait_for_function(f"{_PAINTED}.length > 0")
            taken[_PAINT] += page.evaluate(_PAINTED)
            every = page.evaluate(_COUNT)
            for name in _FILTERS:
                taken[f"filter by {name}"].append(page.evaluate(_CHANGE, [name, True]))
                assert page.evaluate(_COUNT) != every, f"the filter {name} changes nothing"
                page.evaluate(_CHANGE, [name, False])
            taken[_ALL].append(page.evaluate(_OPEN))
            page.close()
        browser.close()
    return taken
