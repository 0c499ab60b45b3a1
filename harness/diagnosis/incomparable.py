"""What is said of answers of another shape or dtype, whose numbers say nothing."""

from collections.abc import Sequence

from encoder_conformance.diagnosis.evidence import Evidence


def incomparable(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """A sentence, of the first such answer and of how many cases more; () where there is none."""
    unlike = [(piece, stage) for piece in evidence for stage in piece.stages if stage in piece.observation.unlike]
    if not unlike:
        return ()
    piece, stage = unlike[0]
    count = len({each.case.id for each, _ in unlike})
    others = f" and {count - 1} more" if count > 1 else ""
    shape = piece.observation.unlike[stage]
    if shape is None:
        return (f"{stage} is not in {piece.dtype.name} in {piece.case.id}{others}.",)
    due = list(piece.observation.expected.tensors[stage].shape)
    return (f"{stage} has the shape {list(shape)}, and not {due}, in {piece.case.id}{others}.",)
