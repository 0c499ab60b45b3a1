"""Examines one module: how it is called, what layer it is, which parameter is which; and whether that is proved."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.description import Chance, Kept, LiveProof, MapSearch, OtherAnswer
from encoder_conformance.protocol.findings import Finding, SourceLine
from encoder_conformance.readers.module_target.biases import settled
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.exporting import Exported
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.formats import format_as_given
from encoder_conformance.readers.module_target.frameworks import ModuleFramework, framework_of
from encoder_conformance.readers.module_target.heads import denied, head_counts
from encoder_conformance.readers.module_target.live import LiveModule, Loose
from encoder_conformance.readers.module_target.local import long_enough
from encoder_conformance.readers.module_target.locating import Place, locate
from encoder_conformance.readers.module_target.mapping import ElementMap, separated
from encoder_conformance.readers.module_target.masking import causal_with_open_masks
from encoder_conformance.readers.module_target.mixed_precision import answers_in_mixed_precision
from encoder_conformance.readers.module_target.offering import OfferedArguments, offered
from encoder_conformance.readers.module_target.probing import live_semantics
from encoder_conformance.readers.module_target.proving import Bench, changing, is_cast, parameters_for, prove, shapes_of
from encoder_conformance.readers.module_target.reading import (
    read_off,
    refuse_one_length,
    with_a_name,
    with_its_window,
)
from encoder_conformance.readers.module_target.repeating import chance_in
from encoder_conformance.readers.module_target.searching import search_map
from encoder_conformance.readers.module_target.sizes import with_sizes_of
from encoder_conformance.readers.module_target.supplies import Told
from encoder_conformance.readers.module_target.supplying import (
    called_as_it_takes,
    lengths_taken,
    lengths_up_to_most,
    of_one_row,
    without_lengths,
)
from encoder_conformance.readers.module_target.ways import other_answers, refuse_unrunnable
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.tracing.unsupported import NO_LAYER
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer

_WIDE: tuple[DtypeName, ...] = ("float64", "float32")
ToldOf = Callable[[str], Told]
"""The name of x → what a user says that other arguments are given."""


@dataclass
class Examination:
    """The findings on a module. `layer`: what it is, read off it; None where it is no layer that is known."""

    framework: ModuleFramework
    module: LiveModule
    """In float32, with its own parameters, as it was given: what is asked."""
    read: LiveModule
    """The same without what it was given in."""
    semantics: InputSemantics
    exported: Exported
    chance: Chance | None = None
    """How two answers to one question differ."""
    kept: Kept | None = None
    """What a call leaves behind in it."""
    loose: Loose = field(default_factory=Loose)
    left_out: tuple[str, ...] = ()
    """What the whole was given in of which it is a part, and this part is not."""
    other_answers: tuple[OtherAnswer, ...] = ()
    """The ways to call it in which it answers otherwise."""
    layer: Layer | None = None
    map: ElementMap | None = None
    offered: OfferedArguments | None = None
    """None before they were."""
    absent: tuple[str, ...] = ()
    always_causal: bool = False
    dtypes: tuple[DtypeName, ...] = ("float32",)
    """What it is read and proved in, the widest first."""
    taken: tuple[DtypeName, ...] = ()
    """Those of the formats asked for in which it computes."""
    as_given: DtypeName | None = None
    """The format in which it answers with its parameters as they were given, where these are not all wide."""
    proof: LiveProof | None = None
    searched: MapSearch | None = None
    heads_known: bool = True
    """Whether the number of heads is more than a guess."""
    stages: dict[str, Place] = field(default_factory=dict)
    stated: Layer | None = None
    own_values: dict[str, Array] = field(default_factory=dict)
    narrow_inside: bool = False
    """Whether it is right in float32, and in float64 no more exact: something in it is cast."""
    padded_item_is_nan: bool = False
    of_no_step: tuple[str, ...] = ()
    """Own parameters that change the output, and are part of no step: it is proved with the numbers that they have."""
    folded: bool = False
    """Whether weights that it computes of others were made one each, in the copy that is asked."""
    lengths: tuple[int, ...] = ()
    """The numbers of positions that it takes, of those up to 65, where it does not take any."""
    tied: tuple[tuple[str, str], ...] = ()
    read_twice: tuple[tuple[str, str, str], ...] = ()
    wrong_by_that_alone: bool = False
    """Whether it is what was read off it where the places of `read_twice` have what they read."""
    unread: tuple[tuple[str, str], ...] = ()
    notes: tuple[Finding, ...] = ()
    given: tuple[str, ...] = ()
    """The arguments that its model gives it beside x."""
    given_by: str = ""

    @property
    def heads_denied(self) -> int | None:
        """The number of heads that its attributes say, where it was found to have another."""
        known = self.layer or (self.stated if self.searched and self.searched.deviation is not None else None)
        return None if known is None else denied(self.module, known.attention.num_heads)

    @property
    def mapped_to(self) -> Layer | None:
        """The layer whose parameters the map has: that which was read, or else the stated one."""
        return self.layer if self.searched is None and self.layer is not None else self.stated

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the framework's distributions that are here."""
        found = {}
        for name in (*self.framework.packages, "numpy", "onnx"):
            with suppress(PackageNotFoundError):
                found[name] = version(name)
        return found

    def bench(self, dtype: DtypeName) -> Bench:
        """A copy of the module in this dtype."""
        return Bench(self.read.in_dtype(dtype), self.semantics, dtype, self.always_causal)

    def long_bench(self, dtype: DtypeName, layer: Layer) -> Bench:
        """The same, with so many positions that the layer's window shows."""
        return replace(self.bench(dtype), semantics=long_enough(self.semantics, layer))


