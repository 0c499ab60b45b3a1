"""How layers of transformers, JAX and Keras are called, and what a call of one means to the other."""

import runpy
from pathlib import Path
from typing import Any

import jax
import keras
import pytest
import transformers
from calling import called, said

from encoder_conformance.commands.check.arguments import argument_findings
from encoder_conformance.subjects.interfaces import compared

HERE = Path(__file__).parent
BARE: dict[str, Any] = runpy.run_path(str(HERE / "bare_modules.py"))
D, H = BARE["D"], BARE["H"]


@pytest.mark.parametrize(
    ("model", "layer", "without"),
    [
        ("roformer", "RoFormerLayer", ("sinusoidal_pos",)),
        pytest.param("mpnet", "MPNetLayer", ("position_bias",), marks=pytest.mark.release),
        pytest.param("bert", "BertLayer", (), marks=pytest.mark.release),
    ],
)
def test_layers_of_transformers_that_need_positions(model: str, layer: str, without: tuple[str, ...]) -> None:
    modeling = __import__(f"transformers.models.{model}.modeling_{model}", fromlist=[layer])
    names = {"bert": "BertConfig", "mpnet": "MPNetConfig", "roformer": "RoFormerConfig"}
    sizes = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": 24}
    found = called(getattr(modeling, layer)(getattr(transformers, names[model])(**sizes)))
    assert found.judged_without == without
    assert said(argument_findings(found), "error") == []
    assert [mask.argument for mask in found.masks] == ["attention_mask"]


@pytest.mark.release
def test_the_same_of_jax() -> None:
    bare = runpy.run_path(str(HERE / "bare_jax.py"))
    function, parameters = bare["function"]

    def turned(p: Any, x: Any, mask: Any = None) -> Any:
        return function(p, x, None if mask is None else ~mask.astype(bool))

    def positioned(p: Any, x: Any, mask: Any = None, *, positions: Any = None) -> Any:
        return function(p, x if positions is None else x + jax.numpy.sin(positions)[..., None], mask)

    plain, other = called((function, parameters)), called((turned, parameters))
    assert said(compared(plain, other, ("A", "B")), "error") == ["mask: true = ignore in A, true = attend in B"]
    assert called((positioned, parameters)).judged_without == ("positions",)


@pytest.mark.release
def test_the_same_of_keras() -> None:
    bare = runpy.run_path(str(HERE / "bare_keras.py"))

    class Turned(bare["Block"]):
        def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
            return super().call(x, None if mask is None else keras.ops.logical_not(mask), training)

    class Positioned(bare["Block"]):
        def call(self, x: Any, mask: Any = None, table: Any = None, training: bool | None = None) -> Any:
            return super().call(x if table is None else x + table, mask, training)

    plain = called(bare["Block"]())
    assert said(compared(plain, called(Turned()), ("A", "B")), "error") == [
        "mask: true = attend in A, true = ignore in B"
    ]
    positioned = called(Positioned())
    assert positioned.judged_without == ("table",)
    assert said(compared(plain, positioned, ("A", "B"))) == []
