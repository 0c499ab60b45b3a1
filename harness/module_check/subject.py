"""A module in a worker of its own: listed, examined part by part, and asked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.limitations import Declared
from encoder_conformance.impl.manifest import read_implementation
from encoder_conformance.module_check.description import Described, Problem
from encoder_conformance.paths import IMPLS
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Level
from encoder_conformance.wire.messages import Examine
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

FOLDER = IMPLS / "module_target"
_NONE = "-"
"""No path of a part: nothing was examined, or a list came last."""
_PROGRAM = "adapter.py"
"""The tensor of an examination that has the source of an adapter."""


@dataclass(frozen=True)
class CheckRequest:
    """The module, and what the user states of it. `resize`: the stated layer is of choices, at the module's sizes.

    `like`: hf:NAME, whose layer it should be, until `stated.with_layer_read` has read that. `declared`: deviations that
    it is known for; it is judged against the specification with these. `dtypes`: the formats to ask it in; none:
    float64 and float32, those of them that it computes in.
    """

    target: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)
    at: str | None = None
    layer: Layer | None = None
    resize: bool = False
    like: str | None = None
    level: Level = "core"
    dtypes: tuple[DtypeName, ...] = ()
    declared: tuple[Declared, ...] = ()
    pythons: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 1


@dataclass(frozen=True)
class Examined:
    """`own`: its own parameters, in the specification's names."""

    described: Described
    own: Mapping[str, np.ndarray[Any, Any]]


class Subject:
    """The worker that has the module of a request."""

    def __init__(self, request: CheckRequest, log: Path) -> None:
        """Raises InputError if no interpreter can run the worker."""
        self.request = request
        implementation = read_implementation(FOLDER, {"target": request.target}, request.target)
        ready = resolve(implementation, FOLDER, dict(request.pythons))
        if isinstance(ready, Missing):
            raise InputError(f"cannot be loaded here: {ready.reason}", where=request.target, hint=ready.hint)
        self.ready: Ready = ready
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        self.session = Session(ready, "cpu", 1, log)
        self._part: str | None = _NONE

    def close(self) -> None:
        self.session.close()

    def listed(self) -> list[str]:
        """The paths of the parts that may be layers."""
        self._part = _NONE
        answer = self._ask(Examine(**self._named, at=None, listed=True, layer=None, resize=False))
        return list(answer[0].get("candidates", []))

    def examined(self, at: str | None) -> Examined | Problem:
        """Afterwards the worker answers as this part."""
        layer, resize = self.request.layer, self.request.resize
        self._part = _NONE
        asked = Examine(**self._named, at=at, listed=False, layer=layer, resize=resize, dtypes=self.request.dtypes)
        description, own = self._ask(asked)
        if "problem" in description:
            return Problem.model_validate(description["problem"])
        program = np.asarray(own.get(_PROGRAM, ()), dtype=np.uint8).tobytes().decode()
        values = {name: value for name, value in own.items() if name != _PROGRAM}
        try:
            described = Described.model_validate_json(json.dumps({**description, "adapter": program}))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise RuntimeError(f"impls/module_target describes it in another way: {where}: {first['msg']}") from None
        self._part = at
        return Examined(described, values)

    def turn_to(self, at: str | None) -> None:
        """Have the worker answer as this part, which was examined before."""
        if self._part != at:
            self.examined(at)

    @property
    def _named(self) -> dict[str, Any]:
        request = self.request
        return {"target": request.target, "arguments": dict(request.arguments), "folder": str(request.folder)}

    def _ask(self, request: Examine) -> tuple[dict[str, Any], Mapping[str, np.ndarray[Any, Any]]]:
        answer = self.session.examine(request)
        if isinstance(answer, Failure):
            hint = f"the worker's log: {self.session.log}"
            raise InputError(f"could not be examined: {answer.message}", where=self.request.target, hint=hint)
        return answer

    def unusable(self, problem: Problem) -> InputError:
        return InputError(problem.message, where=self.request.target, hint=problem.hint)
