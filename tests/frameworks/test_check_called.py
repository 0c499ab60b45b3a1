"""How a module is called that does not take x alone, and what is read as the linear map that it is."""

import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from calling import called

torch = pytest.importorskip("torch")


from encoder_conformance.readers.module_target.errors import BadTarget  # noqa: E402
from encoder_conformance.readers.module_target.examination import Examination  # noqa: E402
from encoder_conformance.readers.module_target.examining import examine  # noqa: E402
from encoder_conformance.readers.module_target.frameworks import framework_of  # noqa: E402
from encoder_conformance.readers.module_target.lengths import lengths_taken  # noqa: E402
from encoder_conformance.readers.module_target.naming import misnamed  # noqa: E402
from encoder_conformance.readers.module_target.supplies import Supply, Told, ToldOf  # noqa: E402
from encoder_conformance.readers.module_target.supplying import arranged  # noqa: E402
from encoder_conformance.subjects.cases import nearest_length  # noqa: E402

cases = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("called_modules.py"))))


def _called(kind: type) -> SimpleNamespace:
    module = kind()
    framework = framework_of(module)
    assert framework is not None
    live, x = arranged(framework.live(module))  # type: ignore[misc]
    output = live.run({"x": x})["output"]
    plain = cases.Plain().eval()
    if not isinstance(module, cases.Lazy):
        plain.load_state_dict(module.state_dict())
        with torch.no_grad():
            right = plain(torch.from_numpy(x)).numpy()
        assert abs(output - right).max() < 1e-5
    return SimpleNamespace(live=live, x=x, **vars(live.signature.arrangement))


@pytest.mark.parametrize(
    ("kind", "form", "beside"),
    [
        (cases.Packed, "TD", {"cu_seqlens": "cumulative", "max_seqlen": "size"}),
        (cases.Lengths, "BSD", {"lengths": "lengths"}),
        (cases.LengthsAsParts, "BSD", {"wav_lens": "parts"}),
        (cases.MapOfRows, "BDHW", {}),
        (cases.ChannelsFirst, "BDS", {}),
        (cases.OfMapping, "BSD", {"padding_mask": "none"}),
        (cases.OfTuple, "BSD", {"1": "none"}),
        (cases.Thrice, "BSD", {"key": "x", "query": "x", "mask": "none"}),
        (cases.NeedsMask, "BSD", {"attention_mask": "full"}),
        (cases.MaskFirst, "BSD", {"mask": "full"}),
        (cases.AsksOfItsMask, "BSD", {"attention_mask": "full"}),
        (cases.Lazy, "BSD", {}),
    ],
)
def test_a_module_is_called_with_what_it_needs(kind: type, form: str, beside: dict[str, str]) -> None:
    found = _called(kind)
    assert found.form == form
    assert {name: supply.kind for name, supply in found.beside.items()} == beside


def test_a_mask_that_it_needs_is_given_so_that_it_hides_nothing() -> None:
    assert _called(cases.NeedsMask).beside["attention_mask"].number == 1
    assert _called(cases.MaskFirst).beside["mask"].number == 1


class OfAngles(torch.nn.Module):
    """Angles that have a default, and that it cannot do without; of a head that is wider than the width of x says."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.head_dim = 4, 32
        self.qkv, self.out = torch.nn.Linear(64, 384), torch.nn.Linear(128, 64)

    def forward(
        self,
        x: torch.Tensor,
        position_embeddings: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        cos, sin = position_embeddings
        q, k, v = (each.unflatten(-1, (4, 32)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        q, k = (
            each * cos[:, None] + torch.cat([-each[..., 16:], each[..., :16]], -1) * sin[:, None] for each in (q, k)
        )
        weights = (q @ k.transpose(-1, -2) / 32**0.5 + (0 if attention_mask is None else attention_mask)).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def test_angles_that_it_cannot_do_without_have_the_size_that_it_says_of_a_head() -> None:
    framework = framework_of(module := OfAngles())
    assert framework is not None
    live, _ = arranged(framework.live(module))  # type: ignore[misc]
    [(name, angles)] = live.signature.arrangement.beside.items()
    assert (name, angles.kind, angles.axes, angles.number) == ("position_embeddings", "turning", "BSd", 32)


class OfIds(torch.nn.Module):
    """What it is called with are ids: no numbers are taken in their place, whatever stands beside them."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.words, self.map = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return self.map(self.words(ids)) * mask[..., None]


def test_token_ids_are_not_called_with_numbers_for_long() -> None:
    """On JAX, where each call is compiled, 700 of them took two minutes, and a validation beside it never ended."""
    module = OfIds()
    framework = framework_of(module)
    assert framework is not None
    with pytest.raises(BadTarget, match="it takes ids as ids"):
        arranged(framework.live(module))
    assert 0 < OfIds.calls < 100


def test_lengths_that_are_taken_are_said_and_the_nearest_is_asked() -> None:
    found = _called(cases.ByEights)
    taken = lengths_taken(found.live, found.x)
    assert taken == (8, 16, 24, 32, 40, 48, 56, 64)
    assert [nearest_length(taken, wanted) for wanted in (1, 10, 300)] == [8, 16, 304]
    assert [nearest_length((16,), wanted) for wanted in (1, 300)] == [16, 16]


