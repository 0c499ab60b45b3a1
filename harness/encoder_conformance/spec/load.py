"""Loads the specification: its clauses, layers, situations, and the cases that pair them."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, PositiveInt

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.paths import SPECS, shown
from encoder_conformance.spec.bases import Document, Read, lineage, merged
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.families import STACK_FAMILIES, TOKEN_FAMILIES
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Situation
from encoder_conformance.spec.size import LARGEST, refuse_larger
from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import EXTENSIONS, model_of, read_document, read_model

_Model = TypeVar("_Model", Layer, Situation, Deviation)
CORE = "core.yaml"
_CLAUSE = re.compile(r"^- \*\*([A-Z]+-[0-9]+)\*\* (.+?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)
"""A list item of `specs/README.md` that opens with a clause's id in bold."""


class Core(Strict):
    """The cases of a run by default; `python -m tools core build` selects them."""

    cases: tuple[str, ...] = Field(min_length=1, description="ids of required cases, the most revealing first")


@dataclass(frozen=True)
class Specification:
    """Layers and situations by id, and the cases made of them.

    `core` lists case ids. `own_layers` are a user's layers: their core cases are those in any situation that the core
    lists.
    """

    layers: dict[str, Layer]
    situations: dict[str, Situation]
    core: tuple[str, ...] = ()
    own_layers: frozenset[str] = frozenset()

    @cached_property
    def cases(self) -> dict[str, Case]:
        """Case id → case: each layer in each situation that lists its family."""
        listed, situations = frozenset(self.core), {case_id.partition("/")[2] for case_id in self.core}
        cases = (
            Case(
                layer,
                situation,
                in_core=situation.situation in situations
                if layer.layer in self.own_layers
                else f"{layer.layer}/{situation.situation}" in listed,
            )
            for layer in self.layers.values()
            for situation in self.situations.values()
            if situation.fits(layer)
        )
        return {case.id: case for case in cases}

    @cached_property
    def with_golden(self) -> dict[str, Case]:
        """The cases that have a golden file of their own."""
        return {name: case for name, case in self.cases.items() if case.has_golden}


def load(specs: Path = SPECS, extra_layers: tuple[Path, ...] = ()) -> Specification:
    """Load the specification in the folder `specs`, cached. `extra_layers`: a user's own layer files.

    Raises InputError for a file that breaks a rule of the languages.
    """
    return _read(specs, extra_layers)  # a cache treats an omitted argument and its default as different calls


@cache
def _read(specs: Path, extra_layers: tuple[Path, ...]) -> Specification:
    layers = _read_layers(specs / "layers")
    own: dict[str, Path] = {}
    for path in extra_layers:
        layer = _own_layers([path], specs / "layers")[path]
        if layer.layer in layers:
            hint = "give yours an id and a file name of its own"
            raise InputError(f"layer {layer.layer!r} exists already", where=shown(path), hint=hint)
        layers[layer.layer], own[layer.layer] = layer, path
    situations = _read_folder(specs / "situations", Situation)
    for situation in situations.values():
        if problem := _equals_problem(situation, situations):
            where = f"{shown(specs / 'situations' / situation.situation)}.yaml: key equals"
            raise InputError(problem, where=where, hint="equal situations differ only in how they are given (G-4)")
    core = read_model(specs / CORE, Core).cases if (specs / CORE).is_file() else ()
    specification = Specification(layers, situations, core, frozenset(own))
    _refuse_unfit_core(specification, specs)
    for case in specification.cases.values():
        if case.situation.input.pattern == "balanced" and case.layer.d_model % 2:
            name = case.layer.layer
            raise _odd_balanced(case, own.get(name, specs / "layers" / f"{name}.yaml"), specs / "situations")
        if case.last_position > case.layer.last_position:
            name = case.layer.layer
            raise _short_table(case, own.get(name, specs / "layers" / f"{name}.yaml"), specs / "situations")
    return specification


PUBLISHED_CORE = ("no-mask", "padding-right")
"""Situations of the core of published layers: a plain one and a padded one, each with gradients."""
PUBLISHED = "published"
"""The folder, in that of the layers, of one layer of each published encoder (rule L-8)."""


@cache
def published_layers() -> dict[str, Layer]:
    """Id → layer of a published encoder. None of them is in `load()`: they are asked where they are named."""
    own = _own_layers(_files(SPECS / "layers" / PUBLISHED), SPECS / "layers")
    return {path.stem: layer for path, layer in own.items()}


