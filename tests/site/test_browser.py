"""The site in a real browser, from file://: load, filter, open a cell, a deep link, the keyboard, dark, print, axe."""

import re
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
CASE = "pre-gelu/padding-right"
PAGES = (
    "index.html",
    f"index.html#case={CASE.replace('/', '%2F')}&impl=late",
    f"case.html#case={CASE.replace('/', '%2F')}",
    "case.html",
    "deviations.html",
    "exporters.html",
    "implementations/late.html",
    "implementations/honest.html",
)
WRITTEN_BY_SCRIPT = {"index.html": "#matrix table", "case.html": "#case-body > p"}
"""Page → what a script writes there; the others are whole as they are."""


def open_page(page: Page, site: Path, path: str) -> None:
    page.goto(f"{site.as_uri()}/{path}")


def test_the_matrix_is_there_and_says_what_failed(page: Page, site: Path) -> None:
    open_page(page, site, "index.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 of 2 implementations does not conform")
    row = page.locator("#matrix tr", has=page.get_by_role("link", name=CASE, exact=True))
    assert re.match(r"✗ \d", row.locator("td").nth(0).inner_text())
    assert re.match(r"✓ \d", row.locator("td").nth(1).inner_text())


def test_filters_leave_what_they_say_and_have_an_address(page: Page, site: Path) -> None:
    open_page(page, site, "index.html")
    cases = page.locator("#matrix tbody:not([hidden]) tr:not(.group) th")
    every = cases.count()
    page.get_by_label("Layer").select_option("post-relu")
    names = cases.all_inner_texts()
    assert 0 < len(names) < every
    assert all(name.startswith("post-relu/") for name in names)
    page.get_by_label("Layer").select_option("")
    page.get_by_label("where they disagree").check()
    assert 0 < cases.count() <= every
    page.get_by_label("Outcome").select_option("fail")
    assert "outcome=fail" in page.url
    address, left = page.url, cases.all_inner_texts()
    open_page(page, site, "case.html")
    page.goto(address)
    assert page.locator("#matrix tbody:not([hidden]) tr:not(.group) th").all_inner_texts() == left
    page.get_by_role("button", name="Clear").click()
    expect(cases).to_have_count(every)


def test_a_cell_opens_by_click_by_key_and_by_address(page: Page, site: Path) -> None:
    open_page(page, site, "index.html")
    row = page.locator("#matrix tr", has=page.get_by_role("link", name=CASE, exact=True))
    row.locator("td a").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ffn_output: rms")
    expect(dialog.get_by_role("img", name=re.compile("first out of line is ffn_output")).first).to_be_visible()
    expect(dialog.get_by_role("img", name=re.compile("Where in ffn_output the error is")).first).to_be_visible()
    expect(dialog.get_by_role("img", name=re.compile("Mask of item 0")).first).to_be_visible()
    expect(dialog).to_contain_text(f"--case {CASE} --dtype float32")
    address = page.url
    assert "impl=late" in address
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert "impl=" not in page.url
    assert page.evaluate("document.activeElement.hash").endswith("impl=late"), "the focus is where it was"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("honest")
    open_page(page, site, "case.html")
    page.goto(address)
    expect(page.get_by_role("dialog")).to_contain_text("ffn_output: rms")


def test_the_keyboard_reaches_a_cell_from_the_filters(page: Page, site: Path) -> None:
    open_page(page, site, "index.html")
    page.locator("#matrix tr.group button").first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.closest('td') !== null")
    page.locator("#matrix tr.group button").first.press("Enter")
    assert page.locator("#matrix tr.group button").first.get_attribute("aria-expanded") == "false"


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_screen(
    page: Page, site: Path, path: str, scheme: str, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    open_page(page, site, path)
    written_by_script = WRITTEN_BY_SCRIPT.get(path.partition("#")[0])
    if written_by_script:
        page.locator(written_by_script).first.wait_for(state="attached")
    if "impl=" in path:
        page.wait_for_selector("#detail-body svg")
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:3])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_is_dark_and_print_has_the_matrix_and_no_controls(page: Page, site: Path) -> None:
    page.emulate_media(color_scheme="dark")
    open_page(page, site, "index.html")
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 60
    page.emulate_media(media="print", color_scheme="light")
    expect(page.locator("#filters")).to_be_hidden()
    expect(page.locator("#matrix table")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.getElementById('matrix')).overflow") == "visible"
    assert len(page.pdf()) > 10_000


def test_nothing_of_a_hostile_report_runs(page: Page, site: Path, tmp_path: Path) -> None:
    """Names come from data files too; scripts that they would bring are text."""
    for file in (site / "data").glob("*.js"):
        text = file.read_text().replace(
            "late", '<img src=x onerror=\\"document.title=1\\"><script>document.title=1</script>'
        )
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / file.name).write_text(text)
    for name in ("static", "implementations"):
        (tmp_path / name).symlink_to(site / name)
    (tmp_path / "index.html").write_text((site / "index.html").read_text())
    page.goto(f"{tmp_path.as_uri()}/index.html")
    expect(page.locator("#matrix thead")).to_contain_text("<img src=x")
    assert page.locator("#matrix img, #matrix script").count() == 0
    assert page.title() != "1"


def test_the_smallest_failing_case_leads_to_its_script(page: Page, site: Path) -> None:
    open_page(page, site, "index.html")
    script = page.evaluate("conform.index.columns[0].script")
    open_page(page, site, f"index.html#case={script['case'].replace('/', '%2F')}&impl=late")
    page.reload()
    page.get_by_role("dialog").get_by_role("link", name="The script, to copy").click()
    expect(page.get_by_role("heading", name="As a script of the framework alone")).to_be_visible()
    page.get_by_text("The script", exact=True).click()
    expect(page.locator("#script-text")).to_contain_text(script["dtype"])
