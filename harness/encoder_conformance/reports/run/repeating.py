"""The command that repeats a part of a run."""

import shlex
from pathlib import Path

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.judging.records import Report


def repeat_command(report: Report, implementation: str, case: str, dtype: str) -> str:
    """The command that asks for a case again: the run's arguments, narrowed to this implementation, case and dtype.

    It always names the number of threads, since an implementation that runs alone would get more by default.
    """
    if report.arguments[:1] not in (("run",), ("versions",)):  # `judge` and `check` have all in their own arguments
        return shlex.join(["conform", *report.arguments])
    command = [
        "conform",
        "run",
        "--impl",
        _implementation_argument(report, implementation),
        "--case",
        case,
        "--dtype",
        dtype,
    ]
    arguments = report.arguments
    if report.arguments[0] == "versions":  # the environment was this version's own
        interpreter = next(each.command[0] for each in report.implementations if each.name == implementation)
        command += ["--python", f"{implementation.partition(':')[0]}={interpreter}"]
    for option in ("--layer", "--device", "--python"):
        command += [word for i, word in enumerate(arguments) if word == option or (i and arguments[i - 1] == option)]
    if report.environment.seed:
        command += ["--seed", str(report.environment.seed)]
    return shlex.join([*command, "--threads", str(report.environment.threads_per_worker)])


def reproduce_command(report: Report, implementation: str, case: str, dtype: str | None) -> str:
    """The command that writes a failing case as a script of the framework alone. `case` may be a pattern."""
    command = ["conform", "reproduce", case, "--impl", _implementation_argument(report, implementation)]
    return shlex.join([*command, *(["--dtype", dtype] if dtype else [])])


def _implementation_argument(report: Report, implementation: str) -> str:
    """The implementation as in the run's arguments: a path, if its folder is outside the project's own."""
    name, colon, choices = implementation.partition(":")
    for argument in report.arguments:
        folder, _ = parse_variant(argument)
        if Path(folder).name == name and "/" in folder:
            return folder + colon + choices
    return implementation
