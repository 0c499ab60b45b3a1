"""`conform check`: what was given is what is judged, and nothing is guessed."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Loose
from encoder_conformance.readers.module_target.masking import with_masks
from encoder_conformance.readers.module_target.probing import first_x, live_semantics
from encoder_conformance.readers.module_target.repeating import chance_in
from encoder_conformance.readers.module_target.ways import other_answers
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.cases import module_cases

BARE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bare_modules.py")))
MODULES: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("asked_modules.py")))


def stated(name: str) -> Examination:
    torch.manual_seed(0)
    return examine(MODULES[name](), load().layers["post-gelu"], resize=True)


def said(found: Examination, severity: str) -> str:
    return "\n".join(each.message for each in findings_of(described(found)) if each.severity == severity)


def opened(name: str) -> tuple[LiveModule, Kept | None]:
    """The module, and what a call leaves in it that was not called before."""
    torch.manual_seed(0)
    module = FRAMEWORK.live(MODULES[name]().eval())
    kept = module.kept({"x": first_x(FRAMEWORK.live(MODULES[name]().eval()))})
    return module, kept


KEPT = {
    "Counter": (("calls",), False, False, "add_ in asked_modules.py:"),
    "RunningMean": (("mean",), False, True, "mul_ in asked_modules.py:"),
    "LastWeights": (("last",), False, True, "weights: self.last = weights.detach()"),
    "InObject": (("cache",), False, False, ""),
    "FirstCall": (("first",), True, True, "forward: self.first = False"),
    "MadeOnce": (("scale",), True, False, "forward: self.scale = torch.ones("),
    "AfterAShorter": (("last",), False, True, "context: before, self.last = self.last,"),
}
"""Name → what is kept, whether by the first call alone, whether outputs depend on it, and by what it is changed."""


@pytest.mark.parametrize("name", KEPT)
def test_what_a_call_leaves_behind_is_named_with_what_changes_it(name: str) -> None:
    names, once, depends, by = KEPT[name]
    module, kept = opened(name)
    assert kept is not None
    assert (kept.names, kept.once, kept.apart > 0) == (names, once, depends)
    assert by in kept.by
    x = np.random.default_rng(1).normal(size=(2, 5, 24)).astype(np.float32)
    first, again = (module.run({"x": each})["output"] for each in (x, x))
    assert np.array_equal(first, again), "it is asked as it was before its first call"
    copied = module.in_dtype("float64")
    assert np.array_equal(*(copied.run({"x": x.astype(np.float64)})["output"] for _ in range(2)))


def test_a_module_that_keeps_nothing_is_left_as_it_is() -> None:
    assert opened("Post")[1] is None
    assert opened("PlainList")[1] is None


def test_a_layer_that_counts_its_calls_is_right_with_a_warning() -> None:
    found = stated("Counter")
    assert not said(found, "error")
    assert "calls is changed by each call (add_ in asked_modules.py:" in said(found, "warning")


def test_a_layer_whose_answers_depend_on_earlier_calls_does_what_no_layer_does() -> None:
    found = stated("LastWeights")
    assert "\n" not in said(found, "error"), "and nothing is concluded from what it keeps"
    assert said(found, "error").startswith("its answers depend on earlier calls: two outputs for one x differ by ")
    assert described(found).is_two_answers


def test_a_mask_that_is_kept_from_the_first_call_is_named_with_its_line() -> None:
    found = stated("MaskOfTheFirst")
    assert [mask.name for mask in found.semantics.masks] == ["padding_mask"]
    assert described(found).is_two_answers
    told = said(found, "error")
    assert "ignore is changed by its first call with a mask (asked_modules.py:" in told
    assert "self.ignore = padding_mask" in told


RIGHT = [("HeadsInConfiguration", 6), pytest.param("HeadsInBuffer", 5, marks=pytest.mark.release)]
WRONG = [("WrongSix", 6), pytest.param("HeadsInterleaved", 4, marks=pytest.mark.release)]


@pytest.mark.parametrize(("name", "heads"), RIGHT)
def test_heads_that_no_attribute_names_are_those_that_give_its_output(name: str, heads: int) -> None:
    found = stated(name)
    assert found.layer is None, "its graph is read, and tells the heads"
    assert found.searched is not None
    assert found.searched.deviation == ""
    judged = described(found).judged_as
    assert judged is not None
    assert judged.attention.num_heads == heads
    assert not said(found, "error")


@pytest.mark.parametrize(("name", "heads"), WRONG)
def test_a_wrong_layer_is_accused_with_its_own_heads(name: str, heads: int) -> None:
    found = stated(name)
    judged = described(found).judged_as
    assert judged is not None
    assert judged.attention.num_heads == heads


def test_scores_are_no_stage_where_they_are_seen_with_a_given_bias_in_them() -> None:
    """I-BERT was accused for it: its softmax is a module, and what goes into that has the mask added (M-7)."""
    torch.manual_seed(0)
    stages = examine(MODULES["SoftmaxShown"]()).stages
    assert "attention_weights" in stages
    assert "attention_scores" not in stages


@pytest.mark.release
def test_heads_that_nothing_tells_are_said_to_be_unknown() -> None:
    found = stated("Coupled")
    assert "its number of heads is not known" in said(found, "error")
    assert described(found).judged_as is None


@pytest.mark.release
def test_an_attribute_that_says_other_heads_is_named() -> None:
    found = stated("OneOfTwoNumbers")
    assert "it computes with 6 heads, and its attributes say 4" in said(found, "warning")


def live(name: str) -> tuple[LiveModule, Feeds]:
    torch.manual_seed(0)
    module = FRAMEWORK.live(MODULES[name]().eval())
    return module, {"x": first_x(module)}


MAPS = "[0].bias", "[0].weight", "[1].bias", "[1].weight"
CLOSED = "down.bias", "down.weight", "up.bias", "up.weight"
LOOSE = {
    "Post": Loose(),
    "KnowsItsParent": Loose(),
    "PlainList": Loose(weights=tuple(f"ff{each}" for each in MAPS)),
    "InMapping": Loose(weights=("held.weights['o']",)),
    "InClosure": Loose(weights=tuple(f"net, its variable {each}" for each in CLOSED)),
    "PlainTensor": Loose(tensors=("shift",)),
}


@pytest.mark.parametrize("name", LOOSE)
def test_weights_that_are_used_and_not_registered_are_named_by_their_path(name: str) -> None:
    module, feeds = live(name)
    before, right = set(module.shapes), module.call(feeds)
    loose = module.take_in(feeds)
    assert Loose(tuple(sorted(loose.weights)), loose.tensors) == LOOSE[name]
    assert np.array_equal(module.call(feeds), right), "it is afterwards as it was"
    of_a_copy = set(loose.weights) if name != "InClosure" else set()
    assert set(module.shapes) - before == of_a_copy


def test_a_layer_whose_maps_are_not_registered_is_judged_with_them() -> None:
    found = stated("PlainList")
    assert found.proof is not None
    assert found.proof.holds
    assert "weights that it does not register: ff[0].weight" in said(found, "error")


CHANCE = {
    "Post": None,
    "DropoutInList": ("the input of norm1", True),
    "MapInForward": ("the input of norm1", True),
    "DrawsKeysOfMany": ("the input of o", True),
}


@pytest.mark.parametrize("name", CHANCE)
def test_a_module_is_asked_twice_before_anything_is_concluded(name: str) -> None:
    module, feeds = live(name)
    chance = chance_in(module, feeds["x"])
    assert (chance and (chance.seen, chance.drawn)) == CHANCE[name]
    assert np.array_equal(module.run(feeds)["output"], module.run(feeds)["output"]), "and it can be read after that"


def test_what_answers_otherwise_the_second_time_is_not_called_random() -> None:
    module, feeds = live("Counts")
    chance = chance_in(module, feeds["x"])
    assert chance is not None
    assert not chance.drawn


@pytest.mark.release
def test_a_random_layer_does_not_attend_across_the_batch() -> None:
    errors = said(stated("MapInForward"), "error")
    assert "it answers at random" in errors
    assert "across the batch" not in errors


def answers_apart(given: torch.nn.Module) -> list[tuple[str, tuple[str, ...]]]:
    """The ways to call a module that are apart, and with which masks that shows."""
    module = FRAMEWORK.live(given)
    read = module.bare()
    semantics, _ = with_masks(read, live_semantics(read, first_x(read)), 4)
    assert [mask.name for mask in semantics.masks] == ["padding_mask"], "the module in it tells what masks mean"
    return [(each.way, each.masks) for each in other_answers(module, semantics, 4, always_causal=False)]


OTHER_WAYS = "compiled_in_place", "compiled_forward", "compiled_in_parallel"


@pytest.mark.parametrize("way", ["compiled", *(pytest.param(each, marks=pytest.mark.release) for each in OTHER_WAYS)])
def test_compiled_code_is_asked_and_compared_with_the_module_s_own(way: str) -> None:
    wrong, right = MODULES[way](MODULES["MaskLostWhenCompiled"]), MODULES[way](MODULES["Post"])
    assert answers_apart(wrong) == [("compiled and eager", ("padding_mask",))]
    assert answers_apart(right) == []
    module = FRAMEWORK.live(right)
    assert "torch.compile with the backend eager" in module.wrappers
    assert set(module.shapes) == set(FRAMEWORK.live(MODULES["Post"]()).shapes)
    module.assign(module.flat() * 2)
    feeds = {"x": first_x(module)}
    copy = module.in_dtype("float32")
    assert np.allclose(module.call(feeds), module.bare().call(feeds), atol=1e-5), "a copy calls its own parameters"
    assert np.array_equal(copy.call(feeds), module.call(feeds))


@pytest.mark.release
@pytest.mark.parametrize("own", [False, True], ids=["a layer of PyTorch", "a stack of PyTorch"])
def test_compiled_modules_of_pytorch_itself_are_known_to_be_compiled(own: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(24, 2, 40, batch_first=True).eval()
    given = torch.nn.TransformerEncoder(layer, 2) if own else layer
    module = FRAMEWORK.live(torch.compile(given, backend="eager"))
    assert module.wrappers == ("torch.compile with the backend eager",)
    assert "compiled and eager" in module.ways()
    copy, feeds = module.in_dtype("float32"), {"x": first_x(module)}
    before = copy.call(feeds)
    copy.assign(copy.flat() * 2)
    assert not np.allclose(copy.call(feeds), before, atol=1e-3), "a copy calls its own parameters"
    assert np.array_equal(module.call(feeds), before)


def test_a_compiled_part_is_asked_compiled_after_a_look_at_what_it_does() -> None:
    """PyTorch never compiles again what was once called under a mode of its dispatcher."""
    module = FRAMEWORK.live(MODULES["compiled_part"]().eval())
    feeds = {"x": first_x(module)}
    module.beyond(feeds["x"], "BSD")
    assert not np.allclose(module.run(feeds)["output"], module.bare().run(feeds)["output"], rtol=0, atol=1e-4)


def test_an_answer_that_depends_on_whether_gradients_are_recorded_is_seen() -> None:
    apart = answers_apart(MODULES["MaskLostWithGradients"]().eval())
    assert apart == [("with gradients and without", ("padding_mask",))]


def test_a_mask_that_is_lost_where_code_is_compiled_or_traced_is_seen_of_the_module_s_own_code() -> None:
    lost = "what it gives where PyTorch says that it is {} and else"
    assert answers_apart(MODULES["MaskLostWhenCompiled"]().eval()) == [(lost.format("compiled"), ("padding_mask",))]
    assert answers_apart(MODULES["MaskLostWhenTraced"]().eval()) == [(lost.format("traced"), ("padding_mask",))]


def test_another_equation_in_training_is_seen_where_float32_rounds_as_much() -> None:
    right, wrong = (FRAMEWORK.live(MODULES[name]().eval()) for name in ("Post", "TanhInTraining"))
    semantics = live_semantics(right, first_x(right))
    [found] = other_answers(wrong.in_dtype("float64"), semantics, 4, always_causal=False, dtype="float64")
    assert found.way == "in training, with nothing dropped, and in evaluation,"
    assert other_answers(right.in_dtype("float64"), semantics, 4, always_causal=False, dtype="float64") == ()


@pytest.mark.release
def test_a_layer_that_trains_as_another_is_none() -> None:
    assert "in training, with nothing dropped, and in evaluation, differ" in said(stated("TanhInTraining"), "error")


def test_a_frozen_parameter_is_named() -> None:
    assert FRAMEWORK.notes(MODULES["Post"]()) == ()
    [note] = FRAMEWORK.notes(MODULES["Frozen"]())
    assert note.message == (
        "frozen (requires_grad is False): q.bias; a copy where they are not is asked for their gradients"
    )
    assert (note.severity, note.kind, note.about) == ("note", "parameter-frozen", {"names": ["q.bias"]})


def test_a_hook_on_a_gradient_is_named() -> None:
    module = MODULES["Post"]()
    module.q.weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    [warning] = FRAMEWORK.notes(module)
    assert (warning.severity, warning.about) == ("warning", {"names": ["q.weight"]})
    assert "a hook is given the gradient of q.weight (register_hook): it was asked of a copy without" in str(warning)


def test_what_cannot_be_compiled_here_is_not_judged_without() -> None:
    with pytest.raises(BadTarget, match="so it does not run here: BackendCompilerFailed"):
        examine(MODULES["not_to_be_compiled"]())


@pytest.mark.release
def test_a_compiled_layer_is_judged_compiled() -> None:
    found = examine(MODULES["compiled"](MODULES["MaskLostWhenCompiled"]))
    assert found.proof is not None
    assert found.proof.holds, "the module in it is read"
    assert not found.stages, "and shows nothing of what is asked"
    assert "compiled and eager differ" in said(found, "error")


@pytest.mark.release
def test_what_torchscript_made_is_judged_by_the_map_that_is_searched() -> None:
    found = examine(
        torch.jit.script(BARE["torch_layer"](batch_first=True).eval()), load().layers["post-relu"], resize=True
    )
    assert found.searched is not None
    assert found.searched.deviation == ""
    assert {mask.name for mask in found.semantics.masks} == {"src_mask", "src_key_padding_mask"}


TURNED, OTHERS = "an x in one piece and one that was turned", "an x in one piece and every other number of a larger one"


MASKS_TURNED = "masks in one piece and such that were turned"
OTHERS_OF_MASKS = "masks in one piece and every other number of larger ones"


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("ReadsStorage", {TURNED, OTHERS}),
        ("ReadsByFirstStride", {OTHERS}),
        ("ReadsMaskStorage", {MASKS_TURNED, OTHERS_OF_MASKS}),
        ("ReadsMaskByFirstStride", {MASKS_TURNED, OTHERS_OF_MASKS}),
        ("NeedsOnePiece", set()),
        ("Post", set()),
    ],
)
def test_what_does_not_lie_in_one_piece_is_given_too(name: str, apart: set[str]) -> None:
    assert {way for way, _ in answers_apart(MODULES[name]().eval())} == apart


class OneKeyAndQuery(MODULES["Post"]):
    def __init__(self) -> None:
        super().__init__()
        self.k.weight = self.q.weight


class OneFeedForward(MODULES["Post"]):
    """down is up transposed."""

    def __init__(self) -> None:
        super().__init__()
        del self.down
        self.shift = torch.nn.Parameter(torch.zeros(24))

    def ffn(self, x: torch.Tensor) -> torch.Tensor:
        up = torch.nn.functional.gelu(self.up(x))
        return torch.nn.functional.linear(up, self.up.weight.t(), self.shift)


class HalfAKey(MODULES["Post"]):
    """The first half of the key's weight is the query's."""

    def k(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.cat([self.q.weight[:12], self.other])
        return torch.nn.functional.linear(x, weight, self.shift)

    def __init__(self) -> None:
        super().__init__()
        del self._modules["k"]
        self.other, self.shift = torch.nn.Parameter(torch.randn(12, 24)), torch.nn.Parameter(torch.zeros(24))


@pytest.mark.parametrize(
    ("made", "due"),
    [
        (OneKeyAndQuery, "attention.query.weight and attention.key.weight are the same numbers: q.weight"),
        (
            OneFeedForward,
            "feed_forward.hidden.weight and feed_forward.output.weight are the same numbers, one transposed: up.weight",
        ),
        (HalfAKey, "attention.query.weight and attention.key.weight are in part the same numbers: q.weight"),
    ],
)
def test_parameters_that_are_one_are_named_and_the_layer_is_judged(made: type, due: str) -> None:
    found = examine(made().eval())
    assert found.proof is not None
    assert found.proof.holds
    shown = described(found)
    assert due in [each.message for each in findings_of(shown)]
    [pair] = shown.tied
    [case, *_] = module_cases(shown, found.layer)
    given = case.parameters()
    one, two = (given[name] for name in pair)
    assert np.array_equal(one, two.T if shown.is_turned(*pair) else two)
