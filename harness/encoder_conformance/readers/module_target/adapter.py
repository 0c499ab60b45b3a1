"""Drives a module that nobody wrote an adapter for: it is examined, and the map that was found is used."""

import json
import os
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from encoder_conformance import Environment, Tensors, serve
from encoder_conformance.impls.bases.jax_layers.kept_programs import options_of_kept_programs
from encoder_conformance.platform.memory import collecting_seldom, give_freed_memory_back
from encoder_conformance.protocol.findings import Problem, noted
from encoder_conformance.protocol.frames import Sendable
from encoder_conformance.protocol.model_masks import ModelMasks
from encoder_conformance.protocol.variants import VARIANTS
from encoder_conformance.protocol.way_back import WayBackAnswers
from encoder_conformance.readers.module_target.alike import MOST_AS_ONE, ExaminedBefore
from encoder_conformance.readers.module_target.argument_lines import line_of_argument
from encoder_conformance.readers.module_target.argument_names import stated_by
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.driving import ModuleAdapter
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.files_read import FilesRead
from encoder_conformance.readers.module_target.frameworks import ModuleFramework
from encoder_conformance.readers.module_target.given_as import GivenAs
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.loading import Loaded, as_options, load_target, narrower, work_in
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.module_target.masks_of_model import masks_of_model
from encoder_conformance.readers.module_target.parts import PartsOfModule, others
from encoder_conformance.readers.module_target.probing import widths_taken
from encoder_conformance.readers.module_target.time_limits import TookTooLong, too_long, within
from encoder_conformance.readers.module_target.told import told_by
from encoder_conformance.readers.module_target.way_back import way_back
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.readers.module_target.writing import adapter_source
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer

PROGRAM = "adapter.py"
"""The tensor that has the source of the adapter: a text of several lines is no text for a report."""

_MANY = 1 << 20
"""Parameters of a part: what was freed of fewer is not worth the search for it."""
_REMEMBERED = 4
"""Examinations that are kept, with copies of what was examined: kinds of layers in a stack."""