@cache
def published_specification() -> Specification:
    """The layers of published encoders in the situations of their families: what an implementation is asked whose
    manifest says `layers: published`. Its core is `PUBLISHED_CORE` of each."""
    own = published_layers()
    core = tuple(f"{layer}/{situation}" for layer in own for situation in PUBLISHED_CORE)
    return Specification(own, load().situations, core, frozenset(own))


@cache
def every_case() -> dict[str, Case]:
    """Case id → case: those of the specification, and those of published layers."""
    return {**load().cases, **published_specification().cases}


@cache
def clauses() -> dict[str, str]:
    """Clause id → text on one line, in the order of the specification."""
    text = (SPECS / "README.md").read_text(encoding="utf-8")
    texts: dict[str, str] = {}
    for clause_id, body in _CLAUSE.findall(text):
        assert clause_id not in texts, f"specs/README.md numbers two clauses {clause_id}"
        texts[clause_id] = " ".join(body.split())
    return texts


def _refuse_unfit_core(specification: Specification, specs: Path) -> None:
    """Check that the core lists required cases, each once."""
    where, cases = f"{shown(specs / CORE)}: key cases", specification.cases
    for index, name in enumerate(specification.core):
        case = cases.get(name)
        if case is None:
            raise InputError(f"lists {name}, which is no case", where=where, hint=_CORE_HINT)
        if not case.is_required:
            raise InputError(f"lists {name}, which is {case.own_level}", where=where, hint=_CORE_HINT)
        if name in specification.core[:index]:
            raise InputError(f"lists {name} twice", where=where, hint=_CORE_HINT)


_CORE_HINT = "python -m tools core build selects the core again"


def _equals_problem(situation: Situation, situations: dict[str, Situation]) -> str:
    """The reason why the key `equals` is wrong; "" if it is right or null."""
    if situation.equals is None:
        return ""
    other = situations.get(situation.equals)
    if other is None or other.equals:
        return f"{situation.equals} is no situation with goldens of its own"
    differ = [key for key in _NUMERIC_KEYS if getattr(situation, key) != getattr(other, key)]
    if situation.input.model_copy(update={"padding": other.input.padding}) != other.input:
        differ.append("input")
    if differ:
        return f"{situation.equals} has another {' and '.join(differ)}"
    if families := set(situation.families) - set(other.families):
        return f"{situation.equals} does not apply to families {', '.join(sorted(families))}"
    covered = set(other.checks) | ({"output", "weights"} if "stages" in other.checks else set())
    covered |= {"refusal"} & set(situation.checks) if "output" in covered else set()
    uncovered = set(situation.checks) - covered
    return f"{situation.equals} does not check {', '.join(sorted(uncovered))}" if uncovered else ""


_NUMERIC_KEYS = ("batch", "sequence", "items", "parameter_exponents", "mask")
"""Keys that determine the golden's numbers, beside `input`."""


def _odd_balanced(case: Case, layer_file: Path, situations: Path) -> InputError:
    """Rule P-4: a balanced input needs an even number of features."""
    layer, situation = case.layer, case.situation
    return InputError(
        f"d_model = {layer.d_model} is odd, but {shown(situations / situation.situation)}.yaml, a situation of its "
        f"family {layer.family}, has a balanced input, whose halves are equally long",
        where=f"{shown(layer_file)}: key d_model",
        hint="give the layer an even d_model or another family, or the situation another input.pattern",
    )


def _short_table(case: Case, layer_file: Path, situations: Path) -> InputError:
    """A table of positions has a row for each (clause E-37)."""
    layer, situation = case.layer, case.situation
    assert layer.embedding is not None and layer.embedding.position_table is not None
    first = layer.embedding.position_table.first
    return InputError(
        f"rows = {layer.embedding.position_table.rows}, and position 0 has row {first}, but "
        f"{shown(situations / situation.situation)}.yaml, a situation of its family {layer.family}, has position "
        f"{case.last_position}",
        where=f"{shown(layer_file)}: key embedding.position_table.rows",
        hint=f"give the table {first + case.last_position + 1} rows or more, or the layer another family",
    )


