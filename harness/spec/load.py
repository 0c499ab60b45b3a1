"""Loads the specification: every layer, every situation, and the cases that they make."""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from encoder_conformance.errors import InputError, nearest
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.clauses import clauses
from encoder_conformance.spec.core import FILE as CORE
from encoder_conformance.spec.core import read_core
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import STACK_FAMILIES, TOKEN_FAMILIES, Layer
from encoder_conformance.spec.situation import Situation
from encoder_conformance.spec.yaml_file import read_model

_Model = TypeVar("_Model", Layer, Situation, Deviation)


@dataclass(frozen=True)
class Specification:
    """`core` lists cases by id. Of `own_layers`, which are a user's, the core is each situation that it lists."""

    layers: dict[str, Layer]
    situations: dict[str, Situation]
    core: tuple[str, ...] = ()
    own_layers: frozenset[str] = frozenset()

    @cached_property
    def cases(self) -> dict[str, Case]:
        """Every layer in every situation that names its family, by id."""
        listed, situations = frozenset(self.core), {case.partition("/")[2] for case in self.core}
        made = (
            Case(
                layer,
                situation,
                in_core=situation.situation in situations
                if layer.layer in self.own_layers
                else f"{layer.layer}/{situation.situation}" in listed,
            )
            for layer in self.layers.values()
            for situation in self.situations.values()
            if layer.family in situation.families
        )
        return {case.id: case for case in made}

    @cached_property
    def with_golden(self) -> dict[str, Case]:
        """The cases that have a golden file of their own."""
        return {name: case for name, case in self.cases.items() if case.has_golden}


def load(specs: Path = SPECS, extra_layers: tuple[Path, ...] = ()) -> Specification:
    """The specification in these folders, each read once; `extra_layers` are a user's own layer files, judged in the
    same situations."""
    return _read(specs, extra_layers)  # a cache does not know that what is left out is the default


@cache
def _read(specs: Path, extra_layers: tuple[Path, ...]) -> Specification:
    layers = _read_folder(specs / "layers", Layer)
    own: dict[str, Path] = {}
    for path in extra_layers:
        layer = _read_one(path, Layer)
        if layer.layer in layers:
            raise InputError(
                f"layer {layer.layer!r} exists already",
                where=shown(path),
                hint="give yours an id and a file name of its own",
            )
        layers[layer.layer], own[layer.layer] = layer, path
    situations = _read_folder(specs / "situations", Situation)
    for situation in situations.values():
        if problem := _unequal(situation, situations):
            where = f"{shown(specs / 'situations' / situation.situation)}.yaml: key equals"
            raise InputError(problem, where=where, hint="equal situations differ in how they are given alone (G-4)")
    specification = Specification(layers, situations, read_core(specs), frozenset(own))
    _refuse_unfit_core(specification, specs)
    for case in specification.cases.values():
        name = case.layer.layer
        _refuse_halves_of_odd(case, own.get(name, specs / "layers" / f"{name}.yaml"), specs / "situations")
    return specification


def _refuse_unfit_core(specification: Specification, specs: Path) -> None:
    """The core lists required cases of the specification, each once."""
    where, cases = f"{shown(specs / CORE)}: key cases", specification.cases
    for at, name in enumerate(specification.core):
        case = cases.get(name)
        if case is None:
            raise InputError(f"lists {name}, which is no case", where=where, hint=_CORE_HINT)
        if not case.is_required:
            raise InputError(f"lists {name}, which is {case.own_level}", where=where, hint=_CORE_HINT)
        if name in specification.core[:at]:
            raise InputError(f"lists {name} twice", where=where, hint=_CORE_HINT)


_CORE_HINT = "conform core build finds the core anew"


