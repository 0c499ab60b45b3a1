"""Parameter maps: every rearrangement is exact both ways, and no name is missing or left over unnoticed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products import thinned

from encoder_conformance import ParameterMap, Take
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load

Array = np.ndarray[Any, Any]
LAYERS = load().layers
BIASED = {
    n: layer
    for n, layer in LAYERS.items()
    if layer.attention.qkv_bias and layer.feed_forward.d_ff % 2 == 0 and not layer.is_stack and not layer.takes_memory
    if not layer.lacks_bias
}
QKV = ("attention.query.weight", "attention.key.weight", "attention.value.weight")
QKV_BIASES = ("attention.query.bias", "attention.key.bias", "attention.value.bias")
repeatably = settings(deadline=None, derandomize=True)


def layer_of(heads: int, head_dim: int, d_ff: int) -> dict[str, Any]:
    return {"d_model": heads * head_dim, "attention": {"num_heads": heads}, "feed_forward": {"d_ff": d_ff}}


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))


def drawn(shape: tuple[int, ...], start: int = 0) -> Array:
    """Every element another number, so that any wrong rearrangement shows."""
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def there_and_back(takes: dict[str, Take], spec: dict[str, Array], layer: dict[str, Any]) -> dict[str, Array]:
    parameters = ParameterMap(takes)
    own = parameters.to_own(spec, layer)
    assert own.keys() == takes.keys()
    assert all(value.flags.c_contiguous for value in own.values())
    back = parameters.to_spec(own)
    assert back.keys() == spec.keys()
    for name, value in spec.items():
        assert back[name].dtype == value.dtype
        assert back[name].shape == value.shape
        assert np.ascontiguousarray(back[name]).tobytes() == np.ascontiguousarray(value).tobytes(), name
    return own


@repeatably
@given(sizes=SIZES, transpose=st.booleans(), backwards=st.booleans())
def test_rename_turn_about_and_transpose(sizes: tuple[int, int, int], transpose: bool, backwards: bool) -> None:
    layer = layer_of(*sizes)
    weight = drawn((layer["d_model"], sizes[2]))
    take = Take("hidden", transpose=transpose, backwards=backwards)
    own = there_and_back({"linear": take}, {"hidden": weight}, layer)
    in_order = weight[::-1] if backwards else weight
    assert np.array_equal(own["linear"], in_order.T if transpose else in_order)


@repeatably
@given(sizes=SIZES, fuse=st.sampled_from([0, 1]), transpose=st.booleans(), count=st.integers(2, 4))
def test_fuse_along_either_axis(sizes: tuple[int, int, int], fuse: int, transpose: bool, count: int) -> None:
    layer = layer_of(*sizes)
    shape = layer["d_model"], sizes[2]
    spec = {f"part{i}": drawn(shape, 1000 * i) for i in range(count)}
    own = there_and_back({"fused": Take(*spec, transpose=transpose, fuse=fuse)}, spec, layer)
    turned = [value.T if transpose else value for value in spec.values()]
    assert np.array_equal(own["fused"], np.concatenate(turned, axis=fuse))


@repeatably
@given(sizes=SIZES, axis=st.sampled_from([0, 1]), transpose=st.booleans(), count=st.integers(1, 4), data=st.data())
def test_parts_along_either_axis(
    sizes: tuple[int, int, int], axis: int, transpose: bool, count: int, data: st.DataObject
) -> None:
    """However the parts are ordered in the map, the whole comes back."""
    layer = layer_of(*sizes)
    cut_of = 1 - axis if transpose else axis
    shape = [layer["d_model"], sizes[2]]
    shape[cut_of] *= count
    weight = drawn(tuple(shape))
    order = data.draw(st.permutations(range(count)))
    takes = {f"own{i}": Take("weight", transpose=transpose, part=(i, count, axis)) for i in order}
    own = there_and_back(takes, {"weight": weight}, layer)
    for i, piece in enumerate(np.split(weight.T if transpose else weight, count, axis=axis)):
        assert np.array_equal(own[f"own{i}"], piece)


@pytest.mark.parametrize("transpose", [False, True])
def test_fused_sources_of_different_sizes(transpose: bool) -> None:
    """As one map of x makes queries, fewer keys, and the hidden features of a network beside attention."""
    spec = {"hidden": drawn((4, 6)), "query": drawn((4, 4), 24), "key": drawn((4, 2), 40)}
    take = Take(*spec, transpose=transpose, fuse=0 if transpose else 1)
    own = there_and_back({"all": take}, spec, layer_of(2, 2, 6))
    assert own["all"].shape == ((12, 4) if transpose else (4, 12))


@repeatably
@given(sizes=SIZES)
def test_shapes_by_the_names_of_sizes(sizes: tuple[int, int, int]) -> None:
    """Keras and Flax hold the query as (D, H, d) and the output as (H, d, D)."""
    heads, head_dim, d_ff = sizes
    layer = layer_of(*sizes)
    D = layer["d_model"]
    spec = {"query": drawn((D, D)), "bias": drawn((D,)), "output": drawn((D, D)), "hidden": drawn((D, d_ff))}
    takes = {
        "q": Take("query", shape=("d_model", "num_heads", "head_dim")),
        "b": Take("bias", shape=("num_heads", "head_dim")),
        "o": Take("output", shape=("num_heads", "head_dim", "d_model")),
        "h": Take("hidden", transpose=True, shape=(1, "d_ff", "d_model")),
    }
    own = there_and_back(takes, spec, layer)
    assert own["q"].shape == (D, heads, head_dim)
    assert own["b"].shape == (heads, head_dim)
    assert own["h"].shape == (1, d_ff, D)
    for h in range(heads):
        features = slice(h * head_dim, (h + 1) * head_dim)
        assert np.array_equal(own["q"][:, h], spec["query"][:, features])
        assert np.array_equal(own["o"][h], spec["output"][features])


@repeatably
@given(sizes=SIZES, transpose=st.booleans())
def test_fused_and_reshaped(sizes: tuple[int, int, int], transpose: bool) -> None:
    """Three projections as one (3, D, D)."""
    layer = layer_of(*sizes)
    D = layer["d_model"]
    spec = {name: drawn((D, D), 1000 * i) for i, name in enumerate(QKV)}
    takes = {"in_proj": Take(*QKV, transpose=transpose, shape=(3, "d_model", "d_model"))}
    own = there_and_back(takes, spec, layer)["in_proj"]
    for i, name in enumerate(QKV):
        assert np.array_equal(own[i], spec[name].T if transpose else spec[name])


@pytest.mark.parametrize(("name", "dtype"), thinned([*BIASED], [np.float32, np.float64]))
def test_a_whole_layer_as_a_framework_would_hold_it(name: str, dtype: Any) -> None:
    layer = BIASED[name]
    spec = {name: value.astype(dtype) for name, value in layer_parameters(layer, {}).items()}
    takes = {
        "in_proj_weight": Take(*QKV, transpose=True),
        "in_proj_bias": Take(*QKV_BIASES),
        "out": Take("attention.output.weight", shape=("num_heads", "head_dim", "d_model")),
        "gate": Take("feed_forward.hidden.weight", transpose=True, part=(0, 2, 0)),
        "up": Take("feed_forward.hidden.weight", transpose=True, part=(1, 2, 0)),
    }
    taken = {source for take in takes.values() for source in take.sources}
    takes |= {f"own/{name}": Take(name) for name in spec if name not in taken}
    own = there_and_back(takes, spec, layer.model_dump(mode="json"))
    D, F = layer.d_model, layer.feed_forward.d_ff
    assert own["in_proj_weight"].shape == (3 * D, D)
    assert own["in_proj_bias"].shape == (3 * D,)
    assert own["gate"].shape == own["up"].shape == (F // 2, D)


def test_a_changed_value_comes_back_changed() -> None:
    """The way back reads what the layer holds now, and not what it was given."""
    spec, layer = {"a": drawn((2, 3)), "b": drawn((2, 3), 10)}, layer_of(1, 2, 3)
    parameters = ParameterMap({"both": Take("a", "b", transpose=True, fuse=1)})
    own = parameters.to_own(spec, layer)
    own["both"][0, 3] = -1
    back = parameters.to_spec(own)
    assert np.array_equal(back["a"], spec["a"])
    assert back["b"][1, 0] == -1


def test_what_is_handed_out_is_a_copy() -> None:
    spec, layer = {"a": drawn((2, 3)), "b": drawn((3,))}, layer_of(1, 2, 3)
    own = ParameterMap({"t": Take("a", transpose=True), "s": Take("b", shape=("d_ff", 1))}).to_own(spec, layer)
    own["t"][:] = -1
    assert np.array_equal(spec["a"], drawn((2, 3)))


WRONG: list[tuple[set[str], tuple[str, ...]]] = [
    ({"a"}, ("missing: b",)),
    ({"a", "b", "c"}, ("left over: c",)),
    ({"a", "c", "d"}, ("missing: b", "left over: c, d")),
]


def test_what_a_layer_does_not_have_is_left_out() -> None:
    """A layer without biases has no bias to map, and its implementation may hold none."""
    parameters = ParameterMap({"own.weight": Take("weight"), "own.bias": Take("bias")})
    own = parameters.to_own({"weight": drawn((2, 2))}, layer_of(1, 2, 3))
    assert set(own) == {"own.weight"}
    assert set(parameters.to_spec(own)) == {"weight"}
    with pytest.raises(KeyError, match=r"left over: own\.bias"):
        parameters.to_spec({**own, "own.bias": drawn((2,))})


@pytest.mark.parametrize(("given", "told"), WRONG, ids=["missing", "left over", "both"])
def test_wrong_names_of_the_specification_are_told(given: set[str], told: tuple[str, ...]) -> None:
    parameters = ParameterMap({"own": Take("a", "b")})
    with pytest.raises(KeyError) as caught:
        parameters.to_own({name: drawn((2,)) for name in given}, layer_of(1, 2, 3))
    assert "parameters of the specification" in str(caught.value)
    assert all(words in str(caught.value) for words in told)


@pytest.mark.parametrize(("given", "told"), [*WRONG, (set(), ("missing: a, b",))])
def test_wrong_names_of_the_implementation_are_told(given: set[str], told: tuple[str, ...]) -> None:
    parameters = ParameterMap({"a": Take("one"), "b": Take("two")})
    parameters.to_own({"one": drawn((2,)), "two": drawn((2,))}, layer_of(1, 2, 3))
    with pytest.raises(KeyError) as caught:
        parameters.to_spec({name: drawn((2,)) for name in given})
    assert "parameters of the implementation" in str(caught.value)
    assert all(words in str(caught.value) for words in told)


def test_a_take_of_nothing_or_a_part_of_several_is_refused() -> None:
    with pytest.raises(ValueError, match="one source"):
        Take()
    with pytest.raises(ValueError, match="one source"):
        Take("a", "b", part=(0, 2, 0))


def test_a_cut_that_does_not_go_through_is_an_error() -> None:
    with pytest.raises(ValueError, match="equal division"):
        ParameterMap({"own": Take("a", part=(0, 2, 0))}).to_own({"a": drawn((3, 2))}, layer_of(1, 2, 3))


def test_an_own_tensor_of_another_size_is_an_error() -> None:
    parameters = ParameterMap({"own": Take("a", transpose=True)})
    parameters.to_own({"a": drawn((2, 3))}, layer_of(1, 2, 3))
    with pytest.raises(ValueError, match="reshape"):
        parameters.to_spec({"own": drawn((3, 3))})
