"""Chooses the map of own parameters to the specification's, and proves it: one that was read, or that is searched."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from encoder_conformance.oracle.forms import steps_of, variant_of
from encoder_conformance.oracle.forms.norm import ANOTHER_DEVIATION
from encoder_conformance.oracle.forms.position_bias import WRONG_DISTANCES
from encoder_conformance.protocol.findings import Finding, SourceLine
from encoder_conformance.protocol.module_description import LiveProof
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.exporting import Exported
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.locating import locate, padding_moves_rows
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.module_target.proving import changing, is_cast, parameters_for, prove, shapes_of
from encoder_conformance.readers.module_target.searching import MATCH, FoundMap, search_map
from encoder_conformance.readers.onnx_file.tracing.unsupported import NO_LAYER
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.words import some


def choose_map(examination: Examination, alternatives: list[Layer]) -> None:
    """Proves the map that was read, or searches one for the stated layer; then finds stages and own values."""
    stated = alternatives[0] if alternatives else None
    layer, read = examination.layer, examination.map
    if layer is not None and examination.map is not None:
        _prove(examination, examination.map, layer)
        examination.wrong_by_that_alone = _is_as_read(examination, examination.map, layer)
        if _is_misread(examination):
            layer = None
    bench = examination.bench(examination.dtypes[0])
    if stated is not None and not _fits(examination, stated):
        found = search_map(bench, alternatives, read)
        if found is not None and (narrow := _found_in_float32(examination, found, alternatives, read)) is not None:
            found, bench = narrow, examination.bench("float32")
            examination.dtypes, examination.narrow_inside = ("float32",), True
        if found is not None:
            examination.map, examination.absent, examination.searched = found.map, found.absent, found.search
            examination.tied = tuple(found.map.shared())
            stated = examination.stated = found.layer
            examination.heads_known |= found.search.deviation is not None or found.search.head_counts == 1
    if examination.map is None:
        return
    examination.own_values = examination.map.held(examination.module.flat())
    judged_as = layer if examination.searched is None and layer is not None else stated
    if judged_as is not None:
        parameters = parameters_for(judged_as, examination.absent)
        examination.map.load(bench.module, parameters)
        examination.stages = locate(bench, judged_as, parameters, examination.lengths)
        if examination.stages:
            examination.padding_moves_rows = padding_moves_rows(bench, judged_as, parameters, examination.stages)


def _found_in_float32(
    examination: Examination, found: FoundMap, alternatives: Sequence[Layer], read: ElementMap | None
) -> FoundMap | None:
    """What is found in float32, and proved there, where what was `found` in float64 comes as near as that and no
    nearer, as where angles are kept in float32: None where that is not so."""
    widest, *narrower = examination.dtypes
    search = found.search
    if not narrower or (search.deviation is not None and not search.near) or search.distance > MATCH["float32"]:
        return None
    narrow = search_map(examination.bench("float32"), alternatives, read)
    if narrow is None or narrow.search.deviation != "" or narrow.search.near:
        return None
    bench, wide = (examination.long_bench(each, narrow.layer) for each in ("float32", widest))
    if not prove(bench, narrow.map, narrow.layer, narrow.absent).holds:
        return None
    inside = prove(wide, narrow.map, narrow.layer, narrow.absent, inside="float32")
    return narrow if inside.holds else None


def _prove(examination: Examination, map: ElementMap, layer: Layer) -> None:
    """Proves in float64 if it computes in that, else in float32: a step that is cast to float32 is as exact as that.
    What is right in float32, and in float64 not even as exact as that, is wrong in float64, and judged there too. What
    is wrong in both is judged in float32 alone where something in it is cast: its noise is no sign of another fault. A
    norm by another formula, as with epsilon outside the root, may be as near as float32 is, and is no cast."""
    widest, *narrower = examination.dtypes
    examination.proof = prove(examination.long_bench(widest, layer), map, layer, examination.absent)
    if narrower and not examination.proof.holds and not _has_norms_of_its_own(examination):
        wide = examination.long_bench(widest, layer)
        narrow = prove(examination.long_bench("float32", layer), map, layer, examination.absent)
        if narrow.holds:
            inside = prove(wide, map, layer, examination.absent, inside="float32")
            examination.proof, examination.narrow_inside = narrow, inside.holds or _casts_by_itself(wide.module)
            own = _with_epsilon_of(layer, widest)
            examination.epsilon_of_format = inside.holds and prove(wide, map, own, examination.absent).holds
        elif is_cast(wide):
            examination.proof, examination.narrow_inside = narrow, True
        examination.dtypes = ("float32",) if examination.narrow_inside else examination.dtypes


def _with_epsilon_of(layer: Layer, dtype: DtypeName) -> Layer:
    """The layer with the epsilon that a norm takes which was given none: `finfo(x.dtype).eps`, as of `nn.RMSNorm`."""
    norm = layer.norm.model_copy(update={"epsilon": 2 * FORMATS[dtype].roundoff})
    return layer.model_copy(update={"norm": norm})


def _casts_by_itself(module: LiveModule) -> bool:
    """Whether its own format is none of its parameters': a copy in float64 goes without casts that it makes, and what
    is not exact in that is no fault of the module."""
    return bool(module.own_format) and module.own_format not in module.formats.values()


def _is_as_read(examination: Examination, map: ElementMap, layer: Layer) -> bool:
    """Whether nothing but what is read twice tells the live module from the layer: with the map of its graph, and not
    of its names, it is proved, by the formula of norms that it has. Of a linear map that is not called the bias is read
    nowhere, either."""
    if not examination.read_twice or examination.proof is None or examination.proof.holds:
        return False
    graph = examination.exported.map
    assert graph is not None
    as_read = {place: graph.elements[place] for _, place, _ in examination.read_twice}
    uncalled = {other.rpartition(".")[0] for _, _, other in examination.read_twice}
    unread = [name for own, name in examination.unread if own.rpartition(".")[0] in uncalled]
    elements = {name: each for name, each in {**map.elements, **as_read}.items() if name not in unread}
    bench, read = examination.long_bench(examination.proof.dtype, layer), replace(map, elements=elements)
    norms = ({}, *_norms_otherwise(layer)) if _is_nearly_normed(examination) else ({},)
    absent = (*examination.absent, *unread)
    return any(prove(replace(bench, variants=each), read, layer, absent).holds for each in norms)


def _norms_last(taken_for: Iterable[Finding]) -> list[Finding]:
    """What is nearly a norm may be one that is known: what else was read so is the likelier reason."""
    return sorted(taken_for, key=lambda each: each.kind == "norm-approximate")


def _is_misread(examination: Examination) -> bool:
    """Whether the live module is something else than what was read off it, for no reason that is known. Nothing of that
    is kept, then."""
    proof = examination.proof
    if proof is None or proof.holds or examination.read_twice or examination.unread:
        return False
    if examination.tied and not examination.exported.taken_for:
        return False
    if _has_norms_of_its_own(examination) or _has_distances_of_its_own(examination):
        return False
    assert examination.map is not None
    live = changing(examination.bench("float32"), examination.map)
    lines = examination.exported.lines
    seen = f"{', '.join(live)} changes it, and is part of no step" if live else proof.problem or "see the parameters"
    unlike = f"what was read off it gives another output ({seen})"
    scales = [each for each in examination.exported.taken_for if each.kind == "score-scale-unusual"]
    if live and live == [each.about.get("parameter") for each in scales]:
        unlike = f"the scores are multiplied by {live[0]}, a parameter; in the specification by a number (E-5)"
    format, line = ("", "") if live else _cast_that_tells(examination, proof)
    if format:
        unlike = f"it casts to {format} inside, and goes on in another format: {proof.problem}, as {format} rounds"
    if twice := examination.map.repeated():
        unlike = f"{some(twice)} stand in it more than once, as where one head has the numbers of another"
    exported = examination.exported
    if exported.otherwise is not None:
        examination.exported = exported.otherwise
        examination.layer = examination.map = examination.proof = None
        examination.absent = examination.tied = ()
        return True
    of_marks = "score-scale-unusual" if live else ""
    taken_for = _norms_last(each for each in exported.taken_for if each.kind != of_marks)
    problem = NO_LAYER + "; ".join((*(each.message for each in taken_for), unlike))
    told = (str(SourceLine.model_validate(each.about["source"])) for each in taken_for if "source" in each.about)
    places = filter(None, (*told, line, *(lines.get(name) for name in (*live, *twice))))
    notes = tuple(each for each in exported.notes if each.kind not in {found.kind for found in exported.taken_for})
    examination.exported = Exported(problem=problem, where=next(places, ""), notes=notes)
    examination.layer = examination.map = examination.proof = None
    examination.absent = examination.tied = ()
    return True


def _cast_that_tells(examination: Examination, proof: LiveProof) -> tuple[str, str]:
    """The narrow format that it casts to inside, whose rounding is as large as what the proof is off by, and the line
    where it first does; two times "" where there is none."""
    if proof.rms is None:
        return "", ""
    bench = examination.bench(examination.dtypes[-1])
    own = FORMATS[proof.dtype].roundoff
    for format, line in examination.module.in_dtype("float32").cast_at(bench.feeds(bench.x())).items():
        if proof.rms * own / FORMATS[format].roundoff <= constants().rms_limit:
            return format, line
    return "", ""


def _has_norms_of_its_own(examination: Examination) -> bool:
    """Whether it is what was read off it but for the formula of its norms, as the Annotated Transformer's are of
    `torch.std`. It is proved so then, and its cases tell the formula."""
    layer, map = examination.layer, examination.map
    if layer is None or map is None or not _is_nearly_normed(examination):
        return False
    for variants in _norms_otherwise(layer):
        bench = examination.long_bench(examination.dtypes[0], layer)
        found = prove(replace(bench, variants=variants), map, layer, examination.absent)
        if found.holds:
            examination.proof = found
            return True
    return False


def _is_nearly_normed(examination: Examination) -> bool:
    """Whether what was read for its norms is not quite what they compute."""
    return any(each.kind == "norm-approximate" for each in examination.exported.taken_for)


def _norms_otherwise(layer: Layer) -> Iterator[dict[str, str]]:
    """For each formula of norms that is known beside the right one, the variants of the layer's steps that have it."""
    steps = steps_of(layer)
    norms = [steps[name] for name in ("norm1", "norm2") if name in steps]
    for form in ANOTHER_DEVIATION:
        if variants := {step.step: own for step in norms if (own := variant_of(step, form)) is not None}:
            yield variants


def _has_distances_of_its_own(examination: Examination) -> bool:
    """Whether it is what was read off it but for what it makes of distances, as for those that share a row of the table
    of T5's decoder. It is proved so then, and its cases tell."""
    layer, map = examination.layer, examination.map
    if layer is None or map is None or layer.attention.position_bias is None:
        return False
    bench = examination.long_bench(examination.dtypes[0], layer)
    for form in WRONG_DISTANCES[layer.attention.position_bias.distances]:
        found = prove(replace(bench, variants={"position_biased": form}), map, layer, examination.absent)
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
