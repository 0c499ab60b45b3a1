"""What a run prints: at any width and with many implementations, quiet and verbose, in a pipe and without colour."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from encoder_conformance.judging.records import Report, RunEnvironment
from encoder_conformance.reports.run.counts import Cell, RunCounts, Standing
from encoder_conformance.reports.run.matrix import matrix, summary
from encoder_conformance.spec.outcome import Outcome

CASE = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
WRONG = """
def build(self, layer, parameters, dtype):
    return super().build({**layer, "norm": {**layer["norm"], "epsilon": 1e-3}}, parameters, dtype)
"""


def digest(implementations: int) -> RunCounts:
    """Counts of a run of this many implementations, of which each seventh fails."""
    made = RunCounts([])
    for number in range(implementations):
        name = f"implementation_{number}"
        outcome = Outcome.FAIL if number % 7 == 3 else Outcome.PASS
        made.standings[name] = Standing(4, rms=0.57, max=3.2)
        made.standings[name].outcomes[outcome] = 4
        for case in ("pre-gelu/no-mask", "pre-gelu/mask-per-item-and-head-additive", "post-relu/causal"):
            for dtype in ("float32", "float64"):
                made.cells[case, name, dtype] = Cell(0, 1, outcome, 0.57)
    return made


def printed(implementations: int, width: int) -> list[str]:
    place = RunEnvironment(
        conform="", python="", platform="", processor="", cpus=1, jobs=1, threads_per_worker=1, device="cpu", seed=0,
        specification={},
    )  # fmt: skip
    report = Report(
        complete=True, started="", finished=None, arguments=(), environment=place, implementations=(), absent=(),
        records=(),
    )  # fmt: skip
    counts, screen = digest(implementations), Console(width=width, highlight=False, color_system=None)
    with screen.capture() as captured:
        screen.print(matrix(counts, width))
        screen.print(summary(report, counts, width))
    return captured.get().splitlines()


@pytest.mark.parametrize(("implementations", "width"), [(1, 80), (4, 80), (4, 160), (32, 80), (32, 160), (50, 80)])
def test_a_matrix_fits_its_width_and_loses_no_outcome(implementations: int, width: int) -> None:
    lines = printed(implementations, width)
    assert max(map(len, lines)) <= width
    [first] = [line for line in lines if line.startswith("   no-mask")]
    outcomes = 3 * (2 if "✓0.57  ✓0.57" in first else 1)  # of the cases, and of their dtypes where they are shown
    failing, shown = len(range(3, implementations, 7)), "".join(lines)
    assert shown.count("✗") == failing * outcomes
    assert shown.count("✓") == (implementations - failing) * outcomes
    assert not any("…" in line for line in lines), "nothing is cut off"
    text = re.sub(r"\s", "", "".join(lines))
    assert all(f"implementation_{number}" in text for number in range(implementations)) or implementations > 4


def test_what_is_wrong_comes_last_and_the_diagnosis_before_the_failures(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("wrong", WRONG, checks="[output]"), *CASE)
    lines = [line for line in ended.stdout.splitlines() if line.strip()]
    order = ("⇒ wrong", "✗ wrong", "In full: conform explain", "0 of 1 checks conform", "Report: ")
    places = [next(n for n, line in enumerate(lines) if line.startswith(start)) for start in order]
    assert places == sorted(places)
    assert places[-1] == len(lines) - 1
    assert places[0] > next(n for n, line in enumerate(lines) if line.startswith("All "))
    assert not re.search("\x1b|\r", ended.stdout + ended.stderr), "a pipe gets plain lines"


def test_the_last_line_says_up_to_where_it_was_asked_and_that_alone_where_all_held(
    conform: Callable, fake: Callable
) -> None:
    honest, wide = fake("honest"), fake("wide", dtypes="[float64]")
    case = "--case", "pre-gelu/no-mask"
    last = conform("run", "--impl", honest, *CASE, "--quiet").stdout.splitlines()[0]
    assert last.endswith(" checks conform, asked up to 10 positions and 2 items in float32")
    both = conform("run", "--impl", honest, "--impl", wide, *case, "--quiet").stdout.splitlines()[0]
    sizes = "up to 10 positions and 2 items in"
    assert both.endswith(f" (3 unsupported), asked honest {sizes} float64 and float32; wide {sizes} float64")
    wrong = conform("run", "--impl", fake("wrong", WRONG, checks="[output]"), *CASE, "--quiet").stdout
    assert "asked up to" not in wrong


@pytest.mark.release
def test_quiet_and_verbose(conform: Callable, fake: Callable) -> None:
    wrong = fake("wrong", WRONG, checks="[output]")
    quiet = conform("run", "--impl", wrong, *CASE, "--quiet").stdout.splitlines()
    assert [line.split(" ")[0] for line in quiet] == ["⇒", "✗", "In", "0", "Report:"]
    verbose = conform("run", "--impl", wrong, *CASE, "--verbose", diagnosed=False).stdout.splitlines()
    assert any(line.startswith("✗ wrong pre-gelu/no-mask float32 output: fail, rms ") for line in verbose)
    assert any("case, rms σ" in line for line in verbose)
    both = conform("run", "--impl", wrong, *CASE, "--verbose", "--quiet")
    assert (both.status, "are given together" in both.stderr) == (2, True)


@pytest.mark.release
@pytest.mark.linux
def test_no_color_is_obeyed_on_a_terminal(fake: Callable, tmp_path: Path) -> None:
    """And without it there is colour; a terminal is told how much is done and how long it takes."""
    words = [Path(sys.executable).with_name("conform"), "run", "--impl", fake("wrong", WRONG, checks="[output]"), *CASE]
    texts = []
    for changes in ({"NO_COLOR": "1"}, {}):
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        status, text = _on_a_terminal([*words, "--out", out], changes)
        assert status == 1
        texts.append(text)
    colour = re.compile("\x1b\\[[0-9;]*3[0-7]m")
    assert not colour.search(texts[0])
    assert colour.search(texts[1])
    assert "left:" in texts[1]


@pytest.mark.linux
def test_an_error_is_broken_between_words_on_a_terminal() -> None:
    words = [Path(sys.executable).with_name("conform"), "run", "--impl", "no_such_implementation_as_this_one"]
    status, text = _on_a_terminal(words, {})
    assert status == 2
    lines = text.splitlines()
    assert lines[0].startswith("conform: --impl: no implementation 'no_such_implementation_as_this_one'")
    assert max(map(len, lines)) <= 80
    said = subprocess.run(words, capture_output=True, text=True, check=False).stderr
    assert text.split() == said.split()
    assert len(said.splitlines()) < len(lines)


def _on_a_terminal(words: list[object], changes: dict[str, str]) -> tuple[int, str]:
    """The exit status of a command, and what a terminal of 80 columns shows."""
    master, slave = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = {**kept, "TERM": "xterm-256color", "COLUMNS": "80", **changes}
    process = subprocess.Popen(list(map(str, words)), stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    text = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                text += os.read(master, 1 << 16)
            except OSError:  # how the end is told where the last writer has gone
                break
    os.close(master)
    return process.wait(60), text.decode(errors="replace")
