"""Answers each request out of a file of answers: the question is found by its tensors (docs/tensors.md)."""

from typing import Any

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np
import safetensors.numpy

from encoder_conformance import Adapter, Array, Environment, Masks, RunRequest, Tensors, serve
from encoder_conformance.protocol.tensors import ASKED, COTANGENT, PARAMETERS, digest_of, question_tensors

GRADIENT = "gradient."


class TensorFile(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        asked = safetensors.numpy.load_file(self.choices["asked"])
        by_question: dict[str, Tensors] = {}
        parameters: dict[str, Tensors] = {}
        for name, value in asked.items():
            group, _, rest = name.partition("/")
            if rest.startswith(f"{PARAMETERS}/"):
                parameters.setdefault(group, {})[rest.removeprefix(f"{PARAMETERS}/")] = value
            elif name != ASKED:
                question, _, tensor = name.rpartition("/")
                by_question.setdefault(question, {})[tensor] = value
        self.groups = {digest_of(held): group for group, held in parameters.items()}
        self.questions = {
            (question.partition("/")[0], question_digest(tensors)): question
            for question, tensors in by_question.items()
        }
        self.answers: dict[str, Tensors] = {}
        for name, value in safetensors.numpy.load_file(self.choices["answers"]).items():
            question, _, tensor = name.rpartition("/")
            self.answers.setdefault(question, {})[tensor] = value
        return Environment({"numpy": np.__version__, "safetensors": safetensors.__version__})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.heads = layer["attention"]["num_heads"]
        self.group = self.groups[digest_of(parameters)]
        return parameters

    def answered(self, x: Array, masks: Masks, run: RunRequest) -> tuple[str, Tensors]:
        """The question that x [B, S, D] and its masks are, and its answer."""
        tensors = question_tensors(x, masks.joined(self.heads), masks.added(self.heads), self.heads, run.memory)
        question = self.questions[self.group, question_digest(tensors)]
        return question, self.answers.get(question, {})

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        """The output, as x is: [B, S, D] or in the layout of the run."""
        question, answer = self.answered(x, masks, run)
        if "output" not in answer:
            raise LookupError(f"the answers have no tensor {question}/output")
        return answer["output"]

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """The stages of x [B, S, D], by name."""
        answer = self.answered(x, masks, run)[1]
        return {name: value for name, value in answer.items() if not name.startswith(GRADIENT)}

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        """The gradients by x [B, S, D] and by each parameter, for a gradient of the output in the shape of x."""
        answer = self.answered(x, masks, run)[1]
        return {name.removeprefix(GRADIENT): value for name, value in answer.items() if name.startswith(GRADIENT)}


def question_digest(tensors: Tensors) -> bytes:
    return digest_of({name: value for name, value in tensors.items() if name != COTANGENT})


if __name__ == "__main__":
    serve(TensorFile())
