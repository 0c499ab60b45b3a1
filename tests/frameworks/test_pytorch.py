"""The PyTorch implementation: five bugs planted in it, one at a time, each of which the run must catch and locate."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from acting import acting_in_required_cases
from placed import assert_told
from products import daily

from encoder_conformance.oracle.catalogue import seen_in_evaluation

PLANTS = {
    "wrong_epsilon": (
        "torch.nn.LayerNorm.forward = lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight, n.bias, 1e-3)",
        None,
    ),
    "tanh_gelu": ('feed_forward.ACTIVATIONS["gelu"] = lambda x: F.gelu(x, approximate="tanh")', "ffn_activation"),
    "inverted_mask": (
        "old = encoder.EncoderLayer.forward\n"
        "encoder.EncoderLayer.forward = lambda e, x, mask=None, bias=None, valid=None, tap=tap.untapped: "
        "old(e, x, None if mask is None else ~mask, bias, None, tap)",
        "attention_weights",
    ),
    "scale_by_d_model": (
        "fused, written_out = F.scaled_dot_product_attention, attention.MultiHeadAttention.written_out\n"
        "F.scaled_dot_product_attention = lambda q, *kv, **rest: fused(q / q.size(1) ** 0.5, *kv, **rest)\n"
        "attention.MultiHeadAttention.written_out = lambda a, q, *rest: written_out(a, q / q.size(1) ** 0.5, *rest)",
        "attention_scores",
    ),
    "pre_post_swapped": (
        "old = encoder.SubLayer.__init__\n"
        "def swapped(s, *parts, norm_before=None, norm_of_sum=None, **more):\n"
        "    old(s, *parts, norm_before=norm_of_sum, norm_of_sum=norm_before, **more)\n"
        "encoder.SubLayer.__init__ = swapped",
        None,
    ),
}
"""Name → the patch, and the stage at which it shows first where that is the same for every layer."""

SCRIPT = """
import torch
from torch.nn import functional as F

from encoder_conformance import serve
from encoder_conformance.impls.bases import tap
from encoder_conformance.impls.pytorch import attention, encoder, feed_forward
from encoder_conformance.impls.pytorch.adapter import PyTorch

