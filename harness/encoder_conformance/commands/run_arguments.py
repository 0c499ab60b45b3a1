"""The command line of `conform run` as one object, and which of its options do not go together."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.platform.errors import InputError

if TYPE_CHECKING:  # help is printed without NumPy and pydantic
    from encoder_conformance.spec.level import DtypeName, Level


@dataclass(frozen=True, kw_only=True)
class RunArguments(RunOptions):
    """The options as the user gave them. `earlier`: a run to be completed."""

    impls: tuple[str, ...]
    globs: tuple[str, ...]
    layer_file: Path | None
    level: "Level | None"
    dtypes: "tuple[DtypeName, ...]"
    balanced_by: Path | None
    earlier: Path | None
    scheduler: str | None
    pythons: dict[str, str]
    out: Path | None
    update_declared: bool
    reason: str | None
    as_json: bool

    @property
    def at_once(self) -> int:
        """The most processes in parallel."""
        return self.jobs or os.cpu_count() or 1

    @property
    def chosen_level(self) -> "Level | None":
        """None for every level."""
        return self.level or (None if self.globs or self.update_declared else "core")

    def refuse_contradictions(self) -> None:
        """Raise InputError for options that do not go together."""
        if self.quiet and self.verbose:
            raise InputError("are given together", where="--quiet, --verbose", hint="leave out one of them")
        narrowing = self.globs or self.layer_file or self.level or self.dtypes or self.budget or self.fail_fast
        if self.update_declared and (narrowing or self.shard or self.earlier):
            raise InputError(
                "a part of the suite cannot say what an implementation's deviations are",
                where="--update-declared",
                hint="run it without --case, --layer, --level, --dtype, --budget, --fail-fast, --shard and --resume",
            )
        if self.as_json and (self.verbose or self.update_declared):
            raise InputError(
                "is given together with --verbose or --update-declared", where="--json", hint="leave out one"
            )
        if self.reason is not None and not self.update_declared:
            raise InputError("is of deviations that are declared", where="--reason", hint="add --update-declared")
        if self.scheduler:
            self._refuse_with_scheduler()
        elif self.balanced_by and not self.shard:
            raise InputError("makes parts equal, and there are none", where="--balanced-by", hint="--shard I/N")

    def _refuse_with_scheduler(self) -> None:
        """Raise InputError for an option that a cluster has no use for."""
        given = {
            "layer": self.layer_file,
            "budget": self.budget,
            "fail-fast": self.fail_fast,
            "shard": self.shard,
            "balanced-by": self.balanced_by,
            "resume": self.earlier,
            "python": self.pythons,
            "update-declared": self.update_declared,
            "keep-failing": self.keep_failing,
            "json": self.as_json,
        }
        hint = "on a cluster, ask the whole plan; conform merge unites what several runs judged"
        for name, value in given.items():
            if value:
                raise InputError("is given together with --scheduler", where=f"--{name}", hint=hint)
