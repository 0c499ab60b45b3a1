"""Makes README's pictures from a real run: `python docs/pictures/make.py`, in an environment that has the frameworks.

terminal.svg is what `conform run` prints, and site.png is the site that `conform report` makes of it, in Chromium.
Beside the implementations that are installed a backend is judged whose LayerNorm has the wrong epsilon.
"""

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from fakes.wrong_backend import wrong_backend  # noqa: E402

COLUMNS, LINES = 100, 60
FIRST, LAST = 20, 17
"""Lines of the terminal that the picture has."""
CASES = (
    *(f"pre-gelu/{situation}" for situation in ("no-mask", "padding-right", "causal", "low-variance", "large-mean")),
    *(f"post-relu/{situation}" for situation in ("padding-right", "blind-queries-padding", "sequence-first")),
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Rich's own template fetches fonts from elsewhere; this one names those that a system has.
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    implementations = sys.argv[1:] or ["pytorch", "keras_tf", "jax_pure", "onnx_pytorch"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wrong_backend(folder / "my_backend")
        arguments = ["run", *(f"--impl={name}" for name in (*implementations, "./my_backend"))]
        arguments += [f"--case={case}" for case in CASES] + ["--dtype=float32"]
        printed = in_a_terminal(["conform", *arguments], folder)
        shown = f"$ conform run {' '.join(f'--impl {name}' for name in (*implementations, './my_backend'))} …\n"
        (HERE / "terminal.svg").write_text(picture_of(shortened(shown + printed)), encoding="utf-8")
        conform(["report", "conform-report/latest", "--to", "site"], folder)
        photograph(folder / "site" / "index.html", HERE / "site.png")


def conform(arguments: list[str], folder: Path) -> None:
    subprocess.run([program(), *arguments], cwd=folder, check=True)


def program() -> str:
    return str(Path(sys.executable).with_name("conform"))


def in_a_terminal(command: list[str], folder: Path) -> str:
    """What a command prints to a terminal of this size, with its colours; the progress line is not kept."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    environment = {**os.environ, **size}
    started = subprocess.Popen(
        [program(), *command[1:]], cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    printed = bytearray()
    while started.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                printed += os.read(ours, 65536)
            except OSError:  # the terminal's other end is closed
                break
    os.close(ours)
    if started.wait() != 1:
        raise SystemExit(f"the run ended with {started.returncode}, and the wrong backend makes it 1")
    return re.sub(r"\r+\n", "\n", printed.decode("utf-8"))


def shortened(text: str) -> str:
    """The first lines and the last: the matrix begins, and what is wrong comes at the end."""
    lines = text.splitlines()
    return text if len(lines) <= FIRST + LAST else "\n".join([*lines[:FIRST], "  …", *lines[-LAST:]])


def picture_of(text: str) -> str:
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen.print(Text.from_ansi(text), soft_wrap=False)
    return screen.export_svg(title="conform run", code_format=SVG, unique_id="conform")


def photograph(page: Path, picture: Path) -> None:
    """The page in Chromium, as wide as a desktop."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise SystemExit("no Chromium: apt-get install chromium, or CHROMIUM=/path/to/it")
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        options += [f"--user-data-dir={profile}", "--hide-scrollbars", "--force-device-scale-factor=1"]
        options += ["--window-size=1200,1330", "--virtual-time-budget=4000", f"--screenshot={picture}"]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