class ModuleTarget(ModuleAdapter):
    def start(self, device: str, threads: int) -> Environment:
        """The framework is that of the target, and not known yet. Threads are those of the environment."""
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # before the target imports JAX, if it does
            os.environ.update({name.upper(): str(value) for name, value in options_of_kept_programs().items()})
        self.read_files = FilesRead()
        self.opened: tuple[str, Loaded] | None = None
        self.parts: PartsOfModule | None = None
        self.examination: Examination | None = None
        self.examined_at: str | None = None
        self.before: list[ExaminedBefore] = []
        self.refused: list[tuple[Any, BadTarget]] = []
        self.unmade: dict[str, BadTarget] = {}
        self.variant = ""
        self.whole: tuple[str | None, WholeModule] | None = None
        self.given: dict[tuple[str | None, ...], GivenAs] = {}
        return Environment({"numpy": np.__version__}, {"threads": threads})

    def other(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Sendable]:
        """The requests `examine`, `way_back`, `vary`, `files_read`, `call` and `trace`."""
        if message["op"] == "call":
            return self.called(message, tensors)
        if message["op"] == "trace":
            return self.traced(message, tensors)
        if message["op"] == "way_back":
            if self.examination is None:
                raise RuntimeError("nothing was examined")
            answers = WayBackAnswers(asked=way_back(self.examination))
            return {"description": answers.model_dump(mode="json")}, {}
        if message["op"] == "masks_of_model":
            return {"description": self.masks_of_model().model_dump(mode="json")}, {}
        if message["op"] == "files_read":
            return {"description": self.read_files.answer().model_dump(mode="json")}, {}
        if message["op"] == "vary":
            return self.varied(message["variant"])
        if message["op"] != "examine":
            return super().other(message, tensors)
        try:
            with within(message.get("seconds")):
                description, tensors = self.examined(message)
        except BadTarget as error:
            return {"description": {"problem": error.as_problem().model_dump(mode="json")}}, {}
        except TookTooLong as error:
            problem = too_long("it could not be looked into", error).as_problem()
            return {"description": {"problem": problem.model_dump(mode="json")}}, {}
        except BaseException as error:  # one of the module's own, and no Exception
            if isinstance(error, (Exception, KeyboardInterrupt)):
                raise
            problem = BadTarget(last_frames(error)).as_problem()
            return {"description": {"problem": problem.model_dump(mode="json")}}, {}
        return {"description": description}, tensors

    def examined(self, message: dict[str, Any]) -> tuple[dict[str, Any], Tensors]:
        """The description, and as tensors the own values and the source of an adapter. Raises BadTarget."""
        said = ""
        if message["narrow"]:
            arguments, said = narrower(message["target"], message["arguments"], Path(message["folder"]))
            message = {**message, "arguments": arguments}
        framework, module, supposed = self.loaded_target(message)
        message = {**message, "arguments": {**message["arguments"], **supposed}}
        assert self.parts is not None
        whole = framework.at(module, message["at"])
        framework.refuse_unfit(whole)
        if message["listed"]:
            return self.listed(framework, whole, message["at"])
        self.variant = ""
        self.examination = self.whole = None
        if message["at"]:
            whole = self.parts.at(message["at"]) or whole
        if message["like"] and (answer := self.answered_before(framework, whole, message["at"])):
            return answer
        found = self.read(whole, message)
        found.left_out = tuple(each for each in framework.wrappers(module) if each not in found.module.wrappers)
        found.notes += (noted("model-made-narrower", said, arguments=message["arguments"]),) if said else ()
        if supposed:
            made = f"it was made with {as_options(supposed)}, as the names of its arguments suggest"
            found.notes += (noted("arguments-supposed", made, arguments=dict(supposed)),)
        self.examination, self.examined_at = found, message["at"]
        if message["at"]:
            self.before = [*self.before, ExaminedBefore(message["at"], whole, found)][-_REMEMBERED:]
        self.semantics, self.always_causal, self.places = found.semantics, found.always_causal, found.stages
        description = described(found)
        self.ungiven = description.ungiven
        source, said = adapter_source(found, {key: message[key] for key in ("target", "arguments", "folder", "at")})
        description = description.model_copy(update={"no_adapter": said})
        program = np.frombuffer(source.encode(), dtype=np.uint8)
        if message["like"] and sum(map(prod, found.module.shapes.values())) > _MANY:  # more of a large model is to come
            give_freed_memory_back()
        return description.model_dump(mode="json"), {**found.own_values, PROGRAM: program}

    def listed(self, framework: ModuleFramework, whole: Any, path: str | None) -> tuple[dict[str, Any], Tensors]:
        """The layers in this part, what else may be one, and own vectors of the part that are of no layer."""
        assert self.parts is not None
        if self.is_layer_itself(framework, path):
            return {"candidates": []}, framework.vectors(whole, [])
        parts = (framework.parts(whole) if path else self.parts).listed()
        return {"candidates": parts, "beside": others(framework.tree, whole, parts)}, framework.vectors(whole, parts)

    def masks_of_model(self) -> ModelMasks:
        """Those of the whole module that was named last."""
        if self.opened is None:
            raise RuntimeError("nothing was named")
        framework, module, _ = self.opened[1]
        with framework.undisturbed():
            try:
                found = masks_of_model(framework.whole(module), lambda: widths_taken(framework.live(module)))
            except BadTarget as error:
                return ModelMasks(framework=framework.name, problem=error.problem)
        lines = ((mask, line_of_argument(module, mask.argument)) for mask in found)
        masks = tuple(mask.model_copy(update={"where": line}) for mask, line in lines)
        return ModelMasks(framework=framework.name, masks=masks)

    def is_layer_itself(self, framework: ModuleFramework, path: str | None) -> bool:
        """Whether what was examined last is the part at this path, which is one layer, though none that is known: its
        attention alone, which would be found in it, is no other."""
        if self.examination is None or self.examined_at != path:
            return False
        bench = self.examination.bench("float32")
        return framework.is_layer(bench.module, bench.feeds(bench.x()))

    def read(self, whole: Any, message: dict[str, Any]) -> Examination:
        """Raises BadTarget, and keeps what was refused."""
        try:
            return examine(
                whole,
                _stated(message),
                resize=message["resize"],
                dtypes=tuple(message["dtypes"]),
                told=lambda x_name: told_by(message, x_name, whole),
            )
        except BadTarget as error:
            self.refused = [*self.refused, (whole, error)][-_REMEMBERED:]
            raise

    def answered_before(
        self, framework: ModuleFramework, whole: Any, path: str | None
    ) -> tuple[dict[str, Any], Tensors] | None:
        """The description of a part that is like one before it, and its own values. Raises BadTarget for one like a
        part that was refused, and for a whole that is to be read layer by layer."""
        assert self.parts is not None
        elements = framework.elements(whole)
        if elements > MOST_AS_ONE and len(self.layers_in(path)) > 1:
            problem, hint = f"it has {elements:,} parameters, and is not read as one", "--at names a layer of it"
            raise BadTarget(problem, hint, "too-large-as-one", parameters=elements)
        for part, error in self.refused:
            if framework.are_alike(part, whole):
                raise error
        for before in self.before:
            if (values := before.values_of(whole)) is not None:
                description = before.described.model_copy(update={"same_as": before.at})
                return description.model_dump(mode="json"), values
        return None

    def layers_in(self, path: str | None) -> list[str]:
        """The paths of the layers in the part at this path."""
        assert self.parts is not None
        return [each for each in self.parts.listed() if path is None or each.startswith(f"{path}.")]

    def varied(self, word: str) -> tuple[dict[str, Any], Tensors]:
        """Answer as this variant from here on, which is called once to see whether it can be made here."""
        if self.examination is None:
            raise RuntimeError("nothing was examined")
        self.variant = word
        try:
            if word:
                bench = self.examination.bench(VARIANTS[word].dtype)
                form = self.examination.framework.in_form(bench.module, word)
                replace(bench, module=form).output(bench.x())
        except ExecutionError as error:
            problem = Problem(message=str(error).splitlines()[0], hint="", kind="form-not-made")
            return {"description": {"problem": problem.model_dump(mode="json")}}, {}
        return {"description": {}}, {}

    def loaded_target(self, message: dict[str, Any]) -> Loaded:
        """The module that a request names, made once for all that name it. Raises BadTarget."""
        key = json.dumps([message["target"], message["arguments"]])
        work_in(Path(message["folder"]))
        if self.opened is None or self.opened[0] != key:
            supposing = stated_by(_stated(message), message["resize"]) if message.get("supposing") else None
            if key in self.unmade:
                raise self.unmade[key]
            try:
                with within(message.get("seconds_to_make")), collecting_seldom():
                    made = load_target(message["target"], message["arguments"], Path(message["folder"]), supposing)
            except BadTarget as error:
                self.unmade[key] = error
                raise
            self.opened, self.parts = (key, made), made.framework.parts(made.module)
            self.whole, self.given = None, {}
        return self.opened[1]

    def called(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
        """The outputs of the whole module, or of the part that is named."""
        whole, given = self.whole_given(message, tensors)
        copied = whole.disturbed(message["precision"], message["seed"], message["roundoff"])
        given, answer = _answered(copied, given, tensors)
        self.given[message["at"], *tensors] = given
        taken = {*given.arguments.values(), given.holder}
        left = [each.name for each in whole.taken if each.name not in taken]
        if not message["kept"]:
            del whole, copied
            self.whole = None
            give_freed_memory_back()
        said = {"given": dict(given.arguments), "in_order": list(given.in_order), "left": left}
        return {"outputs": list(answer), **said}, answer

    def traced(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
        """What it computes inside, step by step. The copy that shows it is not kept."""
        whole, given = self.whole_given(message, tensors)
        copied = whole.disturbed(message["precision"], None, 0.0)
        steps, values = copied.steps(given.fed(tensors))
        del whole, copied
        self.whole = None
        give_freed_memory_back()
        return {"steps": [step.model_dump(mode="json") for step in steps]}, values

    def whole_given(self, message: dict[str, Any], tensors: Tensors) -> tuple[WholeModule, GivenAs]:
        """The whole module, or its part, and which argument each input is: as in the last call that was answered, if
        nothing but their order says so. Raises ValueError for what names none."""
        try:
            framework, module, _ = self.loaded_target(message)
            if self.whole is None or self.whole[0] != message["at"]:
                self.whole = message["at"], framework.whole(framework.at(module, message["at"]))
            whole = self.whole[1]
            ordered = {name: tensors[name] for name in message["inputs"]}
            given = self.given.get((message["at"], *tensors)) or whole.given_as(ordered)
        except BadTarget as error:
            raise ValueError(f"{error.problem} ({error.hint})" if error.hint else error.problem) from None
        return whole, given

    def loaded(self, parameters: Tensors, dtype: str) -> tuple[LiveModule, ElementMap]:
        found = self.examination
        if found is None or found.map is None:
            raise RuntimeError("nothing was examined, or no map was found")
        module = found.module.in_dtype(dtype)
        module.seeded = False
        found.map.load(module, parameters)
        return found.framework.in_form(module, self.variant) if self.variant else module, found.map


def _stated(message: dict[str, Any]) -> Layer | None:
    """The layer that the module should be, if the user says so."""
    return None if message["layer"] is None else Layer.model_validate_json(json.dumps(message["layer"]))


def _answered(whole: WholeModule, given: GivenAs, tensors: Tensors) -> tuple[GivenAs, dict[str, Array]]:
    """What a module answers, in the first order of its arguments that it does not refuse. Raises what it raises in the
    order that was likeliest; ValueError with both lists where one argument held all."""
    first: Exception | None = None
    for order in given.orders():
        try:
            return order, whole.outputs(order.fed(tensors))
        except Exception as error:  # whatever a module does with what is not its own
            first = first or error
    assert first is not None
    if given.holder:
        both = f"the file takes {', '.join(given.arguments)}, and the source {given.holder} alone"
        raise ValueError(f"{both}; given all in one: {str(first).splitlines()[0]}") from None
    raise first


if __name__ == "__main__":
    serve(ModuleTarget())