def examine(
    given: object,
    stated: Layer | None = None,
    *,
    resize: bool = False,
    dtypes: tuple[DtypeName, ...] = (),
    told: ToldOf = lambda _: Told(),
) -> Examination:
    """`given`, a module, stays as it is: all is done with copies of it. Raises BadTarget if it cannot be called at all.

    `stated`: what it should be; with `resize` at the module's own sizes. `dtypes`: the formats that it is to be asked
    in; none: float64, float32, and that in which it was given. `told`: what a user says that its arguments are given.
    """
    framework = framework_of(given)
    if framework is None:
        raise BadTarget(f"{type(given).__name__} is a module of no framework that is known")
    with framework.undisturbed():
        found = _examined(framework, given, stated, resize, told)
        if (found.layer is None or found.map is None) and (other := framework.folded(given)) is not None:
            again = _examined(framework, other[0], stated, resize, told)
            again.notes, again.folded = (*again.notes, *other[1]), True
            found = found if again.layer is None else again
        asked = dtypes or (*_WIDE, *([found.as_given] if found.as_given else []))
        narrow = [dtype for dtype in asked if dtype not in _WIDE and _runs_in(found, dtype)]
        wide = [dtype for dtype in found.dtypes if dtype in asked]
        found.taken = (*wide, *narrow)
        return found


def _opened(framework: ModuleFramework, given: object, told: ToldOf) -> Examination:
    """What is known of it before anything is asked of its masks. Raises BadTarget if it cannot be called."""
    live = framework.live(given)
    held = live.held()
    module, x = called_as_it_takes(live, told(live.signature.x))
    refuse_unrunnable(module, {"x": x})
    as_given, kept = format_as_given(module, x), None
    if held is None or held.changed():
        if held is not None:  # one that was not called
            fresh = framework.live(given)
            module = fresh.arranged(module.signature.arrangement) or fresh
        kept = module.kept({"x": x})
    chance, loose = chance_in(module, {"x": x}), module.take_in({"x": x})
    read = module.bare()
    semantics = live_semantics(read, x)
    lengths = () if module.called_with else lengths_taken(read, x)
    exported = with_a_name(read, x, read_off(read, of_one_row(module, semantics), at_any_length=not lengths))
    if exported.layer is None and (whole := without_lengths(read, x)) is not None:
        without = read_off(whole, of_one_row(module, semantics), at_any_length=not lengths)
        exported = exported if without.layer is None else without
    exported, notes = exported if lengths else with_its_window(read, semantics, exported), framework.notes(given)
    if not lengths:
        refuse_one_length(read, x, exported)
    if not (lengths or module.called_with) and exported.layer is not None:
        lengths = lengths_up_to_most(read, x)
    found = Examination(framework, module, read, semantics, exported, chance=chance, loose=loose, notes=notes)
    found.as_given, found.kept, found.lengths = as_given, kept, lengths
    return found


def _examined(
    framework: ModuleFramework, given: object, stated: Layer | None, resize: bool, told: ToldOf
) -> Examination:
    examination = _opened(framework, given, told)
    semantics, exported = examination.semantics, examination.exported
    examination.given, examination.given_by = examination.module.supplied, examination.module.supplied_by
    if exported.layer is not None and exported.map is not None and not exported.unplaced:
        map, examination.tied, examination.read_twice = separated(exported.map)
        found = settled(map, exported.layer.with_decimal_epsilon, exported.absent, stated)
        examination.layer, examination.map = found.layer, found.map
        examination.absent, examination.unread = found.absent, found.unread
        examination.exported = replace(exported, facts=found.facts(exported.facts))
    examination.dtypes = _WIDE if _runs_in(examination, "float64") else ("float32",)
    alternatives = [] if stated is None else _alternatives(examination, stated, resize)
    examination.stated = alternatives[0] if alternatives else None
    known = examination.layer or examination.stated
    _find_masks(examination, semantics, known)
    _choose_map(examination, alternatives)
    if examination.stated is not None and examination.layer is None and examination.stated != known:
        _find_masks(examination, semantics, examination.stated)
    if examination.map is not None and examination.proof is not None and examination.proof.holds:
        examination.of_no_step = tuple(changing(examination.bench("float32"), examination.map))
    _compare_ways(examination)
    return examination


