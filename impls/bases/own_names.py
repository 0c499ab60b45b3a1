"""The parameters of an encoder of ours: all that the plan has, under the names that a framework gives them."""

from collections.abc import Callable, Mapping

from encoder_conformance import ParameterMap, Take
from encoder_conformance.spec.steps import STEPS, STEPS_OF_LAYERS


def parameter_map(
    own: Mapping[str, str], take: Callable[[str], Take] = Take, *, joined_by: str = ".", of_layer: str = "layers.{}."
) -> ParameterMap:
    """`own`: what a whole name, an owner such as `attention.query` or a role such as `gain` is called; all else keeps
    its name. `take`: how a parameter of a layer is made, by its name."""
    of_layers = [name for step in STEPS_OF_LAYERS.values() for name in step.parameter_axes()]
    around = [name for step in STEPS.values() for name in step.parameter_axes() if name not in of_layers]

    def called(name: str) -> str:
        owner, _, role = name.rpartition(".")
        return own.get(name, f"{own.get(owner, owner)}.{own.get(role, role)}").replace(".", joined_by)

    return ParameterMap(
        {called(name): take(name) for name in of_layers}, {called(name): Take(name) for name in around}, of_layer
    )
