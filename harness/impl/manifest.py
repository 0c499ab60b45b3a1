"""`impl.yaml`: what an implementation is, what it can do, what it cannot, and how its adapter is started."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from harness.errors import InputError, nearest
from harness.paths import IMPLS, shown
from harness.spec.case import Case
from harness.spec.dtypes import DtypeName
from harness.spec.layer import FeedForward
from harness.spec.situation import Check, Encoding, Layout, Mode
from harness.spec.stages import SHAPES
from harness.spec.strict import Identifier, Link, Sentence, Strict
from harness.spec.yaml_file import read_model

Device = Literal["cpu", "cuda"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Seconds = Annotated[float, Field(gt=0)]


class Capabilities(Strict):
    dtypes: tuple[DtypeName, ...] = Field(min_length=1)
    devices: tuple[Device, ...] = Field(min_length=1)
    modes: tuple[Mode, ...] = Field(min_length=1)
    layouts: tuple[Layout, ...] = Field(min_length=1, description="how it takes x and gives the output (S-2)")
    masks: tuple[Encoding, ...] = Field(min_length=1, description="what an element of a mask may mean to it (M-9)")
    checkpoint: bool = Field(description="whether it computes gradients without keeping activations (B-3)")
    checks: tuple[Check, ...] = Field(min_length=1)
    stages: Literal["all"] | tuple[str, ...] = Field(description="the stages that it can show")

    @model_validator(mode="after")
    def _stages_exist(self) -> "Capabilities":
        unknown = [] if self.stages == "all" else sorted(set(self.stages) - set(SHAPES))
        if unknown:
            raise ValueError(f"stages has {', '.join(unknown)}, which the specification does not know")
        return self


class When(Strict):
    """The checks that an `unsupported` entry speaks of: those that agree with every key that is given."""

    check: Check | None = None
    dtype: DtypeName | None = None
    activation: Annotated[str, Field()] | None = None
    placement: Literal["pre", "post"] | None = None
    norm: Literal["layer_norm", "rms_norm"] | None = None
    stack: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "When":
        if not self.model_fields_set:
            raise ValueError("names no key; an entry that matches everything is no entry")
        known = FeedForward.model_fields["activation"].annotation
        if self.activation is not None and self.activation not in getattr(known, "__args__", ()):
            raise ValueError(f"activation {self.activation!r} is unknown")
        return self

    def matches(self, case: Case, dtype: str, check: Check) -> bool:
        facts = {
            "check": check,
            "dtype": dtype,
            "activation": case.layer.feed_forward.activation,
            "placement": case.layer.norm.placement,
            "norm": case.layer.norm.kind,
            "stack": case.layer.is_stack,
        }
        return all(facts[key] == getattr(self, key) for key in self.model_fields_set)


class Unsupported(Strict):
    when: When
    reason: Sentence
    link: Link


class Declared(Strict):
    """A deviation that this implementation has: it is judged against the specification patched by it."""

    deviation: Identifier
    reason: Sentence
    link: Link


class Timeouts(Strict):
    """Seconds that each operation may take before the worker is ended."""

    start: Seconds
    build: Seconds
    run: Seconds


class Implementation(Strict):
    name: Name = Field(description="equal to the folder's name")
    title: Sentence
    framework: str
    homepage: Link
    command: tuple[str, ...] = Field(min_length=1, description="starts the adapter, in its folder")
    requires: tuple[str, ...] = Field(description="Python modules whose presence makes an interpreter fit")
    install: str = Field(description="what to give pip when they are missing")
    capabilities: Capabilities
    unsupported: tuple[Unsupported, ...]
    deviations: tuple[Declared, ...] = Field(description="how it deviates, as known and verified in each run")
    timeouts: Timeouts

    def opt_out(self, case: Case, dtype: str, check: Check) -> str | None:
        """Why this check is not asked, or None if it is."""
        for entry in self.unsupported:
            if entry.when.matches(case, dtype, check):
                return entry.reason
        can, given = self.capabilities, case.situation.given
        masked = case.situation.mask.padding or case.situation.mask.attention
        for what, value, known in (
            ("dtype", dtype, can.dtypes),
            ("mode", case.situation.mode, can.modes),
            ("check", "output" if check == "invariant" else check, can.checks),  # it is asked as outputs
            ("layout", given.layout, can.layouts),
            ("mask", given.masks, can.masks if masked else (given.masks,)),
            ("checkpoint", given.checkpoint, (False, can.checkpoint)),
        ):
            if value not in known:
                return f"{what} {value} is not among its capabilities"
        return None


def read_implementation(folder: Path) -> Implementation:
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
    return implementation


def known_folders(impls: Path = IMPLS) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(impls.glob("*/impl.yaml"))}


def find_folder(name_or_folder: str) -> Path:
    """The folder of an implementation, given its name or a path."""
    known = known_folders()
    if name_or_folder in known:
        return known[name_or_folder]
    if Path(name_or_folder).is_dir():
        return Path(name_or_folder)
    raise InputError(
        f"no implementation {name_or_folder!r}, nor a folder of that name",
        where="--impl",
        hint=f"{nearest(name_or_folder, known)} (conform list impls)",
    )
