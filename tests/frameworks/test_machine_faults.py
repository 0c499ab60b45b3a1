"""What the machine lacks, as in tests/process/faults/test_machine.py, of commands that judge no adapter: the verdict is
written, nobody is accused, and the screen gets what it can show."""

import json
import os
import subprocess
from pathlib import Path

import judged
import pytest

FEW = "only 64 files may be open at once here, and a worker needs 256"
FAULTS = {
    "streams-closed": ('"$@" <&- >&- 2>&-', 0, ""),
    "two-streams-closed": ('"$@" <&- 2>&-', 0, ""),
    "reader-gone": ('"$@" | true; exit ${PIPESTATUS[0]}', 0, ""),
    "no-unicode": ('PYTHONIOENCODING=cp1252 "$@"', 0, ""),
    "ascii": ('PYTHONIOENCODING=ascii LC_ALL=C "$@" --json', 0, ""),
    "few-descriptors": ('ulimit -n 64; "$@"', 3, FEW),
    "no-working-directory": ('mkdir gone; cd gone; rmdir ../gone; "$@"', 0, ""),
    "output-full": ('"$@" > /dev/full', 3, "No space left on device"),
}

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged.make(tmp_path_factory.mktemp("place"))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", judged.COMMANDS)
def test_the_machine_s_fault_is_no_verdict(place: Path, tmp_path: Path, command: str, fault: str) -> None:
    shell, status, said = FAULTS[fault]
    told = judged.words(command, tmp_path / "out", place)
    program = ["bash", "-c", shell, "bash", str(judged.CONFORM), *told]
    told_so = {"encoding": "cp1252" if fault == "no-unicode" else "utf-8"}
    ended = subprocess.run(
        program, cwd=tmp_path, env=dict(os.environ), capture_output=True, timeout=600, check=False, **told_so
    )
    assert (ended.returncode, said in ended.stderr) == (status, True), ended.stderr
    assert "Traceback" not in ended.stderr
    written = tmp_path / "out" / judged.VERDICTS[command]
    assert written.exists() == (fault != "few-descriptors")
    if written.exists():
        assert '"severity": "error"' not in json.dumps(json.loads(written.read_text()))
    if fault == "ascii":
        assert ended.stdout.isascii()
        json.loads(ended.stdout)
