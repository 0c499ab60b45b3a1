"""What no verdict of a check covers, by the module: masks in other forms, the way back, dropout, configurations."""

from collections.abc import Iterator

from encoder_conformance.commands.check.results import NotAsked, PartResult, UnaskedKind
from encoder_conformance.protocol.arguments import PACKED, PACKED_IN_ONE, MaskArgument
from encoder_conformance.protocol.way_back import WayBackQuestion
from encoder_conformance.spec.words import listed

_OF_DROPOUT: tuple[WayBackQuestion, ...] = "dropout", "dropout-compiled"


def not_asked(part: PartResult) -> Iterator[NotAsked]:
    for name in part.without:
        yield _not_asked("argument", f"with {name}", argument=name)
    for mask in part.described.masks:
        yield from _other_forms(mask)
    if part.described.x.layout in (PACKED, PACKED_IN_ONE):
        yield _not_asked("packed-rows", "packed rows of unequal lengths")
    yield from _other_lengths(part.described.lengths)
    if not part.described.stages:
        yield _not_asked("stages", "stages, for no submodule shows one")
    elif part.described.padding_moves_rows:
        said = "stages where padding is hidden, for its submodules see other rows then, or rows in another order"
        yield _not_asked("padded-stages", said)
    back = [each.dtype for each in part.asked if "gradients" not in each.checks]
    if back:
        yield _not_asked("gradients", f"gradients in {listed(back)}", formats=back)
    for answer in part.way_back:
        if answer.outcome == "not-asked" and answer.message and answer.name not in _OF_DROPOUT:
            yield _not_asked("way-back", answer.name.replace("-", " "), question=answer.name)
    if drops_unasked(part):
        yield _not_asked("dropout", "the distribution of dropout")
    yield _not_asked("other-configuration", "another configuration than the one it was made in")
    yield _not_asked("initialisation", "initialisation")


def _other_lengths(lengths: tuple[int, ...]) -> Iterator[NotAsked]:
    """`lengths`: the numbers of positions, up to 65, that it takes; (): any."""
    if lengths and lengths == tuple(range(1, len(lengths) + 1)):
        said = f"more than {len(lengths)} positions, which it does not take as it was called"
        yield _not_asked("positions-beyond", said, most=len(lengths))
    elif len(lengths) > 1 and lengths == tuple(range(lengths[0], lengths[-1] + 1)):
        said = f"fewer than {lengths[0]} positions, which it refuses itself"
        yield _not_asked("other-positions", said, least=lengths[0])
    elif lengths:
        step = lengths[0]
        whole = len(lengths) > 1 and all(length % step == 0 for length in lengths)
        taken = f"multiples of {step}" if whole and step > 1 else listed([*map(str, lengths)])
        said = f"other numbers of positions than {taken}, of 1 to 65 the only ones that it takes"
        yield _not_asked("other-positions", said, taken=lengths)


def drops_unasked(part: PartResult) -> bool:
    """Whether the code that was given, compiled or not, or its own inside, was not asked what it drops."""
    asked = {answer.name for answer in part.way_back if answer.outcome != "not-asked"}
    return not asked.issuperset(_OF_DROPOUT if part.described.wrappers else _OF_DROPOUT[:1])


def _other_forms(mask: MaskArgument) -> Iterator[NotAsked]:
    """Forms that it takes and means something by, and was asked about one key alone."""
    forms = [form.text for form in mask.forms if form.meanings and (form.dtype, form.axes) != (mask.dtype, mask.axes)]
    if forms:
        said = f"{mask.argument} as {listed(forms)}, but for one hidden key"
        yield _not_asked("mask-form", said, argument=mask.argument, forms=forms)


def _not_asked(kind: UnaskedKind, said: str, **about: object) -> NotAsked:
    return NotAsked(kind=kind, said=said, about=about)
