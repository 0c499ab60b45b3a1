"""Whether files are as they were: a verdict that is kept rests on that."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.commands.check import unchanged
from encoder_conformance.commands.check.unchanged import TooManyFiles, Unchanged, names_in, state_below, state_of

BESIDES = ("conform-report",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "model.py").write_text("x = 1")
    (tmp_path / "settings.txt").write_text("1e-5")
    return tmp_path


def _seen(folder: Path) -> Unchanged:
    file, absent = folder / "settings.txt", folder / "absent.txt"
    return Unchanged(
        files={file: state_of(file), absent: state_of(absent)},
        names={folder: names_in(folder, BESIDES)},
    )


def _swapped_for_one_as_old(folder: Path) -> None:
    model = folder / "package" / "model.py"
    before, other = model.stat(), folder / "package" / ".other"
    other.write_text("x = 2")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(model)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file's content": lambda folder: (folder / "settings.txt").write_text("1e-12"),
    "a file of the same size and age in its place": _swapped_for_one_as_old,
    "a file that was not there": lambda folder: (folder / "absent.txt").write_text(""),
    "a file that is gone": lambda folder: (folder / "settings.txt").unlink(),
    "another name in a folder": lambda folder: (folder / "torch.py").write_text(""),
    "another file further below": lambda folder: (folder / "package" / "weights.bin").write_bytes(b"1"),
}

FURTHER_BELOW = ("a file of the same size and age in its place", "another file further below")
"""Changes of what is at and below a folder, that none of its names and of the files beside them shows."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: str, folder: Path) -> None:
    seen, below = Unchanged.model_validate_json(_seen(folder).model_dump_json()), state_below(folder, BESIDES)
    assert seen.still(BESIDES)
    assert state_below(folder, BESIDES) == below
    CHANGES[change](folder)
    assert state_below(folder, BESIDES) != below
    assert seen.still(BESIDES) == (change in FURTHER_BELOW)


@pytest.mark.parametrize(
    "name", ["conform-report/check.json", "__pycache__/x.pyc", ".git/index", "env/lib/x.py", "train.log"]
)
def test_what_the_check_and_others_leave_below_a_folder_is_no_change(name: str, folder: Path) -> None:
    package = folder / "package"
    (package / "env").mkdir()
    (package / "env" / "pyvenv.cfg").write_text("")
    before = state_below(package, BESIDES)
    (package / name).parent.mkdir(parents=True, exist_ok=True)
    (package / name).write_text("")
    assert state_below(package, BESIDES) == before


def test_nobody_can_tell_of_a_folder_with_too_many_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_MOST", 0)
    with pytest.raises(TooManyFiles):
        state_below(folder, BESIDES)


def test_a_file_that_changed_while_it_was_read_is_told(folder: Path) -> None:
    seen = _seen(folder)
    changed = max(state[2] for state in seen.files.values() if state)
    assert seen.older_than(changed + 1)
    assert not seen.older_than(changed)
