"""`conform run --resume` and `--balanced-by`: what earlier runs have judged, and how long it took."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.platform.errors import InputError

if TYPE_CHECKING:  # workers of a run start before what judges their answers is imported
    from encoder_conformance.judging.records import Report
    from encoder_conformance.reports.merge.partition import Seconds


@dataclass(frozen=True)
class EarlierRuns:
    """`interrupted`: a run that is to be completed. `seconds`: those that a run took, which make parts equal."""

    interrupted: "Report | None" = None
    seconds: "Seconds" = field(default_factory=dict)


def earlier_runs(arguments: RunArguments) -> EarlierRuns:
    """Read them. Raises InputError if the run to complete is in --out, which the new one overwrites."""
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
