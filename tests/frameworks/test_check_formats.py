"""`conform check`: a module is asked in the formats that it was given in, and in the framework's mixed precision."""

import importlib
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from calling import called
from products import daily
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance import Masks
from encoder_conformance.commands.check.arguments import argument_findings
from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.readers.module_target.adapter import ModuleTarget
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK
from encoder_conformance.readers.module_target.frameworks.torch_live import TorchModule
from encoder_conformance.readers.module_target.masking import with_masks
from encoder_conformance.readers.module_target.probing import first_x, live_semantics
from encoder_conformance.readers.module_target.proving import parameters_for
from encoder_conformance.readers.module_target.ways import other_answers

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


@pytest.mark.release
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


@pytest.mark.parametrize(("made", "apart"), daily([WAYS[0]], WAYS))
def test_a_way_to_call_it_in_which_it_answers_otherwise_is_an_error(
    made: type[nn.Module], apart: list[tuple[str, tuple[str, ...]]]
) -> None:
    shown = described(examined(made))
    assert [(each.way, each.masks) for each in shown.other_answers] == apart


@pytest.mark.release
def test_what_a_copy_holds_in_another_format_comes_back_in_that_of_the_request() -> None:
    adapter = ModuleTarget()
    adapter.examination = found = examined(with_wide_norms)
    adapter.semantics, adapter.always_causal, adapter.places = found.semantics, False, found.stages
    adapter.variant = ""
    assert found.layer is not None
    sent = {name: value.astype(ml_dtypes.bfloat16) for name, value in parameters_for(found.layer, ()).items()}
    held = adapter.build(found.layer.model_dump(), sent, "bfloat16")
    assert {value.dtype for value in held.values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert all(np.array_equal(held[name], value) for name, value in sent.items())


class OtherEpsilon(nn.LayerNorm):
    """Wrong in float64 alone."""

    def forward(self, x: Tensor) -> Tensor:
        eps = 1e-3 if x.dtype == torch.float64 else self.eps
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, eps)


class WrongInFloat64(Post):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = OtherEpsilon(24), OtherEpsilon(24)


class CastInside(Post):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = CastNorm(24), CastNorm(24)


class CastNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).to(x.dtype) if x.dtype == torch.float32 else self._cast(x)

    def _cast(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return F.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class CausalAndCast(CastInside):
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        found = super().scores(q, k, ignore)
        later = torch.ones(found.shape[-2:], dtype=torch.bool).triu(1)
        return found.masked_fill(later, -torch.inf)  # type: ignore[no-any-return]


@pytest.mark.release
@pytest.mark.parametrize(("made", "cast"), [(WrongInFloat64, False), (CastInside, True), (CausalAndCast, True)])
def test_what_is_wrong_in_float64_is_not_taken_for_a_cast_to_float32(made: type[nn.Module], cast: bool) -> None:
    found = examined(made)
    assert found.proof is not None
    assert found.proof.holds, "in float32"
    assert found.narrow_inside is cast
    assert described(found).dtypes == (("float32",) if cast else ("float64", "float32"))


@pytest.mark.release
@pytest.mark.parametrize(("name", "cast"), [("GainOfTheOtherBranch", False), ("GainOfTheOtherBranchCast", True)])
def test_what_is_wrong_in_both_formats_is_judged_in_float64_unless_something_in_it_is_cast(
    monkeypatch: pytest.MonkeyPatch, name: str, cast: bool
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    found = examined(getattr(importlib.import_module("cases_mistakes"), name))
    assert found.proof is not None
    assert not found.proof.holds
    assert found.narrow_inside is cast
    assert found.wrong_by_that_alone
    assert described(found).dtypes == (("float32",) if cast else ("float64", "float32"))


class MaskLostInTraining(Post):  # type: ignore[misc]
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if self.training else ignore)  # type: ignore[no-any-return]

    def ffn(self, x: Tensor) -> Tensor:
        return F.dropout(super().ffn(x), 0.1, self.training)


class Dropped(Post):  # type: ignore[misc]
    """With dropout of every kind, and a path that is dropped by a draw of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.attention = nn.Dropout(0.1), nn.MultiheadAttention(24, 4, dropout=0.2, batch_first=True)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.drop(self.attention(x, x, x, key_padding_mask=ignore, need_weights=False)[0])  # type: ignore[no-any-return]


class PathDropped(Dropped):
    def ffn(self, x: Tensor) -> Tensor:
        kept = torch.rand(x.shape[0], 1, 1) < 0.5 if self.training else 1.0
        return super().ffn(x) * kept


TRAINED = [
    (MaskLostInTraining, [("in training, with nothing dropped, and in evaluation,", ("padding_mask",))]),
    (Dropped, []),
    (PathDropped, []),
]


@pytest.mark.parametrize(("made", "apart"), daily(TRAINED[:1], TRAINED))
def test_in_training_it_answers_as_in_evaluation_where_nothing_is_dropped(
    made: type[nn.Module], apart: list[tuple[str, tuple[str, ...]]]
) -> None:
    torch.manual_seed(0)
    module = FRAMEWORK.live(made().eval())
    semantics, _ = with_masks(module, live_semantics(module, first_x(module)), 4)
    ways = other_answers(module, semantics, 4, always_causal=False)
    assert [(each.way, each.masks) for each in ways] == apart


class TwoMasks(Post):  # type: ignore[misc]
    def forward(self, x: Tensor, mask: Tensor | None = None, key_padding_mask: Tensor | None = None) -> Tensor:
        self.mask = mask
        return super().forward(x, key_padding_mask)  # type: ignore[no-any-return]

    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        scores = super().scores(q, k, ignore)
        return scores if self.mask is None else scores.masked_fill(self.mask, torch.finfo(q.dtype).min)  # type: ignore[no-any-return]


class TurnedMask(TwoMasks):
    def forward(self, x: Tensor, mask: Tensor | None = None, key_padding_mask: Tensor | None = None) -> Tensor:
        return super().forward(x, None if mask is None else mask.transpose(-1, -2), key_padding_mask)


def test_of_two_masks_each_has_to_do_its_own_work() -> None:
    torch.manual_seed(0)
    module = FRAMEWORK.live(TwoMasks().eval())
    semantics, _ = with_masks(module, live_semantics(module, first_x(module)), 4)
    x, valid = np.zeros((2, 6, 24), np.float32), np.ones((2, 1, 1, 6), np.bool_)
    valid[1, ..., 4:] = False
    masks = Masks(valid, np.tril(np.ones((1, 1, 6, 6), np.bool_)), sequence=6)
    feeds = module_feeds(semantics, x, masks, 4, always_causal=False)
    assert (feeds["key_padding_mask"] == ~valid[:, 0, 0]).all()
    assert (feeds["mask"] == ~masks.attention).all(), "what the other says is not said twice"


def test_a_mask_of_keys_before_queries_is_an_error() -> None:
    for made, due in ((TwoMasks, False), (TurnedMask, True)):
        errors = [each for each in argument_findings(called(made(), 4)) if each.severity == "error"]
        assert [each.message for each in errors] == (
            ["mask [batch, heads, sequence, sequence] has keys on its last axis but one, and queries on its last"] * due
        )
