"""Answers each request out of a file of answers: the question is found by its tensors (docs/tensors.md)."""

from typing import Any

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np
import safetensors.numpy

from encoder_conformance import Adapter, Array, Environment, Masks, RunRequest, Tensors, serve
from encoder_conformance.protocol.tensors import COTANGENT, PARAMETERS, digest_of, question_tensors

GRADIENT = "gradient."


class TensorFile(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        self.groups: dict[bytes, str] = {}
        self.questions: dict[tuple[str, bytes], str] = {}
        for question, tensors in by_question(self.choices["asked"]).items():
            group, _, kind = question.partition("/")
            if kind == PARAMETERS:
                self.groups[digest_of(tensors)] = group
            else:
                self.questions[group, question_digest(tensors)] = question
        self.answers = by_question(self.choices["answers"])
        return Environment({"numpy": np.__version__, "safetensors": safetensors.__version__})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.heads = layer["attention"]["num_heads"]
        self.group = self.groups[digest_of(parameters)]
        return parameters

    def answered(self, x: Array, masks: Masks, run: RunRequest) -> tuple[str, Tensors]:
        """The question that x [B, S, D] and its masks are, and its answer."""
        tensors = question_tensors(
            x, masks.joined(self.heads), masks.added(self.heads), self.heads, run.memory, run.token_types
        )
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


def by_question(path: str) -> dict[str, Tensors]:
    """The tensors of a file, each under the last part of its name, by all before it."""
    found: dict[str, Tensors] = {}
    for name, value in safetensors.numpy.load_file(path).items():
        question, _, tensor = name.rpartition("/")
        found.setdefault(question, {})[tensor] = value
    return found


def question_digest(tensors: Tensors) -> bytes:
    return digest_of({name: value for name, value in tensors.items() if name != COTANGENT})


if __name__ == "__main__":
    serve(TensorFile())