def _compare_ways(examination: Examination) -> None:
    """What the bare module shows of its stages is nothing of a module that answers otherwise as it was given."""
    known = examination.layer or examination.stated
    heads, causal = known.attention.num_heads if known else 1, examination.always_causal
    module, semantics = examination.module, examination.semantics
    answers = other_answers(module, semantics, heads, always_causal=causal)
    proof = examination.proof  # without one a softmax may be cast to float32, which rounds two sums to two numbers
    exact = proof is not None and proof.holds and proof.dtype == "float64"
    if exact and not module.wrappers:  # what was compiled is not compiled once more
        wide = other_answers(module.in_dtype("float64"), semantics, heads, always_causal=causal, dtype="float64")
        answers += tuple(each for each in wide if each.way not in {other.way for other in answers})
    if answers:
        examination.stages = {}
    examination.other_answers = *answers, *_in_mixed_precision(examination)


def _in_mixed_precision(examination: Examination) -> Iterator[OtherAnswer]:
    layer = examination.mapped_to
    if examination.map is not None and layer is not None:
        bench = replace(examination.bench("float32"), module=examination.module.in_dtype("float32"))
        parameters = examination.map.made_one(parameters_for(layer, examination.absent))
        examination.map.load(bench.module, parameters)
        yield from answers_in_mixed_precision(bench, layer, parameters)


def _find_masks(examination: Examination, semantics: InputSemantics, known: Layer | None) -> None:
    """The masks and what they mean, for the heads of the layer that is known. `semantics`: those of x alone."""
    heads = known.attention.num_heads if known else 1
    far = long_enough(semantics, known).S if known and known.attention.window else 0
    far = far if not examination.lengths or far in examination.lengths else 0
    examination.offered = offered(examination.read, semantics, heads, far=far)
    examination.semantics = examination.offered.semantics
    examination.always_causal = causal_with_open_masks(examination.read, examination.semantics)
    examination.padded_item_is_nan = _padded_item_is_nan(examination, heads)


def _alternatives(examination: Examination, stated: Layer, resize: bool) -> list[Layer]:
    """The stated layer; with `resize` at the module's sizes, and with each number of heads that it may have where the
    graph does not tell, the likeliest first."""
    if not resize:
        return [stated.with_decimal_epsilon]
    read = examination.layer or examination.exported.layer
    sized = with_sizes_of(examination.module, stated, examination.semantics.d_model, read).with_decimal_epsilon
    if read is not None:
        return [sized]
    counts = head_counts(examination.bench(examination.dtypes[0]), sized)
    examination.heads_known = counts.known
    return counts.of(sized)


def _padded_item_is_nan(examination: Examination, num_heads: int) -> bool:
    """Whether an item that is padding alone comes out as NaN; False where no mask can say that it is."""
    semantics = examination.semantics
    padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
    padding[0] = False
    x = np.random.default_rng(0).normal(size=(semantics.B, semantics.S, semantics.d_model)).astype(np.float32)
    try:
        masks = Masks(padding, None, sequence=semantics.S)
        feeds = module_feeds(semantics, x, masks, num_heads, always_causal=examination.always_causal)
        output = examination.module.run(feeds)["output"]
    except (ExecutionError, NotImplementedError):
        return False
    return bool(np.isnan(semantics.batch_first(output)[0]).any())


def _choose_map(examination: Examination, alternatives: list[Layer]) -> None:
    """Proves the map that was read, or searches one for the stated layer; then finds stages and own values."""
    stated = alternatives[0] if alternatives else None
    layer = examination.layer
    if layer is not None and examination.map is not None:
        _prove(examination, examination.map, layer)
        examination.wrong_by_that_alone = _is_as_read(examination, examination.map, layer)
        if _is_misread(examination):
            layer = None
    bench = examination.bench(examination.dtypes[0])
    if stated is not None and not _fits(examination, stated):
        found = search_map(bench, alternatives)
        if found is not None:
            examination.map, examination.absent, examination.searched = found.map, found.absent, found.search
            stated = examination.stated = found.layer
            examination.heads_known |= found.search.deviation is not None or found.search.head_counts == 1
    if examination.map is None:
        return
    examination.own_values = examination.map.held(examination.module.flat())
    judged_as = layer if examination.searched is None and layer is not None else stated
    if judged_as is not None:
        parameters = parameters_for(judged_as, examination.absent)
        examination.map.load(bench.module, parameters)
        examination.stages = locate(bench, judged_as, parameters)


