"""What the masks of a whole model hide at its outputs, as its reader found out."""

from typing import Literal

from encoder_conformance.protocol.arguments import MaskMeaning
from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen

ModelMaskEffect = Literal["hides", "attended", "pooled", "idle", "elsewhere", "refused"]


class ModelMask(Frozen):
    """One mask of a model, and what comes of flagging positions by it.

    `effect`: it `hides` what stands there from all others, and an item gives what it gives without these positions; or
    the item does not, so that something of them is still `attended` to; or it hides them from every other position, and
    not from `output` (`pooled`); or it is `idle`: no output is another; or it changes an
    output `elsewhere`, and what stands there still reaches it; or it is `refused` in every form that was tried.

    `output`: one of whole items, which alone shows that; "" where rows of other positions do. `form`: the one that
    tells, as text, and `meaning`: that of its numbers, where it hides. `where`: the line of source that reads it; ""
    where that is not known.
    """

    argument: str
    effect: ModelMaskEffect
    form: str = ""
    meaning: MaskMeaning | None = None
    output: str = ""
    where: Plain = ""


class ModelMasks(Frozen):
    """`masks`: those of a model, in the order of its arguments. `problem`: why none could be asked; "" where it has
    none."""

    framework: str
    masks: tuple[ModelMask, ...] = ()
    problem: Plain = ""
