"""Runs a script where nothing of this project can be imported."""

import os
import subprocess
import sys
from pathlib import Path

_BARRED = ("encoder_conformance", "harness", "impls")
_PROGRAM = """
import runpy, sys
class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {barred!r}:
            raise ImportError(f"{{name}} is the harness's")
sys.meta_path.insert(0, Barred())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def alone(script: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-c", _PROGRAM.format(barred=_BARRED), str(script)]
    told = {"cwd": script.parent, "env": environment, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, check=False, **told)
