"""A module in a worker of its own: its parts listed, and each examined and asked as a subject."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.files_read import FilesReadAnswer
from encoder_conformance.protocol.findings import Problem
from encoder_conformance.protocol.messages import AskFilesRead, AskMasksOfModel, AskWayBack, Examine, Vary
from encoder_conformance.protocol.model_masks import ModelMasks
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.protocol.way_back import WayBackAnswer, WayBackAnswers
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.starting import described_as, reader_session
from encoder_conformance.subjects.subject import Array, Subject, SubjectRequest, found_to_be, kinds_of
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_NONE = "-"
"""No path of a part: nothing was examined, or a list came last."""
SECONDS_TO_MAKE = 120.0
"""In which a module is imported and made, unless a user says how long it may take: TensorFlow takes 40 of them on a
machine that has more to do."""
_SHARE = 0.9
"""Of the time until the worker is ended: before that, it tells the line in which the module stands."""
_PROGRAM = "adapter.py"
"""The tensor of an examination that has the source of an adapter."""


def module_session(
    request: SubjectRequest, where: str, log: Path, variables: Mapping[str, str] | None = None
) -> Session:
    """A session for the module of a request, with these environment variables. Raises InputError if no interpreter can
    run the worker."""
    return reader_session("module_target", {"target": request.target}, request, where, log, variables)


class ModuleWorker:
    """The worker that has the module of a request, and answers as the part that was examined last."""

    def __init__(self, request: SubjectRequest, log: Path, session: Session | None = None) -> None:
        """`session`: one that was started for it. Raises InputError if no interpreter can run the worker."""
        self.request = request
        self.session = session or module_session(request, request.target, log)
        self._part: str | None = _NONE
        self._lost = False
        self.beside: tuple[str, ...] = ()

    def close(self) -> None:
        self.session.close()

    def listed(self) -> list[str]:
        """The paths of the parts that may be layers."""
        return self.layers()[0]

    def layers(self) -> tuple[list[str], Mapping[str, Array]]:
        """The same, of the part that is requested, and own vectors of the module [n] that are of none of them, by name,
        as far as its framework tells. `beside` are then the paths of what may be a layer, too, and is not listed."""
        answer = self._ask(Examine(**self._named, **self._chosen, at=None, listed=True, layer=None, resize=False))
        self.beside = tuple(answer[0].get("beside", ()))
        within = "" if self.request.at is None else f"{self.request.at}."
        return [path for path in answer[0].get("candidates", []) if path.startswith(within)], answer[1]

    def examined(self, at: str | None, *, like: bool = False) -> Subject | Problem:
        """The part as a subject, whose layer is None if it is none; the worker then answers as this part. With `like`
        one that is as another before it, but for its numbers, is described as that, and not to be asked."""
        layer, resize = self.request.layer, self.request.resize
        asked = Examine(
            **self._named,
            **self._chosen,
            at=at,
            listed=False,
            layer=layer,
            resize=resize,
            dtypes=self.request.dtypes,
            given=dict(self.request.given),
            inputs=self.request.inputs,
            like=like,
        )
        found, own = self._ask(asked)
        if "problem" in found:
            return Problem.model_validate(found["problem"])
        program = np.asarray(own.get(_PROGRAM, ()), dtype=np.uint8).tobytes().decode()
        description = described_as(ModuleDescription, {**found, "adapter": program}, "it", self.session)
        self._part = at
        name = f"{self.request.target}{f' at {at}' if at else ''}"
        implementation, stages = self.session.ready.implementation, kinds_of(description.stages)
        checks = tuple(c for c in implementation.capabilities.checks if c != "stages" or len(stages) > 1)
        return Subject(
            name=name,
            session=self.session,
            implementation=found_to_be(implementation, name, dtypes=description.dtypes, stages=stages, checks=checks),
            description=description,
            layer=description.judged_as,
            parameters={name: value for name, value in own.items() if name != _PROGRAM},
            own_names=description.own_names,
            at=at,
        )

    def subject(self, at: str | None, where: str) -> Subject:
        """The part as a subject. Raises InputError, located by `where`, for what cannot be examined."""
        found = self.examined(at)
        if isinstance(found, Problem):
            raise found.error(where)
        return found

    def way_back(self) -> tuple[WayBackAnswer, ...]:
        """What the part that was examined last answers about its way back."""
        answer = self._answered(AskWayBack())
        if isinstance(answer, Failure):
            text = f"its way back could not be asked: {answer.message}"
            return (WayBackAnswer(name="transposed-gradient", outcome="not-asked", message=text),)
        return WayBackAnswers.model_validate_json(json.dumps(answer[0])).asked

    def masks_of_model(self) -> ModelMasks:
        """What the masks of the whole module hide at its outputs; none where nothing could be asked."""
        answer = self._answered(AskMasksOfModel())
        if isinstance(answer, Failure):
            return ModelMasks(framework="", problem=answer.message)
        return ModelMasks.model_validate_json(json.dumps(answer[0]))

    def files_read(self) -> FilesReadAnswer | None:
        """What the worker has read; None where it cannot answer, or an earlier one was lost, with what that read."""
        answer = self._answered(AskFilesRead())
        if isinstance(answer, Failure) or self._lost:
            return None
        return FilesReadAnswer.model_validate_json(json.dumps(answer[0]))

    def vary(self, at: str | None, variant: str) -> Problem | None:
        """Have the worker answer as a variant of this part, or as itself (""); why it cannot. One that was lost since
        the part was examined examines it again."""
        answer = self.session.describe(Vary(variant=variant))
        if isinstance(answer, Failure):
            self.examined(at)
            answer = self.session.describe(Vary(variant=variant))
        if isinstance(answer, Failure):
            return Problem(message=answer.message, hint="", kind="form-not-made")
        return Problem.model_validate(answer[0]["problem"]) if "problem" in answer[0] else None

    def turn_to(self, at: str | None) -> None:
        """Have the worker answer as this part, which was examined before."""
        if self._part != at:
            self.examined(at)

    @property
    def _named(self) -> dict[str, Any]:
        request = self.request
        return {"target": request.target, "arguments": dict(request.arguments), "folder": str(request.folder)}

    @property
    def _chosen(self) -> dict[str, Any]:
        """What may be chosen in the place of what nobody said."""
        request, seconds = self.request, _SHARE * self.session.ready.implementation.timeouts.build
        to_make = SECONDS_TO_MAKE if request.seconds is None else seconds
        limits = {"seconds": seconds, "seconds_to_make": to_make}
        return {"narrow": request.narrow, "supposing": request.supposing, **limits}

    def _answered(self, request: AskWayBack | AskMasksOfModel | AskFilesRead) -> tuple[dict[str, Any], Any] | Failure:
        answer = self.session.describe(request)
        self._lost = self._lost or isinstance(answer, Failure)
        return answer

    def _ask(self, request: Examine) -> tuple[dict[str, Any], Mapping[str, Array]]:
        self._part = _NONE
        answer = self.session.describe(request)
        if isinstance(answer, Failure):
            hint = f"the worker's log: {self.session.log}"
            if answer.outcome is Outcome.TIMEOUT:
                hint = f"--timeout gives it longer; what a file does at import counts, too. {hint}"
            raise InputError(f"could not be examined: {answer.message}", where=self.request.target, hint=hint)
        return answer
