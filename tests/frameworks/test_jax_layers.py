"""What libraries on JAX have alike: a layer that is built again is the one that was built, whatever came between."""

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("name", ["flax_linen", "flax_nnx"])
def test_weights_are_those_of_the_layer_that_is_built(conform: Callable, name: str) -> None:
    """A layer that was refused left its own program behind, and the next weights were asked of that."""
    cases = ("--case", "post-relu/refuse-num-heads", "--case", "post-relu/weights-returned")
    ended = conform("run", "--impl", name, *cases, "--dtype", "float32")
    assert ended.status == 0, ended.messages()
    assert ended.outcomes("weights") == ["pass"]
