"""A command that another user starts, where root is here."""

import os
import shutil
import subprocess
import sys

UID = 65534
_SAME = "import encoder_conformance, sys; print(sys.version, sys.prefix, sys.base_prefix)"


def as_other_user() -> list[str]:
    """What goes before a command that nobody (uid 65534) is to start."""
    return ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]


def why_not() -> str:
    """Why a program cannot be started as another user; "" where it can, and this interpreter be read."""
    if os.getuid() or not shutil.which("setpriv"):
        return "only root, with setpriv, starts a program as another user"
    own, other = ([*before, sys.executable, "-c", _SAME] for before in ([], as_other_user()))
    said = [subprocess.run(each, cwd="/", capture_output=True, check=False).stdout for each in (own, other)]
    return "" if said[0] == said[1] else "another user cannot read this environment, or its Python"
