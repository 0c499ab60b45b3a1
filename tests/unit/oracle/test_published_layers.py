"""The published layers that a layer is which was read, at its own sizes."""

import pytest

from encoder_conformance.oracle.published_layers import published_as
from encoder_conformance.spec.at_sizes import at_sizes_of
from encoder_conformance.spec.layer import Layer, Window
from encoder_conformance.spec.load import load, published_layers


def read_as(name: str, **sizes: object) -> Layer:
    """A published layer as code has it, larger."""
    layer = published_layers()[name].with_decimal_epsilon
    heads = layer.attention.model_copy(update={"num_heads": 8, **sizes})
    return layer.model_copy(
        update={
            "d_model": 8 * layer.d_model,
            "attention": heads,
            "feed_forward": layer.feed_forward.model_copy(update={"d_ff": 999}),
        }
    )


@pytest.mark.parametrize("name", published_layers())
def test_each_is_itself_at_other_sizes(name: str) -> None:
    assert name in published_as(read_as(name))


def test_layers_of_other_choices_are_none() -> None:
    assert published_as(read_as("whisper")) == ("qwen2-audio", "whisper")
    assert published_as(read_as("modernbert-global")) == ("modernbert-global",)
    read = read_as("bert")
    assert published_as(read.model_copy(update={"norm": read.norm.model_copy(update={"epsilon": 1e-3})})) == ()


def test_sizes_of_attention_are_the_other_s_and_choices_are_not() -> None:
    other = read_as("t5", head_dim=64)
    assert at_sizes_of(published_layers()["t5"], other).attention.head_dim == 64
    with_dim = at_sizes_of(load().layers["pre-gelu"], other)
    assert with_dim.attention.head_dim is None
    other = read_as("eurobert", kv_heads=4)
    assert at_sizes_of(published_layers()["eurobert"], other).attention.kv_heads == 4


@pytest.mark.parametrize(("name", "normed"), [("stack-pre-gelu", True), ("stack-post-relu", False), ("pre-gelu", None)])
def test_a_norm_behind_several_layers_is_a_choice_of_a_stack(name: str, normed: bool | None) -> None:
    """One layer says nothing of it, and is what it is in any stack."""
    stated = load().layers[name]
    for has in (False, True):
        other = stated.model_copy(update={"stack": stated.stack.model_copy(update={"layers": 2, "final_norm": has})})
        found = at_sizes_of(stated, other).stack
        assert (found.layers, found.final_norm) == (2, has if normed is None else normed)


def test_a_window_is_as_wide_as_the_other_s_and_as_even_as_it_is_stated() -> None:
    wide, uneven = Window(left=64, right=64), Window(left=63, right=64)
    assert published_as(read_as("modernbert", window=wide)) == ("modernbert",)
    assert published_as(read_as("modernbert", window=uneven)) == ()
    assert at_sizes_of(published_layers()["t5gemma2"], read_as("gemma3", window=wide)).attention.window == uneven


@pytest.mark.parametrize("name", [name for name, layer in load().layers.items() if layer.part == "encoder_layer"])
def test_every_layer_of_the_list_can_have_the_sizes_of_a_module(name: str) -> None:
    """Heads of keys, too, that do not divide the module's heads."""
    other = read_as("bert", num_heads=3).model_copy(update={"d_model": 66})
    found = at_sizes_of(load().layers[name], other)
    assert (found.d_model, found.attention.num_heads, found.feed_forward.d_ff) == (66, 3, 999)
