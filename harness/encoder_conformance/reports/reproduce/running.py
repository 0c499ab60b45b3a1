"""Runs a script in the implementation's own interpreter, to see that it shows what it says."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready, passed_on
from encoder_conformance.judging.records import Record
from encoder_conformance.platform.clean import line
from encoder_conformance.platform.interrupts import ends_with_parent
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.sandbox import sandboxed_script


@dataclass(frozen=True)
class Ended:
    """`shows`: whether the script ended with what the run saw: a tensor that does not conform, or that exception."""

    shows: bool
    last_line: str


def run_script(script: Path, ready: Ready, record: Record, within: WorkerLimits) -> Ended:
    """Run it apart from this project: no variable, folder or module of this harness is handed on."""
    command: tuple[str, ...] = (ready.command[0], "-I", str(script.resolve()))
    environment = passed_on(os.environ)
    if within.isolate:
        inside = sandboxed_script(ready, script.resolve(), ("-I",), environment, within.memory)
        command, environment = inside.command, inside.environment
    limits = ready.implementation.timeouts
    seconds = limits.start + limits.build + limits.run
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                preexec_fn=ends_with_parent(),
            )
        except subprocess.TimeoutExpired:
            return Ended(False, f"it did not end within {seconds:g} s")
    printed, raised = (text.strip().splitlines()[-1:] for text in (ended.stdout, ended.stderr))
    if record.outcome is Outcome.FAIL:
        as_seen = any(text.startswith(f"{record.stage} does not conform") for text in printed)
    else:
        as_seen = any(text.partition(":")[0].split(".")[-1] in record.message for text in raised)
    shows = ended.returncode == 1 and as_seen
    last = (printed or raised or [f"exit status {ended.returncode}"])[0]
    return Ended(shows, line(last if shows or not raised else raised[0]))
