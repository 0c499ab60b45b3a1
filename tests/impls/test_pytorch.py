"""The PyTorch implementation: five bugs planted in it, one at a time, each of which the run must catch and locate."""

from collections.abc import Callable

import pytest

PLANTS = {
    "wrong_epsilon": (
        "torch.nn.LayerNorm.forward = lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight, n.bias, 1e-3)",
        None,
    ),
    "tanh_gelu": ('encoder.ACTIVATIONS["gelu"] = lambda x: F.gelu(x, approximate="tanh")', "ffn_activation"),
    "inverted_mask": (
        "old = encoder.EncoderLayer.forward\n"
        "encoder.EncoderLayer.forward = lambda e, x, mask=None, bias=None, valid=None, tap=encoder.untapped: "
        "old(e, x, None if mask is None else ~mask, bias, None, tap)",
        "attention_weights",
    ),
    "scale_by_d_model": (
        "fused, written_out = F.scaled_dot_product_attention, encoder.MultiHeadAttention.written_out\n"
        "F.scaled_dot_product_attention = lambda q, *kv, **rest: fused(q / q.size(1) ** 0.5, *kv, **rest)\n"
        "encoder.MultiHeadAttention.written_out = lambda a, q, *rest: written_out(a, q / q.size(1) ** 0.5, *rest)",
        "attention_scores",
    ),
    "pre_post_swapped": (
        "old = encoder.EncoderLayer.__init__\n"
        "def swapped(e, *sizes, placement, **rest):\n"
        '    old(e, *sizes, placement="post" if placement == "pre" else "pre", **rest)\n'
        "encoder.EncoderLayer.__init__ = swapped",
        None,
    ),
}
"""Name → the patch, and the stage at which it shows first where that is the same for every layer."""

SCRIPT = """
import torch
from torch.nn import functional as F

from harness.adapter import serve
from impls.pytorch import encoder
from impls.pytorch.adapter import PyTorch

{plant}
serve(PyTorch())
"""


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_fails_the_run(conform: Callable, fake: Callable, plant: str) -> None:
    patch, stage = PLANTS[plant]
    folder = fake(plant, script=SCRIPT.format(plant=patch), requires="[torch]")
    cases = ("--case", "post-gelu/*", "--case", "pre-gelu/*", "--dtype", "float32")
    ended = conform("run", "--impl", folder, *cases)
    assert ended.status == 1, ended.stdout + ended.stderr
    failed = [record for record in ended.report["records"] if record["outcome"] == "fail"]
    assert max(record["rms"] or 0 for record in failed) > 200, "every bug is seen by a wide margin"
    if stage:
        assert {record["stage"] for record in failed if record["check"] == "stages"} == {stage}


def test_the_same_script_without_a_plant_passes(conform: Callable, fake: Callable) -> None:
    folder = fake("unplanted", script=SCRIPT.format(plant=""), requires="[torch]")
    ended = conform("run", "--impl", folder, "--case", "*-gelu/padding-right", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr


def test_sizes_and_choices_that_do_not_fit() -> None:
    from impls.pytorch.encoder import EncoderLayer

    right = {"activation": "gelu", "placement": "pre", "epsilon": 1e-5}
    with pytest.raises(ValueError, match=r"10.*4"):
        EncoderLayer(10, 4, 16, **right)
    with pytest.raises(ValueError, match="swish"):
        EncoderLayer(12, 4, 16, **{**right, "activation": "swish"})
    with pytest.raises(ValueError, match="middle"):
        EncoderLayer(12, 4, 16, **{**right, "placement": "middle"})


@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("pytorch", "PyTorch", 1) > 0.8
    assert busiest_thread("pytorch", "PyTorch", 2) < 0.7


def test_every_wrong_form_can_be_planted(planted_forms: Callable[[str], None]) -> None:
    planted_forms("planted_pytorch")


def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("pytorch")
