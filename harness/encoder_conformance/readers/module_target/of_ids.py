"""Tells that a module wants ids [batch, sequence] in the place of x: it is a model, and no layer."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

_TELLING = 24
"""Ways to call it with numbers after which it is asked with ids."""
_MOST_OF_IDS = 60
"""Those in which it is given ids in the place of x."""
_OF_INTEGERS = "integer", "scalar types: Long, Int"
"""Words of what is raised for numbers in the place of ids."""


class RefusedWays:
    """The ways to call a module with numbers that it refused, and whether that is since x should have been ids."""

    def __init__(self, module: LiveModule) -> None:
        self._module, self._asked = module, 0
        self.ways, self.problems = list[Arrangement](), list[str]()

    def want_integers(self) -> bool:
        """Whether it answers to ids, called as it was with numbers; or raises the same of integers whatever stands
        beside x, integers too."""
        if len(self.problems) < _TELLING:
            return False
        asked, self._asked = self._asked, min(len(self.ways), _MOST_OF_IDS)
        if any(_answers_ids(self._module, each) for each in self.ways[asked : self._asked]):
            return True
        if not any(words in self.problems[0] for words in _OF_INTEGERS) or len(set(self.problems)) > 1:
            return False
        beside = (each.beside.values() for each in self.ways)
        return any(all(supply.kind != "none" and supply.dtype == "int64" for supply in each) for each in beside)


def takes_ids(module: LiveModule, ways: Iterable[Arrangement]) -> bool:
    """Whether it answers to ids [3, 5], and to no numbers of that shape, in one of these `ways` to call it."""
    others = (module.arranged(way) for way in (module.signature.arrangement, *ways) if _answers_ids(module, way))
    return any(not other.takes(drawn((BATCH, SEQUENCE))) for other in others if other is not None)


def _answers_ids(module: LiveModule, arrangement: Arrangement) -> bool:
    """Whether it gives anything for ids [3, 5], which every vocabulary has, or for an item of them."""
    forms = dict.fromkeys((arrangement.form, *(["SD"] if module.may_take_items == "mapped" else [])))
    others = (module.arranged(replace(arrangement, form=form)) for form in forms)
    ids = np.ones((BATCH, SEQUENCE), np.int64)
    return any(_gives(other, ids) for other in others if other is not None)


def _gives(module: LiveModule, x: Array) -> bool:
    """Whether it gives anything for x, of whatever shape."""
    try:
        module.run({"x": x})
    except OtherShape:
        return True
    except ExecutionError:
        return False
    return True


def of_ids(x_name: str) -> BadTarget:
    """Of a model whose parts are no layers: where one is, that is judged, and this is not said."""
    axes = "[batch, sequence] or [sequence, batch]"  # nothing tells which
    problem = f"it takes ids as {x_name}, integers {axes}, and no x [batch, sequence, d_model]"
    hint = "no part of it is a layer by itself: put the steps of one in a module of their own, and name that"
    return BadTarget(problem, hint, "takes-no-x")
