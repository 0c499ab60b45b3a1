"""Asks a module that was examined about its way back: what no golden of gradients shows."""

from collections.abc import Iterator

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.dropping import judged, judged_compiled
from encoder_conformance.readers.module_target.errors import error_line
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.proving import Bench, parameters_for
from encoder_conformance.readers.module_target.training import drops_nothing, with_dropout, without_dropout
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


def way_back(found: Examination) -> tuple[WayBackAnswer, ...]:
    """The answers in the widest format that it computes in, in the order in which they are asked."""
    with found.framework.undisturbed():
        bench = _loaded(found)
        feeds = bench.feeds(bench.x())
        cotangent = np.random.default_rng(5).normal(size=feeds["x"].shape).astype(feeds["x"].dtype)
        asked = _of_framework(bench.module, feeds, _masked(found, bench), cotangent)
        if any(answer.name == "written-into" and answer.outcome == "fail" for answer in asked):
            return tuple(asked)  # the numbers of whatever else is asked of it are those of other questions
        of_training = [with_dropout(bench.module, feeds, cotangent, bench.dtype)]
        if of_training[0].outcome == "not-asked" and (
            own := without_dropout(bench.module, feeds, cotangent, bench.dtype)
        ):
            of_training.append(own)
        return (*asked, *of_training, *_drawn(bench, feeds))


def _drawn(bench: Bench, feeds: Feeds) -> Iterator[WayBackAnswer]:
    """Whether it leaves the program's random numbers alone, and, if so, what it drops in training."""
    try:
        if (generators := bench.module.generators(feeds)) is not None:
            yield generators
        if generators is not None and generators.outcome == "fail":
            return
        in_eval, seen = bench.module.call(feeds), bench.module.trained(feeds)
        if seen is not None:
            yield (own := judged(seen, in_eval, bench.dtype))
            if own.outcome != "fail":
                yield from drawn_compiled(bench.module, feeds, in_eval, bench.dtype)
        elif (nothing := drops_nothing(bench.module, feeds, in_eval, bench.dtype)) is not None:
            yield nothing
    except NotImplementedError as error:
        yield WayBackAnswer(name="dropout", outcome="not-asked", message=str(error))
    except Exception as error:  # whatever a module does in training
        text = f"what it drops was not asked: in training {error_line(error)}"
        yield WayBackAnswer(name="dropout", outcome="not-asked", message=text)


def drawn_compiled(module: LiveModule, feeds: Feeds, in_eval: Array, dtype: str) -> Iterator[WayBackAnswer]:
    """What its compiled code drops, where it has any."""
    try:
        if (seen := module.trained_compiled(feeds)) is not None:
            yield judged_compiled(*seen, in_eval, dtype)
    except Exception as error:  # whatever a compiler does, which knows no such backend
        said = str(error) if isinstance(error, NotImplementedError) else error_line(error)
        yield WayBackAnswer(name="dropout-compiled", outcome="not-asked", message=said)


def _loaded(found: Examination) -> Bench:
    """A copy with portable parameters: those of its own may be 0, and hide what goes through them."""
    bench = found.bench(found.dtypes[0])
    layer = found.mapped_to
    if found.map is not None and layer is not None:
        found.map.load(bench.module, parameters_for(layer, found.absent))
    return bench


def _masked(found: Examination, bench: Bench) -> Feeds:
    """The feeds with the last position of one item hidden; without masks where none can say it."""
    semantics, layer = found.semantics, found.layer or found.stated
    padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
    padding[0, ..., -1] = False
    x, heads = bench.x().astype(bench.feeds(bench.x())["x"].dtype), layer.attention.num_heads if layer else 1
    masks = Masks(padding, None, sequence=semantics.S)
    try:
        return module_feeds(semantics, x, masks, heads, always_causal=found.always_causal)
    except (ExecutionError, NotImplementedError):
        return bench.feeds(bench.x())


def _of_framework(module: LiveModule, feeds: Feeds, masked: Feeds, cotangent: Array) -> list[WayBackAnswer]:
    """Those that came before it raised, where it does: it is judged for that by the gradients of cases."""
    asked: list[WayBackAnswer] = []
    try:
        asked.extend(module.way_back(feeds, masked, cotangent))
    except Exception as error:  # whatever a module does where its gradients are asked for
        text = f"its way back raises, and was asked no more: {error_line(error)}"
        asked.append(WayBackAnswer(name="transposed-gradient", outcome="not-asked", message=text))
    return asked
