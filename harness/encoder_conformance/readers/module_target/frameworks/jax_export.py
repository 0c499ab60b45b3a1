"""Exports a function of x on JAX to ONNX, so that the graph can be read."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.interpreters import partial_eval as pe

from encoder_conformance.impls.bases.jax_layers.exporter import exporter
from encoder_conformance.readers.module_target.frameworks.jax_complex import has_complex, without_complex
from encoder_conformance.readers.module_target.frameworks.jax_plainer import may_be_plainer, plainer
from encoder_conformance.readers.module_target.frameworks.kept_exports import recalled_or
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_MADE_BY = ("jax", "jaxlib", "jax2onnx", "onnx", "onnx_ir", "numpy")


def exported(function: Callable[[jax.Array], jax.Array], x_shape: tuple[int, ...]) -> onnx.ModelProto:
    """Exports by jax2onnx what JAX traces: it has forms of its own for functions of libraries, and not for all choices.

    Raises ExecutionError if it is not installed.
    """
    given = jax.ShapeDtypeStruct(x_shape, jnp.float32)
    program, held = _needed(jax.make_jaxpr(function)(given))
    if any(map(jnp.iscomplexobj, held)) or has_complex(program):
        program, held = _needed(without_complex(program, held, given))
    if may_be_plainer(program):
        program, held = _needed(plainer(program, held, given))

    def export() -> onnx.ModelProto:
        try:
            to_onnx = exporter()
        except ImportError:
            raise ExecutionError(f"jax2onnx is not installed: {install('jax2onnx')}") from None
        return to_onnx(lambda x: jax.core.eval_jaxpr(program, held, x)[0], [given])

    known = None
    with suppress(Exception):  # what cannot be lowered may still be exported
        known = _known_by(program, held, given)
    return _with_axes_named_once(recalled_or(export, known, _MADE_BY))


def _with_axes_named_once(model: onnx.ModelProto) -> onnx.ModelProto:
    """The export, in which a product that sums over nothing has each axis of its output once: jax2onnx writes those of
    the batch twice, as in zya,zyb->zyazyb, which nothing runs."""
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Einsum" else ():
            taken, arrow, given = attribute.s.decode().partition("->")
            attribute.s = f"{taken}{arrow}{''.join(dict.fromkeys(given))}".encode()
    return model


def _needed(traced: Any) -> tuple[Any, list[Any]]:
    """The program of x without what its result does not need, and its constants: a compiled part is given its random
    keys, which no exporter takes, though it draws nothing."""
    program, needed, _ = pe.dce_jaxpr_consts(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    return program, [constant for constant, is_needed in zip(traced.consts, needed, strict=True) if is_needed]


def _known_by(program: Any, held: list[Any], given: jax.ShapeDtypeStruct) -> list[str]:
    """What an export is known by: the program as it is traced, which has the names of functions, and as it is lowered,
    which has all numbers but those that it holds; and these."""
    lowered = jax.jit(lambda held, x: jax.core.eval_jaxpr(program, held, x)).lower(held, given)
    digest = hashlib.sha256()
    for each in held:
        digest.update(np.asarray(each).tobytes())
    return [str(program), lowered.as_text(), digest.hexdigest()]
