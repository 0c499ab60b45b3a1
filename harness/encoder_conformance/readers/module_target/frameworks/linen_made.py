"""Makes the variables of a Linen module that nobody has called yet: by a call with an x, or with ids, as it takes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from encoder_conformance.readers.module_target.argument_names import WIDTH, feed_forward_last
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.bundles import ReadOf, unpacked
from encoder_conformance.readers.module_target.calling import refuse_uncalled, signature_of
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames, mending, places_of
from encoder_conformance.readers.module_target.frameworks.jax_tree import ARRAYS
from encoder_conformance.readers.module_target.furthest import Reached
from encoder_conformance.readers.module_target.lengths import LENGTHS, lengths_said
from encoder_conformance.readers.module_target.live import USUAL_WIDTHS, Signature
from encoder_conformance.readers.module_target.of_ids import of_ids
from encoder_conformance.readers.module_target.probing import AS_MUCH, to_be_said
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.module_target.ways_to_call import ways_to_call
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE

_MOST_WAYS = 60
"""Ways to call a module that are tried to make its variables."""
_MOST_LONG = 2
"""Those that are tried at each other length."""
_OF_SEQUENCE = re.compile(rf"\b{SEQUENCE}\b")
"""What stands in a problem that is about the number of positions."""
_OTHERWISE_MADE = "name a pair of the module and its variables, or a function that makes one"


class _Problem(NamedTuple):
    """What a call raised, and how far it came."""

    reached: Reached
    said: str
    mend: str = ""
    gives_another: bool = False
    """Whether it came to its end, and gave another shape than that of x."""


def call_of(module: nn.Module) -> Signature:
    refuse_uncalled(module)
    return signature_of(module.__call__, f"{type(module).__name__}.__call__")


def initialised(module: nn.Module, signature: Signature) -> Mapping[str, Any]:
    """Its variables, for the first width that it takes and gives, called in the first way that it takes: with its
    masks, too, where it does not do without. x has another number of positions where what it raises for 5 is about
    them. Raises BadTarget, with what is raised where it comes furthest."""
    problems: list[_Problem] = []
    lengths = dict.fromkeys((*lengths_said(modules_in(module)), *LENGTHS))
    for length, most in ((SEQUENCE, _MOST_WAYS), *((each, _MOST_LONG) for each in lengths)):
        if length != SEQUENCE and not any(_OF_SEQUENCE.search(each.said) for each in problems):
            break
        if (variables := _variables_of(module, signature, length, most, problems)) is not None:
            return variables
        bundled = _bundled(module, signature) if length == SEQUENCE else None
        if bundled and (variables := _variables_of(module, bundled, length, most, problems)) is not None:
            return variables
    if variables_of_ids(module, signature) is not None:
        raise of_ids(signature.x)
    best = problems[0] if problems else _Problem(Reached(), "it has none")
    for each in problems:
        best = each if each.reached.is_beyond(best.reached) else best
    hint = AS_MUCH if best.gives_another else to_be_said(signature, _OTHERWISE_MADE)
    raise BadTarget(f"it cannot be initialised with x [3, 5, d_model]: {best.said}", best.mend or hint)


def _variables_of(
    module: nn.Module, signature: Signature, length: int, most: int, problems: list[_Problem]
) -> Mapping[str, Any] | None:
    """Its variables for an x of this length; None where it takes none in `most` ways. `problems` are told what it
    raises."""
    for way, width in _ways_and_widths(module, signature, most):
        x = jnp.zeros((3, length, width), jnp.float32)
        made = partial(_made, module, replace(signature, arrangement=way))
        try:
            jax.eval_shape(made, x)
        except jax.errors.JAXTypeError:  # where numbers decide, which are not known
            pass
        except Exception as error:  # whatever a module does with what is not its own
            problems.append(_problem_of(error))
            continue
        try:
            variables = made(x)
        except Exception as error:
            problems.append(_problem_of(error))
            continue
        if variables.get("params"):
            return variables
    return None


def variables_of_ids(module: nn.Module, signature: Signature) -> Mapping[str, Any] | None:
    """The variables of a model that takes ids [3, 5], and no numbers of that shape; None where it is none such."""
    found: list[Mapping[str, Any] | None] = []
    for kind in (jnp.int32, jnp.float32):
        made = partial(module.init, jax.random.key(0), **signature.fixed)
        try:
            found.append(made(jnp.ones((BATCH, SEQUENCE), kind)))
        except Exception:  # whatever a module does with what is not its own
            found.append(None)
    return found[0] if found[1] is None else None


def _bundled(module: nn.Module, signature: Signature) -> Signature | None:
    """How it is called where it takes x out of a mapping or a tuple; None where it is none such."""
    for width in widths_of_x(module):
        asked = ReadOf(jnp.zeros((BATCH, SEQUENCE, width), jnp.float32), attributes=False)
        try:
            module.init(jax.random.key(0), asked)
        except Exception as error:  # whatever a module does with a mapping of nothing
            if found := unpacked(str(error), signature.arrangement):
                return replace(signature, arrangement=found)
        if found := asked.keys_for(signature.arrangement):
            return replace(signature, arrangement=found)
    return None


def _ways_and_widths(module: nn.Module, signature: Signature, most: int) -> list[tuple[Arrangement, int]]:
    """The likeliest first. What stands beside x has its width most often, and a map takes what has any other, of which
    its variables are then made."""
    widths = list(widths_of_x(module))
    ways = (islice(ways_to_call(signature, widths, missed, keys=True), most) for missed in ((), signature.masks))

    def is_of_another(way: Arrangement, width: int) -> bool:
        return any(each.kind == "condition" and each.number != width for each in way.beside.values())

    every = [(way, width) for way in chain.from_iterable(ways) for width in widths]
    return sorted(every, key=lambda each: is_of_another(*each))


def _problem_of(error: Exception) -> _Problem:
    if isinstance(error, OtherShape):
        return _Problem(Reached(), str(error), gives_another=True)
    return _Problem(Reached(places_of(error)), last_frames(error), mending(error, nn.Module))


def _made(module: nn.Module, signature: Signature, x: jax.Array) -> Mapping[str, Any]:
    """The variables of a module that gives something of the shape of x."""
    variables: dict[str, Any] = {}

    def called(*given: Any, **named: Any) -> Any:
        answer, made = module.init_with_output(jax.random.key(0), *given, **named)
        variables.update(made)
        return answer

    signature.called(called, x, {}, ARRAYS)
    return variables


def widths_of_x(module: nn.Module) -> Iterable[int]:
    """Widths of x: what its configuration calls so, then the numbers among its fields and those of its parts, the
    largest first, and d_ff last."""
    held = [each for part in modules_in(module) for each in vars(part).items()]
    fields = [each for each in held if _is_size(each[1])]
    said = [size for _, value in held for name, size in _kept_in(value) if WIDTH.fullmatch(name) and _is_size(size)]
    return feed_forward_last(fields, [*said, *sorted((size for _, size in fields), reverse=True)], USUAL_WIDTHS)


def _is_size(value: object) -> bool:
    return type(value) is int and value > 1


def _kept_in(value: object) -> Iterable[tuple[str, Any]]:
    """What a field that is a configuration has by name, as a mapping or an object of plain attributes."""
    if isinstance(value, Mapping):
        return [(str(name), each) for name, each in value.items()]
    plain = hasattr(value, "__dict__") and not (isinstance(value, (type, nn.Module)) or callable(value))
    return vars(value).items() if plain else ()


def modules_in(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for name in module.__dataclass_fields__:
        value = getattr(module, name, None)
        if name != "parent" and isinstance(value, nn.Module):
            yield from modules_in(value)
