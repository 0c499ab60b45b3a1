"""What no verdict of a check covers, by the module: masks in other forms, the way back, dropout, configurations."""

from collections.abc import Iterator

from encoder_conformance.commands.check.results import PartResult
from encoder_conformance.protocol.arguments import MaskArgument
from encoder_conformance.protocol.way_back import WayBackQuestion
from encoder_conformance.spec.words import listed

_OF_DROPOUT: tuple[WayBackQuestion, ...] = "dropout", "dropout-compiled"
_NEVER = "another configuration than the one it was made in", "initialisation"


def not_asked(part: PartResult) -> Iterator[str]:
    """Each in a few words."""
    for name in part.without:
        yield f"with {name}"
    for mask in part.described.masks:
        yield from _other_forms(mask)
    if any("positions of all items" in said for said in part.described.called):
        yield "packed rows of unequal lengths"
    lengths = part.described.lengths
    if lengths and lengths == tuple(range(1, len(lengths) + 1)):
        yield f"more than {len(lengths)} positions, which what it was given has no numbers for"
    elif lengths:
        step = lengths[0]
        whole = len(lengths) > 1 and all(length % step == 0 for length in lengths)
        taken = f"multiples of {step}" if whole and step > 1 else listed([*map(str, lengths)])
        yield f"other numbers of positions than {taken}, of 1 to 65 the only ones that it takes"
    back = [each.dtype for each in part.asked if "gradients" not in each.checks]
    if back:
        yield f"gradients in {listed(back)}"
    for answer in part.way_back:
        if answer.outcome == "not-asked" and answer.message and answer.name not in _OF_DROPOUT:
            yield f"{answer.name.replace('-', ' ')}"
    if drops_unasked(part):
        yield "the distribution of dropout"
    yield from _NEVER


def drops_unasked(part: PartResult) -> bool:
    """Whether the code that was given, compiled or not, or its own inside, was not asked what it drops."""
    asked = {answer.name for answer in part.way_back if answer.outcome != "not-asked"}
    return not asked.issuperset(_OF_DROPOUT if part.described.wrappers else _OF_DROPOUT[:1])


def _other_forms(mask: MaskArgument) -> Iterator[str]:
    """Forms that it takes and means something by, and was asked about one key alone."""
    forms = [form.text for form in mask.forms if form.meanings and (form.dtype, form.axes) != (mask.dtype, mask.axes)]
    if forms:
        yield f"{mask.argument} as {listed(forms)}, but for one hidden key"
