"""ONNX's reference implementation, where its results are taken for the right ones."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from encoder_conformance.spec.axes import Array


class GatherElements(OpRun):  # type: ignore[misc]
    """ONNX's own (of onnx 1.23) raises, for more than 64 elements along the axis, where it is to give more than one."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        """`indices` [*shape] is no larger than `data` along the other axes."""
        along = (axis or 0) % data.ndim
        cut = tuple(slice(None if at == along else size) for at, size in enumerate(indices.shape))
        return (np.take_along_axis(data[cut], indices.astype(np.int64), along),)


def evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=[GatherElements])
