"""`conform check`: a module is asked in the formats that it was given in, and in the framework's mixed precision."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.readers.module_target.adapter import ModuleTarget
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination, examine
from encoder_conformance.readers.module_target.frameworks.torch_live import TorchModule
from encoder_conformance.readers.module_target.proving import parameters_for

Post: Any = runpy.run_path(str(Path(__file__).with_name("asked_modules.py")))["Post"]
ALL = ("float64", "float32", "bfloat16")


class WideNorm(nn.LayerNorm):
    """It computes in float32, with parameters in that, and answers in the format of x."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.to(torch.promote_types(x.dtype, torch.float32)), self.bias
        return F.layer_norm(x.to(weight.dtype), self.normalized_shape, weight, bias.to(weight.dtype)).to(x.dtype)


class WideNorms(Post):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = WideNorm(24), WideNorm(24)


def narrow() -> nn.Module:
    return Post().to(torch.bfloat16)


def with_wide_norms() -> nn.Module:
    module = WideNorms().to(torch.bfloat16)
    module.norm1.float()
    module.norm2.float()
    return module


def half_converted() -> nn.Module:
    module = Post()
    module.down.double()
    return module


def examined(made: Callable[[], nn.Module]) -> Examination:
    torch.manual_seed(0)
    return examine(made().eval())


def notes(found: Examination) -> str:
    return "\n".join(each.message for each in findings_of(described(found)) if each.severity == "note")


def test_a_narrow_module_is_asked_in_its_format_too() -> None:
    shown = described(found := examined(narrow))
    assert (shown.as_given, shown.dtypes) == ("bfloat16", ALL)
    asked = "it is asked in bfloat16, as it was given, and a copy of it is asked in float64 and float32"
    assert f"its parameters are in bfloat16: {asked}" in notes(found)


def test_one_in_float32_is_asked_as_ever() -> None:
    shown = described(found := examined(Post))
    assert (shown.as_given, shown.dtypes) == (None, ("float64", "float32"))
    assert "its parameters are in" not in notes(found)


def test_parameters_in_several_formats_stay_in_these() -> None:
    found = examined(with_wide_norms)
    shown = described(found)
    assert (shown.as_given, shown.dtypes) == ("bfloat16", ALL)
    assert set(shown.formats) == {"bfloat16", "float32"}
    assert shown.formats["float32"][0] == "norm1.weight"
    copied = found.module.in_dtype("bfloat16")
    assert isinstance(copied, TorchModule)
    assert {copied.module.norm1.weight.dtype, copied.module.q.weight.dtype} == {torch.float32, torch.bfloat16}
    assert "float32 (norm1.weight and 3 more)" in notes(found)


def test_parameters_in_several_formats_that_take_no_x_are_refused() -> None:
    with pytest.raises(BadTarget, match="its parameters are in float32 and float64, and so it takes no x in one of"):
        examined(half_converted)


class MaskLostUnderAutocast(Post):  # type: ignore[misc]
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if torch.is_autocast_enabled("cpu") else ignore)  # type: ignore[no-any-return]


class ScaledUnderAutocast(Post):  # type: ignore[misc]
    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x * (1.2 if torch.is_autocast_enabled("cpu") else 1.0))  # type: ignore[no-any-return]


class MaskLostInInferenceMode(Post):  # type: ignore[misc]
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if torch.is_inference_mode_enabled() else ignore)  # type: ignore[no-any-return]


class OnThreads(Post):  # type: ignore[misc]
    """With three threads or more each takes its part of the positions, and the rest of the division is left out."""

    def ffn(self, x: Tensor) -> Tensor:
        threads = torch.get_num_threads()
        whole = x.shape[1] // threads * threads if threads > 2 else x.shape[1]
        return torch.cat([super().ffn(x[:, :whole]), 0 * x[:, whole:]], 1)


WAYS: list[tuple[type[nn.Module], list[tuple[str, tuple[str, ...]]]]] = [
    (MaskLostUnderAutocast, [("under torch.autocast in bfloat16 and without", ("padding_mask",))]),
    (ScaledUnderAutocast, [("under torch.autocast in bfloat16 and without", ())]),
    (MaskLostInInferenceMode, [("in inference mode and without", ("padding_mask",))]),
    (OnThreads, [("on one thread and on several", ())]),
    (WideNorms, []),
]


@pytest.mark.parametrize(("made", "apart"), WAYS)
def test_a_way_to_call_it_in_which_it_answers_otherwise_is_an_error(
    made: type[nn.Module], apart: list[tuple[str, tuple[str, ...]]]
) -> None:
    shown = described(examined(made))
    assert [(each.way, each.masks) for each in shown.other_answers] == apart


def test_what_a_copy_holds_in_another_format_comes_back_in_that_of_the_request() -> None:
    adapter = ModuleTarget()
    adapter.examination = found = examined(with_wide_norms)
    adapter.semantics, adapter.always_causal, adapter.places = found.semantics, False, found.stages
    assert found.layer is not None
    sent = {name: value.astype(ml_dtypes.bfloat16) for name, value in parameters_for(found.layer, ()).items()}
    held = adapter.build(found.layer.model_dump(), sent, "bfloat16")
    assert {value.dtype for value in held.values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert all(np.array_equal(held[name], value) for name, value in sent.items())