def _unequal(situation: Situation, situations: dict[str, Situation]) -> str:
    """Why `equals` does not hold; "" if it does, or says nothing."""
    if situation.equals is None:
        return ""
    other = situations.get(situation.equals)
    if other is None or other.equals:
        return f"{situation.equals} is no situation with goldens of its own"
    differ = [key for key in _OF_NUMBERS if getattr(situation, key) != getattr(other, key)]
    if situation.input.model_copy(update={"padding": other.input.padding}) != other.input:
        differ.append("input")
    if differ:
        return f"{situation.equals} has another {' and '.join(differ)}"
    if families := set(situation.families) - set(other.families):
        return f"{situation.equals} does not apply to families {', '.join(sorted(families))}"
    held = set(other.checks) | ({"output", "weights"} if "stages" in other.checks else set())
    held |= {"refusal"} & set(situation.checks) if "output" in held else set()
    more = set(situation.checks) - held
    return f"{situation.equals} does not check {', '.join(sorted(more))}" if more else ""


_OF_NUMBERS = ("batch", "sequence", "items", "parameter_exponents", "mask")


def _refuse_halves_of_odd(case: Case, layer_file: Path, situations: Path) -> None:
    """Rule P-4: a balanced input has two halves along its features."""
    layer, situation = case.layer, case.situation
    if situation.input.pattern == "balanced" and layer.d_model % 2:
        raise InputError(
            f"d_model = {layer.d_model} is odd, but {shown(situations / situation.situation)}.yaml, a situation of its "
            f"family {layer.family}, has a balanced input, whose halves are equally long",
            where=f"{shown(layer_file)}: key d_model",
            hint="give the layer an even d_model or another family, or the situation another input.pattern",
        )


@cache
def load_deviations(specs: Path = SPECS) -> dict[str, Deviation]:
    """The catalogue of ways to be wrong, in which no two have the same patch."""
    folder = specs / "deviations"
    deviations = _read_folder(folder, Deviation)
    seen: dict[str, str] = {}
    for name, deviation in deviations.items():
        patch = json.dumps(deviation.patch.model_dump(mode="json"), sort_keys=True)  # in whatever order it is written
        if patch in seen:
            raise InputError(
                f"has the same patch as {seen[patch]}",
                where=f"{shown(folder / name)}.yaml: key patch",
                hint="one way of being wrong has one file: remove one, or add its links to the other",
            )
        seen[patch] = name
    return deviations


def _read_folder(folder: Path, model: type[_Model]) -> dict[str, _Model]:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    if not files:
        raise InputError("holds no YAML file", where=shown(folder), hint="the specification's folders are never empty")
    found: dict[str, tuple[Path, _Model]] = {}
    for path in files:
        item = _read_one(path, model)
        if path.stem in found:
            raise InputError(
                f"id {path.stem!r} is given twice",
                where=shown(path),
                hint=f"also in {shown(found[path.stem][0])}: remove one",
            )
        found[path.stem] = path, item
    return {name: item for name, (_, item) in found.items()}


def _read_one(path: Path, model: type[_Model]) -> _Model:
    item = read_model(path, model)
    key = model.__name__.lower()
    name = getattr(item, key)
    if name != path.stem:
        raise InputError(
            f"the id {name!r} is not the file's name; ids are stable for ever",
            where=f"{shown(path)}: key {key}",
            hint=f"write {path.stem!r} there, or name the file {name}.yaml",
        )
    if isinstance(item, Layer) and item.unfit_family:
        hint = f"{', '.join(STACK_FAMILIES)} for a stack; {' or '.join(TOKEN_FAMILIES)} where there is an embedding"
        raise InputError(item.unfit_family, where=f"{shown(path)}: key family", hint=hint)
    cited: tuple[str, ...] = () if isinstance(item, Deviation) else item.clauses
    for clause in cited:
        if clause not in clauses():
            raise InputError(
                f"cites clause {clause}, which specs/README.md does not have",
                where=f"{shown(path)}: key clauses",
                hint=nearest(clause, clauses()),
            )
    return item
