"""`conform reproduce`: a failing case as a script that shows it where nothing of this project can be imported."""

from collections.abc import Callable
from pathlib import Path

import pytest
from alone import alone


@pytest.fixture
def wrong(filled: Callable[[str], Path]) -> Path:
    """A layer in NumPy, its folder as `conform new` makes it, whose norms have an epsilon of their own."""
    folder = filled("numpy")
    encoder = folder / "encoder.py"
    text = encoder.read_text()
    assert "epsilon" in text
    encoder.write_text(text.replace('layer["norm"]["epsilon"]', "1e-3"))
    assert encoder.read_text() != text
    return folder


@pytest.mark.release
def test_the_script_shows_the_failure_without_the_harness(conform: Callable, wrong: Path, tmp_path: Path) -> None:
    cases = ("--case", "pre-gelu/low-variance", "--case", "post-relu/sequence-first-padding", "--dtype", "float32")
    assert conform("run", "--impl", wrong, *cases).status == 1
    out = ("--out", tmp_path / "report")
    script = tmp_path / "shown.py"
    ended = conform("reproduce", "--impl", wrong, *out, "--to", script)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "It shows: output does not conform: rms" in ended.stdout
    text = script.read_text()
    assert "import encoder_conformance" not in text
    assert "from encoder_conformance" not in text
    assert "norm-eps-1e-3" in text, "and says what the run found out"
    shown = alone(script)
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert shown.stdout.startswith("output does not conform: rms"), shown.stderr
    right = script.read_text().replace("1e-3", 'layer["norm"]["epsilon"]')
    script.write_text(right)
    assert alone(script).stdout == "output conforms\n", "and a mended one is right"
    other = tmp_path / "other.py"
    named = ("post-relu/sequence-first-padding", "--impl", wrong, *out, "--to", other)
    assert "It shows: output does not conform" in conform("reproduce", *named).stdout
    assert alone(other).returncode == 1


@pytest.mark.release
def test_what_no_script_can_show_is_refused(conform: Callable, wrong: Path, honest: Path, tmp_path: Path) -> None:
    cases = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert conform("run", "--impl", wrong, "--impl", honest, *cases, diagnosed=False).status == 1
    out = ("--out", tmp_path / "report")
    there = tmp_path / "there.py"
    there.write_text("mine")
    for words, said in (
        (("--impl", honest), "no output, stage or gradient of honest failed"),
        (("post-relu/*", "--impl", wrong), "failed in post-relu/*"),
        (("--impl", "pytorch"), "'pytorch' is not in the report"),
        (("--impl", wrong, "--to", there), "is there already"),
    ):
        ended = conform("reproduce", *words, *out)
        assert (ended.status, said in ended.stderr) == (2, True), ended.stdout + ended.stderr
    assert there.read_text() == "mine"


@pytest.mark.release
def test_a_script_that_shows_nothing_is_not_said_to(conform: Callable, wrong: Path, tmp_path: Path) -> None:
    """The layer was mended after the run."""
    assert conform("run", "--impl", wrong, "--case", "pre-gelu/no-mask", "--dtype", "float32").status == 1
    encoder = wrong / "encoder.py"
    encoder.write_text(encoder.read_text().replace("1e-3", 'layer["norm"]["epsilon"]'))
    ended = conform("reproduce", "--impl", wrong, "--out", tmp_path / "report", "--to", tmp_path / "shown.py")
    assert ended.status == 1
    assert "It does not show the failure: output conforms" in ended.stdout
