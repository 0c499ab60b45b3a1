"""Writes docs/systems.md anew: `PYTHONPATH=tests python -m systems_page`."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systems_page.answers import answers
from systems_page.lines import every_line
from systems_page.page import PAGE, page


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str
    report: dict[str, Any]


def conform(*words: str) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", folder] if words[0] == "run" else []
        program = [sys.executable, "-m", "encoder_conformance.commands.main", *words, *out]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False, cwd=folder)
        report = json.loads(Path(folder, "report.json").read_text(encoding="utf-8")) if out else {}
    return Ended(ended.returncode, ended.stdout, ended.stderr, report)


PAGE.write_text(page(answers(every_line(), conform)), encoding="utf-8")