def _prove(examination: Examination, map: ElementMap, layer: Layer) -> None:
    """Proves in float64 if it computes in that, else in float32: a step that is cast to float32 is as exact as that.
    What is right in float32, and in float64 not even as exact as that, is wrong in float64, and judged there too. What
    is wrong in both is judged in float32 alone where something in it is cast: its noise is no sign of another fault."""
    widest, *narrower = examination.dtypes
    examination.proof = prove(examination.long_bench(widest, layer), map, layer, examination.absent)
    if narrower and not examination.proof.holds:
        wide = examination.long_bench(widest, layer)
        narrow = prove(examination.long_bench("float32", layer), map, layer, examination.absent)
        if narrow.holds:
            inside = prove(wide, map, layer, examination.absent, inside="float32")
            examination.proof, examination.narrow_inside = narrow, inside.holds
        elif is_cast(wide):
            examination.proof, examination.narrow_inside = narrow, True
        examination.dtypes = ("float32",) if examination.narrow_inside else examination.dtypes


def _is_as_read(examination: Examination, map: ElementMap, layer: Layer) -> bool:
    """Whether nothing but what is read twice tells the live module from the layer: with the map of its graph, and not
    of its names, it is proved."""
    if not examination.read_twice or examination.proof is None or examination.proof.holds:
        return False
    graph = examination.exported.map
    assert graph is not None
    as_read = {place: graph.elements[place] for _, place, _ in examination.read_twice}
    bench = examination.long_bench(examination.proof.dtype, layer)
    return prove(bench, replace(map, elements={**map.elements, **as_read}), layer, examination.absent).holds


def _is_misread(examination: Examination) -> bool:
    """Whether the live module is something else than what was read off it, for no reason that is known. Nothing of that
    is kept, then."""
    proof = examination.proof
    if proof is None or proof.holds or examination.read_twice or examination.unread or examination.tied:
        return False
    if _has_norms_of_its_own(examination):
        return False
    assert examination.map is not None
    live = changing(examination.bench("float32"), examination.map)
    seen = f"{', '.join(live)} changes it, and is part of no step" if live else proof.problem or "see the parameters"
    problem = f"{NO_LAYER}what was read off it gives another output ({seen})"
    exported = examination.exported
    of_marks = "score-scale-unusual" if live else ""
    taken_for = [each for each in exported.taken_for if each.kind != of_marks]
    problem, said = (
        "; ".join((problem, *(each.message for each in taken_for))),
        {each.kind for each in exported.taken_for},
    )
    places = (str(SourceLine.model_validate(each.about["source"])) for each in taken_for if "source" in each.about)
    notes = tuple(each for each in exported.notes if each.kind not in said)
    examination.exported = Exported(problem=problem, where=next(places, ""), notes=notes)
    examination.layer = examination.map = examination.proof = None
    examination.absent = ()
    return True


_NORMS = ("unbiased-epsilon-outside-root", "unbiased-variance", "epsilon-outside-root")
"""Forms of a norm that people write by hand, the most frequent first."""


def _has_norms_of_its_own(examination: Examination) -> bool:
    """Whether it is what was read off it but for the formula of its norms, as the Annotated Transformer's are of
    `torch.std`. It is proved so then, and its cases tell the formula."""
    layer, map = examination.layer, examination.map
    if (
        layer is None
        or map is None
        or not any(each.kind == "norm-approximate" for each in examination.exported.taken_for)
    ):
        return False
    for form in _NORMS:
        bench = examination.long_bench(examination.dtypes[0], layer)
        found = prove(replace(bench, variants={"norm1": form, "norm2": form}), map, layer, examination.absent)
        if found.holds:
            examination.proof = found
            return True
    return False


def _fits(examination: Examination, stated: Layer) -> bool:
    """Whether the map that was read has the stated layer's parameters, but for those that do nothing."""
    if examination.map is None:
        return False
    have = {name: elements.shape for name, elements in examination.map.elements.items()}
    return have == {name: shape for name, shape in shapes_of(stated).items() if name not in examination.absent}


def _runs_in(examination: Examination, dtype: DtypeName) -> bool:
    """Whether its output is in the format of its input and its parameters."""
    try:
        bench = examination.bench(dtype)
        return bool(bench.output(bench.x()).dtype == FORMATS[dtype].numpy)
    except (ExecutionError, RuntimeError):
        return False
