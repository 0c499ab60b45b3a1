"""Prints how two modules compare whose layer nobody knows."""

from rich.console import Console

from encoder_conformance.commands.diff.results import OutputDifference, WholeDiffResult
from encoder_conformance.reports.run.terminal import show_finding, show_line

_SHOWN = 4


def show_whole(screen: Console, result: WholeDiffResult) -> None:
    for mark, side in zip("AB", result.sides, strict=True):
        show_line(screen, f"{mark}  {side}, with its own parameters")
    for why in result.unread:
        show_line(screen, f"no layer was read: {why}", "dim")
    far = sorted(result.differing, key=lambda each: -(float("inf") if each.rms is None else each.rms))
    for each in far[:_SHOWN]:
        show_line(screen, f"✗ {each.case}, {each.output}: {_how(each)}", "red")
    if len(far) > _SHOWN:
        show_line(screen, f"  and {len(far) - _SHOWN} more", "dim")
    for finding in result.findings:
        show_finding(screen, finding)
    show_line(screen, last_line(result), "bold red" if result.status else "bold green")


def _how(each: OutputDifference) -> str:
    return each.problem or f"rms {each.rms:.3g} σ"


def last_line(result: WholeDiffResult) -> str:
    if result.status == 2:
        return "Nothing could be compared: see above."
    count = f"{len(result.cases)} case{'s' * (len(result.cases) != 1)}"
    masks = f"with {', '.join(result.masks)} and without" if result.masks else "without masks"
    asked = f"{', '.join(result.outputs) or 'no output'} in {count}, {masks}, forward alone, in float32"
    if result.differing:
        apart = {each.case for each in result.differing}
        same = [case for case in result.cases if case not in apart]
        where = f"; the same in {', '.join(same[:_SHOWN])}" if same else ": other parameters, or another computation"
        return f"Their outputs differ in {len(apart)} of {count}{where}"
    if result.status:
        return "Their outputs agree where both answer alike, and not all is the same: see above"
    largest = max(each.rms or 0.0 for each in result.apart)
    return f"Their outputs agree within {largest:.2f} σ: {asked}. No layer was read, so neither is known to be right"
