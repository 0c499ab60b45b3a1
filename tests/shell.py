"""`conform` as a shell starts it, with what a shell can do to it."""

import os
import subprocess
import sys
from pathlib import Path

START = [sys.executable, "-c", "from encoder_conformance.commands.program import main; main()"]


def in_a_shell(shell: str, *words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`conform` as `shell` starts it, where "$@" is its command."""
    program = ["bash", "-c", shell, "bash", *START, *map(str, words)]
    told = {"cwd": cwd, "capture_output": True, "text": True, "timeout": 120, "check": False}
    return subprocess.run(program, env={**os.environ, **variables}, **told)