def _examined(kind: type) -> Examination:
    return examine(kind(), dtypes=("float32",))


@pytest.mark.parametrize(
    ("kind", "name"), [(cases.OfMapping, "padding_mask"), (cases.OfTuple, "1"), (cases.Thrice, "mask")]
)
def test_a_mask_that_it_does_without_is_given_and_understood(kind: type, name: str) -> None:
    offered = _examined(kind).offered
    assert offered is not None
    assert [mask.name for mask in offered.semantics.masks] == [name]
    assert offered.unusable == ()


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (cases.OfOneRow, "[batch, 1, sequence]"),
        (cases.OfOneHead, "[batch, 1, sequence, sequence]"),
        (cases.OfEachHead, "[batch, heads, sequence, sequence]"),
    ],
)
def test_a_mask_is_of_no_form_of_which_only_the_first_row_counts(kind: type, shape: str) -> None:
    """VITS's layers were accused: they got a mask of each query, and read one."""
    assert [mask.shape for mask in called(kind()).masks] == [shape]


@pytest.mark.parametrize(
    "kind",
    [
        cases.Pointwise,
        *(pytest.param(kind, marks=pytest.mark.release) for kind in (cases.Packed, cases.Lora, cases.WeightNormed)),
    ],
)
def test_a_linear_map_in_another_form_is_read(kind: type) -> None:
    found = _examined(kind)
    assert found.layer is not None, found.exported.problem
    assert found.proof is not None
    assert found.proof.holds
    assert found.folded == (kind in (cases.Lora, cases.WeightNormed)) == bool(found.notes)


def test_an_attribute_of_a_convolution_s_name_is_the_module_s_own() -> None:
    module = cases.Pointwise()
    framework = framework_of(module)
    assert framework is not None
    framework.refuse_unfit(module)


def test_a_function_of_the_modules_own_parts_is_of_the_copys_own_in_a_copy() -> None:
    found = _examined(cases.OfAFunction)
    assert found.layer is not None, found.exported.problem
    assert found.proof is not None
    assert found.proof.holds
    assert found.chance is None
    assert not found.loose.weights


def test_a_bias_that_is_a_constant_of_zeros_is_none() -> None:
    found = _examined(cases.KeyBiasOfZeros)
    assert found.layer is not None, found.exported.problem
    assert found.absent == ("attention.key.bias",)
    assert found.proof is not None
    assert found.proof.holds


def test_a_mask_has_the_form_that_is_taken_for_every_batch() -> None:
    """[batch, heads, queries, keys] fits a slice of the first two axes, of few items."""
    [mask] = called(cases.OfASlice()).masks
    assert mask.axes == "SS"


def test_a_mask_whose_content_changes_nothing_hides_no_position() -> None:
    found = called(cases.AnyMaskIsCausal())
    assert found.masks == ()
    [unusable] = found.unusable_masks
    assert unusable.kind == "elsewhere"


def test_folding_leaves_the_module_as_it_is() -> None:
    module = cases.WeightNormed().eval()
    names, x = [name for name, _ in module.named_parameters()], torch.randn(1, 3, 16)
    before = module(x)
    framework = framework_of(module)
    assert framework is not None
    assert framework.folded(module) is not None
    assert [name for name, _ in module.named_parameters()] == names
    assert torch.equal(module(x), before)


@pytest.mark.release
def test_query_and_key_exchanged_are_told_by_their_names() -> None:
    found = _examined(cases.Exchanged)
    assert found.map is not None
    told = misnamed({name: found.map.source(name)[0] for name in found.map.elements})
    assert {(own, place) for own, place, _ in told} >= {("w_ks.weight", "attention.query.weight")}


@pytest.mark.parametrize("kind", [cases.OfAKind, cases.LazyOfAKind])
def test_what_no_trial_finds_is_refused_and_may_be_said(kind: type) -> None:
    with pytest.raises(BadTarget) as refused:
        _examined(kind)
    assert "no kind NoneType" in refused.value.problem
    assert "--with kind=VALUE" in refused.value.hint
    assert "conform_inputs" in refused.value.hint


@pytest.mark.release
@pytest.mark.parametrize("kind", [cases.OfAKind, cases.LazyOfAKind])
def test_a_module_is_read_as_it_is_said_to_be_called(kind: type) -> None:
    said = examine(kind(), dtypes=("float32",), told=_kind("encoder"))
    assert said.layer is not None


@pytest.mark.parametrize("kind", [cases.OfAKind, cases.LazyOfAKind])
def test_a_call_that_a_user_says_and_that_fails_is_refused_for_what_it_raises(kind: type) -> None:
    with pytest.raises(BadTarget) as refused:
        examine(kind(), dtypes=("float32",), told=_kind(3))
    assert "no kind int" in refused.value.problem
    assert "None is refused" not in refused.value.problem


def _kind(value: object) -> ToldOf:
    return lambda _: Told({"kind": Supply("value", value=value)})


def test_a_layer_of_a_decoder_says_that_it_is_one() -> None:
    with pytest.raises(BadTarget) as refused:
        _examined(cases.Decoder)
    line = inspect.getsourcelines(cases.Decoder.forward)[1]
    assert "a layer of a decoder" in refused.value.problem
    assert f"called_modules.py:{line}" in refused.value.problem
