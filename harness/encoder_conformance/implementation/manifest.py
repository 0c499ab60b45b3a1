"""`impl.yaml`, an implementation's manifest: identity, start command, capabilities, limitations, deviations."""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from encoder_conformance.implementation.choices import Choice, Chosen, parse_variant, resolve_choices, variant_suffix
from encoder_conformance.implementation.entry_points import discover
from encoder_conformance.implementation.limitations import Declared, Unsupported
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.paths import IMPLS, shown
from encoder_conformance.spec.additions import Addition
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import published_layers, read_deviations
from encoder_conformance.spec.parameters import PARAMETER_NAMES
from encoder_conformance.spec.reason import Reason
from encoder_conformance.spec.situation import Check, Encoding, Layout, Mode
from encoder_conformance.spec.stages import is_stage, kind_of
from encoder_conformance.spec.strict import Identifier, Link, Printable, Sentence, Strict
from encoder_conformance.spec.yaml_file import read_model

Device = Literal["cpu", "cuda"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Seconds = Annotated[float, Field(gt=0, le=86_400, description="at most a day")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Capabilities(Strict):
    dtypes: tuple[DtypeName, ...] = Field(min_length=1)
    devices: tuple[Device, ...] = Field(min_length=1)
    modes: tuple[Mode, ...] = Field(min_length=1)
    layouts: tuple[Layout, ...] = Field(
        min_length=1, description="layouts of x and of the output that it supports (S-2)"
    )
    masks: tuple[Encoding, ...] = Field(min_length=1, description="encodings of mask elements that it supports (M-9)")
    checkpoint: bool = Field(description="whether it supports gradient checkpointing (B-3)")
    checks: tuple[Check, ...] = Field(min_length=1)
    stages: Literal["all"] | tuple[str, ...] = Field(
        description="the stages that it can return; layer_k stands for every layer of a stack, layer_0 for one, and "
        "layer_k.norm1 for that stage inside of every layer"
    )
    layers: Literal["all", "published"] | tuple[Identifier, ...] = Field(
        default="all",
        description="ids of the layers that it can build, if its architecture is fixed; published: those of "
        "layers/published alone, which it is then asked (L-8)",
    )
    missing_parameters: tuple[str, ...] = Field(
        default=(), description="parameters of the specification that its layer does not have"
    )
    memory: bool = Field(
        default=False, description="whether it takes a memory: keys and values from a second input (E-17)"
    )
    padding_ids: bool = Field(
        default=False, description="whether it makes a padding mask of token ids, where padding has an id (M-9)"
    )
    positions: bool = Field(
        default=False,
        description="whether it can be told where token ids lie, for what it adds to them there (S-3)",
    )
    additions: Literal["all"] | tuple[Addition, ...] = Field(
        default=(),
        description="what the layer language was extended by, and the implementation has; all: whatever that is",
    )
    export: bool = Field(default=False, description="whether it can export a layer as a file to deploy")

    def builds(self, layer: str) -> bool:
        """Whether it can build the layer of this id, as far as its architecture is fixed."""
        return layer in (published_layers() if self.layers == "published" else self.layers) or self.layers == "all"

    def has(self, addition: Addition) -> bool:
        return self.additions == "all" or addition in self.additions

    def shows(self, stage: str) -> bool:
        return self.stages == "all" or stage in self.stages or kind_of(stage) in self.stages

    @model_validator(mode="after")
    def _stages_exist(self) -> "Capabilities":
        unknown = [] if self.stages == "all" else sorted(s for s in self.stages if not is_stage(s))
        if unknown:
            raise ValueError(f"stages has {', '.join(unknown)}, which the specification does not know")
        unknown = sorted(set(self.missing_parameters) - set(PARAMETER_NAMES))
        if unknown:
            raise ValueError(f"missing_parameters names {', '.join(unknown)}, which the specification does not know")
        return self


class Timeouts(Strict):
    """Time limits of the operations, in seconds. A worker that exceeds one is killed."""

    start: Seconds
    build: Seconds
    run: Seconds

    @property
    def longest_task(self) -> float:
        """The limit of one check of a layer that is not built yet."""
        return self.build + self.run


class Implementation(Strict):
    name: Name = Field(description="equal to the folder's name")
    title: Sentence
    framework: Printable
    homepage: Link
    command: tuple[Printable, ...] = Field(min_length=1, description="starts the adapter, in its folder")
    requires: tuple[Printable, ...] = Field(
        description="Python modules that an interpreter must have; in another language, paths in the folder"
    )
    install: Printable = Field(description="the argument of pip install for them; in another language, a command line")
    package: Printable | None = Field(
        default=None,
        description="the package whose released versions `conform versions` judges; by default the first of requires",
    )
    choices: tuple[Choice, ...] = Field(default=(), description="its options, given as NAME:key=value,…")
    defaults: tuple[Identifier, ...] = Field(
        default=(),
        description="the layers that its constructor makes without arguments; the variant defaults=own runs only these",
    )
    capabilities: Capabilities
    unsupported: tuple[Unsupported, ...]
    deviations: tuple[Declared, ...] = Field(description="its declared deviations, verified in each run")
    timeouts: Timeouts
    environment: tuple[VariableName, ...] = Field(
        default=(), description="environment variables of the user's that it needs beside the usual ones"
    )
    _chosen: Chosen = PrivateAttr(default_factory=dict)
    _own_deviations: dict[str, Deviation] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _entries_name_its_choices(self) -> "Implementation":
        values = {choice.name: choice.values for choice in self.choices}
        conditions = [entry.when.choices for entry in self.unsupported]
        conditions += [entry.when.choices for entry in self.deviations if entry.when]
        for choices in conditions:
            for name, value in (choices or {}).items():
                if name not in values or (values[name] != "any" and value not in values[name]):
                    raise ValueError(f"an entry has choices {name}: {value}, which the manifest does not define")
        if self.defaults and "own" not in values.get("defaults", ()):
            raise ValueError("defaults names layers, but among its choices is none called defaults with the value own")
        return self

    @property
    def chosen(self) -> Chosen:
        """The variant's value for each choice."""
        return self._chosen

    @property
    def own_deviations(self) -> dict[str, Deviation]:
        """Id → deviation, of `deviations/*.yaml` beside the manifest: those that no catalogue has."""
        return self._own_deviations

    @property
    def folder_name(self) -> str:
        """The name without the variant's suffix."""
        return self.name.partition(":")[0]

    @property
    def requires_choice(self) -> bool:
        """Whether a choice has no default."""
        return any(choice.values == "any" for choice in self.choices)

    @property
    def is_of_published(self) -> bool:
        """Whether it is asked the layers of published encoders, and no others (rule L-8)."""
        return self.capabilities.layers == "published"

    @property
    def runs_by_name_alone(self) -> bool:
        """Whether it runs only if `--impl` names it: a choice has no default, or no run asks its layers else."""
        return self.requires_choice or self.is_of_published

    def variant(self, options: Chosen, where: str) -> "Implementation":
        """The variant with these options: its own name, and the entries that apply to it.

        Raises InputError, located by `where`, for an unknown option or value.
        """
        chosen = resolve_choices(self.choices, options, where)
        more = tuple(module for choice in self.choices for module in choice.requires.get(chosen[choice.name], ()))
        variant = self.model_copy(
            update={
                "name": self.name + variant_suffix(self.choices, chosen),
                "requires": (*self.requires, *more),
                "unsupported": tuple(e for entry in self.unsupported if (e := entry.of_variant(chosen))),
                "deviations": tuple(d for entry in self.deviations if (d := entry.of_variant(chosen))),
            }
        )
        variant._chosen = chosen
        return variant

    def opt_out(self, case: Case, dtype: str, check: Check) -> Reason | None:
        """Why this check does not apply, or None if it does."""
        uses_defaults = self.defaults and self._chosen.get("defaults") == "own"
        if uses_defaults and case.layer.layer not in self.defaults:
            text = f"with its own defaults it makes {' or '.join(self.defaults)}, and no {case.layer.layer}"
            return Reason(kind="default-layer", text=text)
        for entry in self.unsupported:
            if entry.is_of(case, dtype, check):
                return Reason(kind="declared", text=entry.reason)
        can, given, layer = self.capabilities, case.situation.given, case.layer.layer
        masked = case.situation.mask.padding or case.situation.mask.attention
        for property_name, value, supported in (
            ("dtype", dtype, can.dtypes),
            ("mode", case.situation.mode, can.modes),
            ("check", "output" if check == "invariant" else check, can.checks),  # an invariant compares outputs
            ("layout", given.layout, can.layouts),
            ("mask", given.masks, can.masks if masked else (given.masks,)),
            ("checkpoint", given.checkpoint, (False, can.checkpoint)),
            ("memory", case.layer.takes_memory, (False, can.memory)),
            ("padding_ids", case.padding_id is not None, (False, can.padding_ids)),
            ("positions", case.situation.positions is not None, (False, can.positions)),
            ("layer", layer, (layer,) if can.builds(layer) else ()),
            *((addition, True, (can.has(addition),)) for addition in case.layer.additions),
        ):
            if value not in supported:
                value = "" if isinstance(value, bool) else f" {value}"
                return Reason(kind="capability", text=f"{property_name}{value} is not among its capabilities")
        return None


def read_implementation_manifest(folder: Path) -> Implementation:
    """The manifest of a folder, with the entries of all variants. Raises InputError if it is missing or invalid."""
    manifest = folder / "impl.yaml"
    if not manifest.is_file():
        raise InputError("holds no impl.yaml", where=shown(folder), hint="docs/adding-a-backend.md says what it holds")
    implementation = read_model(manifest, Implementation)
    if implementation.name != folder.resolve().name:
        raise InputError(
            f"the name {implementation.name!r} is not the folder's",
            where=f"{shown(manifest)}: key name",
            hint=f"write {folder.resolve().name!r} there, or rename the folder",
        )
    if (folder / "deviations").is_dir():
        implementation._own_deviations = read_deviations(folder / "deviations")
    return implementation


def read_implementation(folder: Path, options: Chosen | None = None, where: str = "") -> Implementation:
    """The variant of a folder's implementation with these options, and defaults for the rest."""
    return read_implementation_manifest(folder).variant(options or {}, where or shown(folder))


def known_folders() -> dict[str, Path]:
    """Name → folder of each implementation of this project and of installed packages."""
    return {**_own_folders(), **_discovered()[0]}


def left_out() -> dict[str, str]:
    """Name → one line that names the package of an unusable implementation and the reason."""
    return _discovered()[1]


def _own_folders() -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(IMPLS.glob("*/impl.yaml"))}


@cache
def _discovered() -> tuple[dict[str, Path], dict[str, str]]:
    return discover(_own_folders(), read_implementation_manifest)


def find_implementation(text: str) -> tuple[Path, Implementation]:
    """The folder and the manifest that `text` names: a name or a path, with `:key=value,…` for a variant."""
    name_or_folder, options = parse_variant(text)
    folder = find_folder(name_or_folder)
    return folder, read_implementation(folder, options, f"--impl {text}")


def default_implementations() -> list[tuple[Path, Implementation]]:
    """The implementations known by name, in their default variant, except those that run only if they are
    named."""
    found = [(folder, read_implementation_manifest(folder)) for folder in known_folders().values()]
    return [(folder, each.variant({}, shown(folder))) for folder, each in found if not each.runs_by_name_alone]


def find_folder(name_or_folder: str) -> Path:
    """The folder of an implementation, given its name or a path. Raises InputError if there is none."""
    folders = known_folders()
    if name_or_folder in folders:
        return folders[name_or_folder]
    if Path(name_or_folder).is_dir():
        return Path(name_or_folder)
    if name_or_folder in left_out():
        raise InputError(left_out()[name_or_folder], where="--impl", hint="mend or uninstall that package")
    raise InputError(
        f"no implementation {name_or_folder!r}, nor a folder of that name",
        where="--impl",
        hint=f"{nearest(name_or_folder, folders)} (conform list impls)",
    )