@cache
def load_deviations(specs: Path = SPECS) -> dict[str, Deviation]:
    """Id → deviation: the catalogue. Raises InputError if two deviations have the same patch."""
    folder = specs / "deviations"
    deviations = read_deviations(folder)
    id_by_patch: dict[str, str] = {}
    for name, deviation in deviations.items():
        patch = json.dumps(deviation.patch.model_dump(mode="json"), sort_keys=True)  # independent of the keys' order
        if patch in id_by_patch:
            where = f"{shown(folder / name)}.yaml: key patch"
            hint = "each defect has one file: remove one of the two, and add its links to the other"
            raise InputError(f"has the same patch as {id_by_patch[patch]}", where=where, hint=hint)
        id_by_patch[patch] = name
    return deviations


def read_deviations(folder: Path) -> dict[str, Deviation]:
    """Id → deviation, of the YAML files in a folder."""
    return _read_folder(folder, Deviation)


def _read_folder(folder: Path, model: type[_Model]) -> dict[str, _Model]:
    return {path.stem: _fit(read_model(path, model), path) for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    """The YAML files of a folder, by their names. Raises InputError if there is none, or two of one name."""
    files = sorted(path for path in folder.iterdir() if path.suffix in EXTENSIONS)
    if not files:
        raise InputError("holds no YAML file", where=shown(folder), hint="the specification's folders are never empty")
    for one, other in pairwise(files):
        if one.stem == other.stem:
            hint = f"also in {shown(one)}: remove one"
            raise InputError(f"id {one.stem!r} is given twice", where=shown(other), hint=hint)
    return files


def _read_layers(folder: Path) -> dict[str, Layer]:
    """Id → layer of a folder, in the order of its files. Bases are read first, so that an error is at its own file."""
    read = cache(_read_document)
    lineages = {path: lineage(path, folder, read) for path in _files(folder)}
    layers = {path: _layer_of(lineages[path], read) for path in sorted(lineages, key=lambda path: len(lineages[path]))}
    return {path.stem: layers[path] for path in lineages}


def _own_layers(paths: Iterable[Path], folder: Path) -> dict[Path, Layer]:
    """Layers beside those of `folder`, each after the bases that it has: layers of `folder`, and other files of the
    user's."""
    read = cache(_read_document)
    read_layer = cache(lambda *files: _layer_of(files, read))
    lineages = {path: lineage(path, folder, read) for path in paths}
    for files in lineages.values():
        for count in range(1, len(files)):
            read_layer(*files[:count])
    return {path: read_layer(*files) for path, files in lineages.items()}


def _read_document(path: Path) -> Document:
    return read_document(path, Layer)


def _layer_of(files: tuple[Path, ...], read: Read) -> Layer:
    """The layer that the keys of these files make (rule L-4)."""
    *bases, path = files
    return _fit(model_of(merged(files, read), path, Layer, bases[-1].stem if bases else ""), path)


def _fit(item: _Model, path: Path) -> _Model:
    """What was read from `path`, if it keeps the rules that go beyond one model. Raises InputError."""
    key = type(item).__name__.lower()
    name = getattr(item, key)
    if name != path.stem:
        problem = f"the id {name!r} is not the file's name; ids are stable for ever"
        hint = f"write {path.stem!r} there, or name the file {name}.yaml"
        raise InputError(problem, where=f"{shown(path)}: key {key}", hint=hint)
    if isinstance(item, Layer) and item.unfit_family:
        hint = f"{', '.join(STACK_FAMILIES)} for a stack; {' or '.join(TOKEN_FAMILIES)} where there is an embedding"
        raise InputError(item.unfit_family, where=f"{shown(path)}: key family", hint=hint)
    if isinstance(item, Layer):
        refuse_larger(item, LARGEST, path)
    cited: tuple[str, ...] = () if isinstance(item, Deviation) else item.clauses
    for clause in cited:
        if clause not in clauses():
            problem = f"cites clause {clause}, which specs/README.md does not have"
            raise InputError(problem, where=f"{shown(path)}: key clauses", hint=nearest(clause, clauses()))
    return item


_Limit = Annotated[float, Field(gt=0)]


class Constants(Strict):
    rms_limit: _Limit = Field(description="largest root mean square error of a tensor that conforms, in σ (J-4)")
    max_limit: _Limit = Field(description="largest error of an element that conforms, in σ (J-4)")
    condition_runs: PositiveInt = Field(description="Monte-Carlo runs behind a condition (C-2)")
    whole_output_up_to: PositiveInt = Field(
        description="an `output` with at most this many elements is kept whole (G-3)"
    )
    sampled_positions: PositiveInt = Field(description="number of positions kept of any other golden tensor (G-3)")


@cache
def constants() -> Constants:
    return read_model(SPECS / "constants.yaml", Constants)
