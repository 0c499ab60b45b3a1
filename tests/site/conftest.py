"""A site to look at, and the browser: Chromium as the system has it, which CHROMIUM may name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
HONEST = Path(__file__).parents[1] / "fakes" / "honest"
LATE = """
import runpy
Honest = runpy.run_path({honest!r})["Honest"]

class Late(Honest):
    def stages(self, x, masks, run):
        shown = super().stages(x, masks, run)
        shown["ffn_output"] = shown["ffn_output"] * 1.001
        return shown

if __name__ == "__main__":
    from encoder_conformance import serve
    serve(Late())
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium: apt-get install chromium, or CHROMIUM=/path/to/it"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two implementations, one of which is wrong in a stage, in the cases of two layers."""
    folder = tmp_path_factory.mktemp("site")
    late = shutil.copytree(HONEST, folder / "late", ignore=shutil.ignore_patterns("*.log"))
    manifest = late / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("name: honest", "name: late", 1))
    (late / "adapter.py").write_text(LATE.format(honest=str(HONEST / "adapter.py")))
    conform = [Path(sys.executable).with_name("conform")]
    cases = ("--case", "pre-gelu/*padding*", "--case", "post-relu/mask-*", "--case", "post-relu/causal*")
    run = [*conform, "run", "--impl", late, "--impl", HONEST, *cases, "--out", folder / "run"]
    assert subprocess.run(run, cwd=folder, capture_output=True, check=False).returncode == 1
    subprocess.run([*conform, "report", folder / "run", "--to", folder / "site"], cwd=folder, check=True)
    return folder / "site"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong and nothing be fetched."""
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    opened = context.new_page()
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
    yield opened
    context.close()
    assert not problems, problems