{plant}
serve(PyTorch())
"""


@pytest.mark.parametrize("plant", daily(("pre_post_swapped",), PLANTS))
def test_a_planted_bug_fails_the_run(conform: Callable, fake: Callable, plant: str) -> None:
    patch, stage = PLANTS[plant]
    folder = fake(plant, script=SCRIPT.format(plant=patch), requires="[torch]")
    cases = [f"--case={layer}-gelu/{at}" for layer in ("pre", "post") for at in ("padding-right", "low-variance")]
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32", diagnosed=False)
    assert ended.status == 1, ended.stdout + ended.stderr
    failed = [record for record in ended.report["records"] if record["outcome"] == "fail"]
    assert max(record["rms"] or 0 for record in failed) > 200, "every bug is seen by a wide margin"
    if stage:
        assert {record["stage"] for record in failed if record["check"] == "stages"} == {stage}


BACKWARD = {
    "norm_variance": (
        "def norm(n, x):\n"
        "    apart = x - x.mean(-1, keepdim=True)\n"
        "    variance = apart.square().mean(-1, keepdim=True).detach()\n"
        "    return apart / torch.sqrt(variance + n.eps) * n.weight + n.bias\n"
        "torch.nn.LayerNorm.forward = norm",
        {"norm1", "norm2"},
        "detach(sqrt(var(",
    ),
    "gelu_of_tanh": (
        'exact = feed_forward.ACTIVATIONS["gelu"]\n'
        'other = lambda x: F.gelu(x, approximate="tanh")\n'
        'feed_forward.ACTIVATIONS["gelu"] = lambda x: other(x) + (exact(x) - other(x)).detach()',
        {"ffn_activation"},
        "tanh(sqrt(2 / pi)",
    ),
}
"""Name → the patch, the stages whose way back it changes, and a part of the equation that is found."""


@pytest.mark.release
@pytest.mark.parametrize("plant", daily(("gelu_of_tanh",), BACKWARD))
def test_a_bug_of_the_backward_pass_alone_is_named(conform: Callable, fake: Callable, plant: str) -> None:
    patch, stages, found = BACKWARD[plant]
    folder = fake(plant, script=SCRIPT.format(plant=patch), requires="[torch]")
    cases = [f"--case={layer}-gelu/{at}" for layer in ("pre", "post") for at in ("padding-right", "no-mask")]
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    assert ended.status == 1, ended.stdout + ended.stderr
    (diagnosis,) = ended.report["diagnoses"]
    assert (diagnosis["of"], diagnosis["confidence"]) == ("backward", "explained"), ended.stdout
    assert {each["stage"] for each in diagnosis["equations"]} == stages
    assert all(found in each["found"] for each in diagnosis["equations"])


def test_the_same_script_without_a_plant_passes(conform: Callable, fake: Callable) -> None:
    folder = fake("unplanted", script=SCRIPT.format(plant=""), requires="[torch]")
    ended = conform("run", "--impl", folder, "--case", "*-gelu/padding-right", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr


def test_sizes_and_choices_that_do_not_fit() -> None:
    from torch import nn

    from encoder_conformance.impls.pytorch.attention import Maps, MultiHeadAttention
    from encoder_conformance.impls.pytorch.feed_forward import FeedForward
    from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax

    linear, dropout = nn.Linear(10, 10), nn.Dropout(0.0)
    with pytest.raises(ValueError, match=r"10.*4"):
        MultiHeadAttention(Maps(linear, linear, linear, linear), 4, 10, MaskedSoftmax(), dropout)
    with pytest.raises(ValueError, match="swish"):
        FeedForward(linear, "swish", linear, dropout)


def test_a_third_sub_layer_is_one_more_in_the_list_and_a_norm_that_is_not_passed_in_is_not_there() -> None:
    import torch

    from encoder_conformance.impls.pytorch.building import feed_forward_of, layer_parts
    from encoder_conformance.impls.pytorch.encoder import EncoderLayer, SubLayer
    from encoder_conformance.spec.load import load

    layer = load().layers["post-gelu"].model_dump(mode="json")
    bare = SubLayer("last", feed_forward_of(layer), torch.nn.Dropout(0.0))
    encoder = EncoderLayer(**layer_parts(layer), last=bare).eval()
    first_two = EncoderLayer(**layer_parts(layer)).eval()
    first_two.load_state_dict({name: value for name, value in encoder.state_dict().items() if "last" not in name})
    shown: dict[str, torch.Tensor] = {}

    def tap(name: str, stage: torch.Tensor) -> torch.Tensor:
        shown[name] = stage
        return stage

    x = torch.randn(2, 5, layer["d_model"])
    output, before = encoder(x, tap=tap), first_two(x)
    assert list(shown)[-3:] == ["norm2", "residual3", "output"]
    torch.testing.assert_close(shown["norm2"], before)
    torch.testing.assert_close(output, before + encoder.last(before, None))


def test_without_arguments_it_is_the_layer_that_its_manifest_says(conform: Callable) -> None:
    asked = [word for name in ("low-variance", "initialisation", "dropout") for word in ("--case", f"*-512/{name}")]
    ended = conform("run", "--impl", "pytorch:defaults=own", *asked, "--dtype", "float32")
    assert ended.status == 0, ended.messages()
    found = {(record["case"].partition("/")[0], record["outcome"]) for record in ended.report["records"]}
    assert ("pre-gelu-512", "pass") in found
    assert {outcome for layer, outcome in found if layer != "pre-gelu-512"} == {"unsupported"}


@pytest.mark.release
@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("pytorch", "PyTorch", 1) > 0.8
    assert busiest_thread("pytorch", "PyTorch", 2) < 0.7


OF_LAYERS_WITHOUT_PLANTS = {"scale-by-head-dim"}
"""What only layers whose heads share their projections can have."""


def test_every_wrong_form_can_be_planted(planted_forms: Callable[[str], None]) -> None:
    planted_forms("planted_pytorch")


@pytest.mark.release
def test_the_core_sees_every_wrong_form(planted: Callable) -> None:
    """Each deviation of the catalogue, in the real encoder, by output or stages; and nothing where none is planted."""
    core = planted("planted_pytorch", "PlantedPyTorch", "pytorch", "layer_norm", "rms_norm")
    assert list(core.failures([])) == []
    unseen = [
        name for name in seen_in_evaluation() if core.can_have(name) and next(core.failures([name]), None) is None
    ]
    assert unseen == []
    acting = acting_in_required_cases() & {*seen_in_evaluation()}
    assert {name for name in acting if not core.can_have(name)} == OF_LAYERS_WITHOUT_PLANTS


@pytest.mark.release
def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("pytorch")


def kept_for_backward(forward: Callable, x: Any, held: Iterable[Any]) -> int:
    """Bytes that autograd keeps of a forward pass, parameters aside."""
    import torch

    found: dict[int, int] = {}
    left_out = {parameter.untyped_storage().data_ptr() for parameter in held}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in left_out:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward(x)  # holds the graph, and so what is kept, while it is counted
    assert output.shape == x.shape
    return sum(found.values())


def test_checkpointing_keeps_less_for_the_way_back() -> None:
    import torch
    from torch.utils.checkpoint import checkpoint

    from encoder_conformance.impls.pytorch.building import layer_parts
    from encoder_conformance.impls.pytorch.encoder import EncoderLayer
    from encoder_conformance.impls.pytorch.stack import Encoder
    from encoder_conformance.spec.load import load

    layer = load().layers["pre-gelu-dropout"].model_dump(mode="json")
    encoder, *layers = (EncoderLayer(**layer_parts(layer)) for _ in range(4))
    stack = Encoder(layers)
    x = torch.randn(2, 10, 24, requires_grad=True)
    plain = kept_for_backward(encoder, x, encoder.parameters())
    again = kept_for_backward(lambda x: checkpoint(encoder, x, use_reentrant=False), x, encoder.parameters())
    assert again <= x.nbytes < plain / 5
    stack.again = True
    of_stack = kept_for_backward(stack, x, stack.parameters())
    assert of_stack <= 3 * x.nbytes, "what goes into each layer, and nothing inside it"


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("name", ["pre-gelu-512", "post-relu-512"])
def test_what_is_kept_for_backward_is_as_predicted(name: str, rate: float) -> None:
    """In training, with and without dropout: attention written out, as the prediction has it, and batch 2 of 50."""
    import torch

    from encoder_conformance.commands.inspect.layer_selection import at_size, find_layer, resized
    from encoder_conformance.commands.inspect.liveness import liveness
    from encoder_conformance.impls.pytorch.building import encoder_of

    layer = resized(find_layer(name), None, None, None, dropout=rate)
    predicted = liveness(at_size(layer, 2, 50), layer.norm.placement).kept_in_training * 4
    encoder = encoder_of(layer.model_dump(mode="json")).train()
    x = torch.randn(2, 50, 512, requires_grad=True)
    kept = kept_for_backward(lambda x: encoder(x, tap=lambda name, stage: stage), x, encoder.parameters())
    statistics = 2 * 2 * 2 * 50 * 4  # of two norms, a mean and a deviation at each position
    assert 0 <= kept - predicted <= statistics + 64, "and the root that scores are divided by"


def test_gradients_in_training_are_of_the_masks_that_were_drawn_checkpointed_or_not() -> None:
    """What is computed again must drop what was dropped: the gradient by the last bias counts what was kept."""
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.pytorch.adapter import PyTorch
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layer = PyTorch(), load().layers["pre-gelu-dropout"]
    adapter.start("cpu", 1)
    adapter.build(layer.model_dump(mode="json"), layer_parameters(layer, {}), "float64")
    x, nothing = np.linspace(-1, 1, 2 * 5 * 24).reshape(2, 5, 24), Masks(None, None)
    train = RunRequest(mode="train", seed=7)
    plain = adapter.gradients(x, nothing, train, np.ones_like(x))
    again = adapter.gradients(x, nothing, replace(train, checkpoint=True), np.ones_like(x))
    kept = plain["feed_forward.output.bias"] * 0.8  # a multiple of 1 / (1 - 0.2)
    assert np.allclose(kept, kept.round())
    assert 4 < kept.mean() < 10
    for name, gradient in plain.items():
        assert np.array_equal(gradient, again[name]), name


@pytest.mark.parametrize("lacking", [("attention.key",), ("attention.value", "feed_forward.hidden")], ids=", ".join)
def test_a_map_without_the_bias_of_its_like_is_built_so(lacking: tuple[str, ...]) -> None:
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.pytorch.adapter import PyTorch
    from encoder_conformance.oracle.arithmetic import Arithmetic
    from encoder_conformance.oracle.encoder import forward
    from encoder_conformance.oracle.inputs import given
    from encoder_conformance.spec.case import Case
    from encoder_conformance.spec.load import load

    case = Case(load().layers["pre-gelu"].lacking(lacking), load().situations["padding-right"])
    adapter, parameters = PyTorch(), {name: np.asarray(value) for name, value in case.parameters().items()}
    adapter.start("cpu", 1)
    held = adapter.build(case.layer.model_dump(mode="json"), parameters, "float64")
    assert held.keys() == parameters.keys()
    assert not {f"{each}.bias" for each in lacking} & held.keys()
    masks, run = Masks(case.padding_mask(), None), RunRequest(mode="eval", seed=0)
    found, due = adapter.stages(case.x(), masks, run), forward(case.layer, given(case), Arithmetic(np.float64))
    for stage, value in found.items():
        rows = case.compared("stages")[stage]
        np.testing.assert_allclose(value[rows], due[stage][rows], rtol=1e-9, atol=1e-12, err_msg=stage)
    gradients = adapter.gradients(case.x(), masks, run, case.cotangent())
    assert gradients.keys() == case.expected_shapes("gradients").keys()


def test_a_new_folder_passes_smoke_once_its_blanks_are_filled(conform: Callable, filled: Callable) -> None:
    ended = conform("smoke", filled("pytorch"))
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.release
def test_a_wrong_epsilon_fails_within_the_first_ten_checks(wrong_epsilon: Callable[..., None]) -> None:
    wrong_epsilon("pytorch", "PyTorch")


def test_token_ids_lie_where_a_run_says() -> None:
    from encoder_conformance.impls.pytorch.adapter import PyTorch

    adapter = PyTorch()
    adapter.start("cpu", 1)
    assert_told(adapter)
