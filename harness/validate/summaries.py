"""What each stage came to, in a few words: what was seen there, whether or not anything is wrong with it."""

from collections.abc import Mapping, Sequence

from encoder_conformance.judge.tally import Tally
from encoder_conformance.spec.case import Case
from encoder_conformance.validate.findings import Description, Stage
from encoder_conformance.validate.rows import Row

_MEANS = {"attend": "true = attend", "ignore": "true = ignore", "additive": "added to the scores"}
_OPERATORS_SHOWN = 4


def of_description(description: Description) -> dict[Stage, str]:
    """Of the stages that looking into the file went through."""
    said: dict[Stage, str] = {}
    if description.file is None:
        return said
    said["file"] = size(description)
    if not any(finding.stage == "checker" for finding in description.findings):
        said["checker"] = "valid, and its shapes follow from its inputs"
    said["operators"] = _operators(description)
    if description.roles is not None:
        said["interface"] = _interface(description)
        said["dimensions"] = _dimensions(description)
    if description.layer is not None:
        found = f"{len(description.parameters)} parameters and {len(description.stages)} stages found in the graph"
        proved = next((fact.evidence for fact in description.facts if fact.key == "proved" and fact.value), "")
        said["layer"] = found + (f", proved by a run ({proved})" if proved else "")
    return said


def of_answers(stages: Mapping[Stage, Sequence[Case]], rows: Sequence[Row]) -> dict[Stage, str]:
    """Of the stages that the runtimes' answers belong to."""
    said: dict[Stage, str] = {}
    for stage, cases in stages.items():
        ids = {case.id for case in cases}
        records = [record for row in rows for record in row.records if record.case in ids]
        tally = Tally.of(record.outcome for record in records)
        rms = max((record.rms for record in records if record.rms is not None), default=None)
        if tally.applicable:
            size = f", largest rms {rms:.2g} σ" if rms is not None else ""
            said[stage] = f"{tally.as_expected} of {tally.applicable} checks{size}"
    asked_of = [row for row in rows if row.records]
    said["loads"] = f"{len([row for row in asked_of if not row.lost])} of {len(asked_of)} runtimes and levels"
    return said


def of_cost(description: Description, seconds: Mapping[str, Sequence[float]]) -> str:
    """`seconds` by runtime: the median answer at each level."""
    times = [f"{runtime} {_range([s * 1e3 for s in taken])} ms" for runtime, taken in seconds.items() if taken]
    return ", ".join([size(description), f"{description.nodes} nodes", *times])


def size(description: Description) -> str:
    assert description.file is not None
    facts = description.file
    held = f"{facts.bytes / 2**20:.2f} MiB" if facts.bytes >= 2**17 else f"{facts.bytes / 2**10:.1f} KiB"
    if not facts.external:
        return held
    where = facts.external[0] if len(facts.external) == 1 else f"{len(facts.external)} files"
    return f"{held}, and its data beside it in {where}"


def _range(values: Sequence[float]) -> str:
    least, most = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def _operators(description: Description) -> str:
    assert description.file is not None
    opsets = ", ".join(
        f"{'' if domain in ('', 'ai.onnx') else domain + ' '}{version}"
        for domain, version in description.file.opsets.items()
    )
    most = sorted(description.operators.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{count} {name}" for name, count in most[:_OPERATORS_SHOWN])
    return f"opset {opsets}; {description.nodes} nodes of {len(most)} types, {shown}" + (
        " …" if len(most) > _OPERATORS_SHOWN else ""
    )


def _interface(description: Description) -> str:
    assert description.roles is not None
    roles = description.roles
    declared = {value.name: value for value in (*description.inputs, *description.outputs)}
    masks = [
        f"mask {mask.name!r} {_shape(declared[mask.name].shape)} ({_MEANS[mask.meaning]})"
        for mask in roles.masks
        if mask.meaning
    ]
    x, output = declared[roles.x], declared[roles.output]
    said = [f"x {x.name!r} {x.dtype}", *(masks or ["no mask"]), f"output {output.name!r} {output.dtype}"]
    return ", ".join(said)


def _shape(shape: tuple[int | str | None, ...] | None) -> str:
    return "of any rank" if shape is None else f"[{', '.join('?' if n is None else str(n) for n in shape)}]"


def _dimensions(description: Description) -> str:
    batch, sequence = description.sizes()
    x = next(value for value in description.inputs if description.roles and value.name == description.roles.x)
    fixed = [f"{what} fixed to {n}" for what, n in (("batch", batch), ("sequence", sequence)) if n is not None]
    free = [what for what, n in (("batch", batch), ("sequence", sequence)) if n is None]
    said = [*fixed, *([f"{' and '.join(free)} declared free"] if free else [])]
    return f"{', '.join(said)}; x {_shape(x.shape)}"
