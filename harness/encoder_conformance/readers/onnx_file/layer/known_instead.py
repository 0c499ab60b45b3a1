"""What is known by a name where a step of the plan is not found, or an operation is read beside another."""

from collections.abc import Iterable

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Context,
    Gate,
    Linear,
    Operation,
    RowMap,
    Sum,
    TracedInput,
    TracedNorm,
    Weighed,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.plan import Step


def body(side: Operation) -> Operation:
    """The operation of a sub-layer that is more than norms and maps."""
    while isinstance(side, TracedNorm | Linear | RowMap | Weighed):
        side = side.of.operation
    return side


def beside(known: Operation, operation: Operation) -> Feature | None:
    """What it is where a sub-layer reads what another has as well, and not the sum of that: the other is attention, or
    one more of the same, or attention is what it reads; None where it is something else."""
    added = known.of.operation if isinstance(known, TracedNorm) else known
    if isinstance(added, Sum) and operation in added.sides and isinstance(body(operation), Context):
        return "of_a_branch"
    if not isinstance(known, Sum) or operation not in known.sides:
        return None
    others = [side for side in known.sides if side is not operation]
    return "parallel" if any(isinstance(body(side), Context) for side in others) else "sums"


def instead(found: Operation, step: Step, sums: Iterable[Sum]) -> Feature | None:
    """What is known by a name where a step is missing. Where the first sum is, a feed-forward network was found behind
    it. `sums`: those found already."""
    if step.makes == "residual1" and any(map(_is_side_by_side_alone, sums)):
        return "parallel"
    of_network = step.form == "activation" or (step.form == "sum" and step.makes != "residual1")
    if of_network and isinstance(found if step.form == "activation" else body(found), Context):
        return "attention_alone"
    if step.form == "activation" and isinstance(found, Sum) and any(isinstance(body(s), Context) for s in found.sides):
        return "one_map"
    if step.form == "sum" and _is_of_x(found):
        return "network_alone"
    if step.form == "linear" and isinstance(found, Context):
        return "unmapped"
    if step.form == "projection" and isinstance(found, TracedInput):
        return "no_projection"
    if step.form == "linear" and isinstance(found, TracedInput):
        return "sums"  # x is added to a sum that is there already
    if isinstance(found, Activation) and isinstance(found.of.operation, Linear):
        return "activated"
    if isinstance(found, Sum) and _mapped(found.sides[0]) is _mapped(found.sides[1]) is not None:
        return "second_map"
    return "parallel" if is_side_by_side(found) else None


def _mapped(side: Operation) -> Operation | None:
    """What one linear map or several in a row read; None of what is no map."""
    made = side
    while isinstance(made, Linear | RowMap | Weighed):
        made = made.of.operation
    return None if made is side else made


def is_side_by_side(found: Operation) -> bool:
    """Whether it is the sum of what attention gives and what a feed-forward network makes of something else: an adapter
    is a network behind attention, with a sum around it."""
    bodies = [body(side) for side in found.sides] if isinstance(found, Sum) else []
    behind = any(isinstance(each, Activation) and isinstance(body(each.of.operation), Context) for each in bodies)
    return not behind and all(any(isinstance(each, kind) for each in bodies) for kind in (Context, Activation | Gate))


def side_by_side(total: Sum) -> tuple[Operation, Operation, Operation] | None:
    """What skips, what attention gives, and what a feed-forward network makes of something else, where a sum is of
    these three in any order (E-41); None where it is not."""
    one, other = total.sides
    for inner, beside in ((one, other), (other, one)):
        terms = [*inner.sides, beside] if isinstance(inner, Sum) else []
        given = [term for term in terms if isinstance(body(term), Context)]
        made = [term for term in terms if isinstance(body(term), Activation | Gate)]
        if len(given) == len(made) == 1 and not _reads(made[0], body(given[0])):
            [skip] = (term for term in terms if term not in (*given, *made))
            return skip, given[0], made[0]
    return None


def _is_side_by_side_alone(total: Sum) -> bool:
    """Whether nothing skips either of the two, and the network reads nothing of what attention gives."""
    networks = [side for side in total.sides if not isinstance(body(side), Context)]
    return is_side_by_side(total) and not any(map(_is_of_attention, networks))


def _is_of_x(found: Operation) -> bool:
    """Whether norms, maps, activations and products of two stand alone between it and x."""
    made = body(found)
    if isinstance(made, Gate):
        return all(_is_of_x(view.operation) for view, _ in made.sides)
    return isinstance(made, TracedInput) or (isinstance(made, Activation) and _is_of_x(made.of.operation))


def skips_attention(last: Operation) -> bool:
    """Whether a layer's last sum is of x and of what a network makes of attention's."""
    total = last.of.operation if isinstance(last, TracedNorm) else last
    sides = total.sides if isinstance(total, Sum) else ()
    return any(isinstance(side, TracedInput) for side in sides) and any(map(_is_of_attention, sides))


def adds_attention_alone(last: Operation) -> Sum | None:
    """A layer's last sum, where it is of what attention gives and of what a network makes of the first sum; None where
    it is not."""
    total = last.of.operation if isinstance(last, TracedNorm) else last
    sides = total.sides if isinstance(total, Sum) else ()
    given = [side for side in sides if isinstance(body(side), Context)]
    made = [side for side in sides if side not in given and _is_of_a_sum(side)]
    return total if isinstance(total, Sum) and given and made else None


def _is_of_a_sum(operation: Operation) -> bool:
    """Whether a network makes it of a sum with what attention gives."""
    made = body(operation)
    if isinstance(made, Gate):
        return any(_is_of_a_sum(view.operation) for view, _ in made.sides)
    if isinstance(made, Activation):
        return _is_of_a_sum(made.of.operation)
    return isinstance(made, Sum) and any(map(_is_of_attention, made.sides))


def _reads(operation: Operation, attention: Operation) -> bool:
    """Whether it is made of what this very attention gives, and not that of a layer before."""
    made = body(operation)
    if isinstance(made, Sum):
        return any(_reads(side, attention) for side in made.sides)
    if isinstance(made, Gate):
        return any(_reads(view.operation, attention) for view, _ in made.sides)
    return made is attention or (isinstance(made, Activation) and _reads(made.of.operation, attention))


def _is_of_attention(operation: Operation) -> bool:
    made = body(operation)
    if isinstance(made, Sum):
        return any(map(_is_of_attention, made.sides))
    if isinstance(made, Gate):
        return any(_is_of_attention(view.operation) for view, _ in made.sides)
    return isinstance(made, Context) or (isinstance(made, Activation) and _is_of_attention(made.of.operation))
