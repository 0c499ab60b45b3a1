"""Selects the implementations that a run judges, of those that can be started here, and the runs that it builds on."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from encoder_conformance.commands.options import warn_of_left_out
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.implementation.declared import check_declared
from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import Device, default_implementations, find_implementation
from encoder_conformance.platform.errors import InputError, nearest

if TYPE_CHECKING:  # workers of a run start before what judges their answers is imported
    from encoder_conformance.judging.records import Report
    from encoder_conformance.reports.merge.partition import Seconds


def chosen_implementations(
    requested: tuple[str, ...], pythons: dict[str, str], device: Device
) -> tuple[list[Ready], list[Missing]]:
    """The implementations that can be started, and those that cannot. Raises InputError if a requested one cannot."""
    warn_of_left_out()
    chosen = [find_implementation(name) for name in dict.fromkeys(requested)] or default_implementations()
    names = [implementation.name for _, implementation in chosen]
    folder_names = [implementation.folder_name for _, implementation in chosen]
    for name in names:
        if names.count(name) > 1:
            hint = "rename one's folder and key"
            raise InputError(f"two implementations are called {name}", where="--impl", hint=hint)
    for name in pythons:
        if name not in folder_names:
            raise InputError(f"names {name!r}, which is not judged", where="--python", hint=nearest(name, folder_names))
    ready, absent = [], []
    for folder, implementation in chosen:
        check_declared(implementation, folder)
        interpreter, devices = resolve(implementation, folder, pythons), implementation.capabilities.devices
        if isinstance(interpreter, Ready) and device not in devices:
            reason = f"runs on {', '.join(devices)}, not on {device}"
            interpreter = Missing(implementation, reason, f"--device {devices[0]}")
        if isinstance(interpreter, Ready):
            ready.append(interpreter)
        elif requested:
            raise InputError(f"{implementation.name}: {interpreter.reason}", where="--impl", hint=interpreter.hint)
        else:
            absent.append(interpreter)
    if not ready:
        reasons = "; ".join(f"{missing.implementation.name}: {missing.reason}" for missing in absent)
        hint = "pip install 'encoder-conformance[all]'"
        raise InputError(f"no implementation can be started here ({reasons})", hint=hint)
    return ready, absent


@dataclass(frozen=True)
class EarlierRuns:
    """`interrupted`: a run that is to be completed. `seconds`: those that a run took, which make parts equal."""

    interrupted: "Report | None" = None
    seconds: "Seconds" = field(default_factory=dict)


def earlier_runs(arguments: RunArguments) -> EarlierRuns:
    """Read those of --resume and --balanced-by. Raises InputError if the run to complete is in --out, which the new one
    overwrites."""
    earlier, out, balanced_by = arguments.earlier, arguments.out, arguments.balanced_by
    if not (earlier or balanced_by):
        return EarlierRuns()
    from encoder_conformance.reports.merge.partition import recorded_seconds
    from encoder_conformance.reports.run.reading import read_report

    seconds = recorded_seconds(read_report(balanced_by).records) if balanced_by else {}
    if earlier is None:
        return EarlierRuns(None, seconds)
    if out and out.exists() and earlier.exists() and (out.samefile(earlier) or out.samefile(earlier.parent)):
        raise InputError("is the folder of the new run too", where=f"--resume {earlier}", hint="give --out another one")
    return EarlierRuns(read_report(earlier), seconds)
