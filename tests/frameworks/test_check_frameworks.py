"""`conform check` on layers of Keras, Flax, Equinox and JAX: read off them, proved on the live layer, and judged."""

import json
import random
import runpy
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
READ = {
    "bare_jax.py:Nnx": ("pre", "gelu", 1e-6, True),
    "bare_jax.py:Linen": ("post", "relu", 1e-6, True),
    "bare_jax.py:linen_with_variables": ("post", "relu", 1e-6, True),
    "bare_jax.py:Equinox": ("pre", "gelu", 1e-5, False),
    "bare_jax.py:function": ("post", "relu", 1e-5, False),
    "bare_keras.py:Block": ("pre", "gelu", 1e-6, True),
    "bare_keras.py:functional": ("post", "relu", 1e-6, True),
}
"""Target → placement, activation, epsilon, and whether its parts show stages."""
OFTEN = ("bare_jax.py:Nnx", "bare_keras.py:functional")
NEEDED = {"jax": ("flax", "equinox", "jax2onnx"), "keras": ("keras", "tensorflow", "tf2onnx")}


def some(names: Any) -> list[Any]:
    """In every run one of each file; a release takes all. None where its framework is not installed."""
    return [name if name in OFTEN else pytest.param(name, marks=pytest.mark.release) for name in names]


def skip_without(target: str) -> None:
    framework = target.partition(".py:")[0].rpartition("_")[2]
    missing = [name for name in NEEDED[framework] if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def state_of(made: Any) -> list[Any]:
    """Everything of a module and its framework that an examination could leave behind, each as bytes or a word."""
    drawn = repr((random.getstate(), np.random.get_state()))
    if "keras" in str(type(made).__mro__):
        import keras

        held = [(each.path, str(each.dtype), each.numpy().tobytes(), each.trainable) for each in made.variables]
        return [drawn, held, made.built, made.trainable, sorted(vars(made)), keras.config.floatx()]
    import jax
    from flax import nnx

    tree = nnx.state(made) if isinstance(made, nnx.Module) else made
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    held = [(str(path), _bits(leaf)) for path, leaf in leaves]
    modes = (
        [(path, getattr(part, "deterministic", None)) for path, part in nnx.iter_graph(made)]
        if tree is not made
        else []
    )
    return [drawn, held, modes, jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision]


def _bits(leaf: Any) -> tuple[str, bytes]:
    import jax

    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return (str(leaf.dtype), np.asarray(leaf).tobytes()) if isinstance(leaf, jax.Array) else ("", repr(leaf).encode())


@pytest.mark.parametrize("target", some(READ))
def test_the_layer_and_its_map_are_read_and_proved(target: str) -> None:
    skip_without(target)
    from encoder_conformance.readers.module_target.examining import examine

    file, _, name = target.partition(":")
    made = runpy.run_path(str(HERE / file))[name]
    module = made() if callable(made) else made
    if not getattr(module, "built", True):
        module(np.zeros((2, 3, 16), "f4"))  # makes its weights
    before = state_of(module)
    found = examine(module)
    assert state_of(module) == before, "it comes back as it was"
    placement, activation, epsilon, shows = READ[target]
    assert found.layer is not None, found.exported.problem
    assert (found.layer.norm.placement, found.layer.feed_forward.activation) == (placement, activation)
    assert found.layer.norm.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert found.layer.attention.num_heads == 2
    assert found.proof is not None
    assert found.proof.holds, found.proof
    assert found.proof.moved == 16
    assert bool(found.stages) is shows
    assert [mask.polarity is not None for mask in found.semantics.masks] == [True]


@pytest.mark.parametrize(
    ("target", "supposed"),
    [
        ("bare_jax.py:LinenOfMlpDim", {"mlp_dim": "96", "num_heads": "4"}),
        ("bare_keras.py:OfIntermediateDim", {"intermediate_dim": "96"}),
    ],
)
def test_the_width_of_x_is_another_than_the_hidden_one_where_any_does(target: str, supposed: dict[str, str]) -> None:
    """Sizes that are equal cannot be told apart."""
    skip_without(target)
    from encoder_conformance.readers.module_target.loading import load_target
    from encoder_conformance.readers.module_target.supplies import no_words

    made = load_target(target, {}, HERE, {})
    assert made.supposed == supposed
    built = made.framework.built(made.module, no_words)
    shapes = {np.shape(each) for each in _arrays(built if isinstance(built, tuple) else made.module)}
    assert (64, 96) in shapes
    assert (96, 96) not in shapes


def _arrays(module: Any) -> list[Any]:
    import jax

    return [np.asarray(each) for each in module.weights] if hasattr(module, "weights") else jax.tree.leaves(module[1])


def test_parts_of_a_model_of_linen_are_found() -> None:
    """They come into being in a call."""
    skip_without("bare_jax.py:LinenModel")
    from encoder_conformance.readers.module_target.frameworks.flax_linen import FRAMEWORK
    from encoder_conformance.readers.module_target.parts import at, candidates

    model = runpy.run_path(str(HERE / "bare_jax.py"))["LinenModel"]()
    assert candidates(FRAMEWORK.tree, model) == ["layer_0", "layer_1"]
    norm = at(FRAMEWORK.tree, model, "layer_1.LayerNorm_1")
    assert type(norm[0]).__name__ == "LayerNorm"
    assert {name: value.shape for name, value in norm[1]["params"].items()} == {"scale": (16,), "bias": (16,)}


def check(conform: Callable, target: str, *arguments: str) -> Any:
    skip_without(target)
    ended = conform("check", str(HERE / target), "--jobs", "1", "--out", "report", *arguments)
    path = ended.out / "check.json"
    return ended, json.loads(path.read_text()) if path.is_file() else None


@pytest.mark.release
@pytest.mark.parametrize("target", READ)
def test_a_right_one_does_what_it_was_read_to_be(conform: Callable, target: str) -> None:
    ended, result = check(conform, target)
    assert ended.status == 0, ended.stdout + ended.stderr
    asked = {record["check"] for part in result["parts"] for record in part["records"]}
    assert {"output", "gradients", "invariant"} <= asked


STRANGE = {
    "bare_jax.py:LinenFast": "a choice of its own, norm-fast-variance",
    "bare_jax.py:LinenFastNarrow": "a choice of its own, norm-fast-variance",
    "gathered_jax.py:function_by_deviation": "a choice of its own, norm-eps-outside-root",
    "gathered_jax.py:function_of_complex_angles": "rope θ 10000 interleaved",
    "gathered_jax.py:function_of_complex_features": "rope θ 10000 interleaved",
    "gathered_jax.py:LinenOfAMask": "it is called with mask: a mask that hides nothing",
    "gathered_keras.py:functional_added": "with padding_mask and without",
    "gathered_keras.py:NormsOfTensors": "layer_norm ε 1e-05",
    "gathered_keras.py:InATuple": "x is the first of a tuple of 2",
    "bare_keras.py:MadeInBuild": "post-norm",
    "bare_keras.py:_Hidden": "pre-norm",
    "bare_keras.py:pointwise": "pre-norm",
}


@pytest.mark.release
@pytest.mark.parametrize("target", STRANGE)
def test_a_right_one_is_not_accused(conform: Callable, target: str) -> None:
    """Of a variance from E[x²] − E[x]² neither a wide layer's numbers nor a gradient far from zero tell."""
    told = ("--dtype", "float32") if target.startswith("gathered") else ()  # a choice is searched in each format
    ended, _ = check(conform, target, *told)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "This is a correct" in ended.stdout
    assert STRANGE[target] in ended.stdout


@pytest.mark.release
def test_a_map_that_does_the_work_of_one_that_is_called_nowhere_is_an_error(conform: Callable) -> None:
    """Keras makes no parameters of what is not called, so that none is left over."""
    ended, _ = check(conform, "gathered_keras.py:OneMapTwice", "--dtype", "float32")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "the part wk is called nowhere, and one_map_twice.dense.kernel is read in two places" in ended.stdout


@pytest.mark.release
@pytest.mark.parametrize(
    ("target", "drops"),
    [
        ("bare_keras.py:DropsByDefault", True),
        ("bare_keras.py:functional_that_always_drops", True),
        ("bare_keras.py:Block", False),
        ("bare_keras.py:functional", False),
    ],
)
def test_what_drops_unless_it_is_told_not_to_is_warned_of(conform: Callable, target: str, drops: bool) -> None:
    skip_without(target)
    ended = conform("check", str(HERE / target))
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ("! called without training=False it drops" in ended.stdout) is drops


@pytest.mark.release
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("target", ["bare_keras.py:Block", "bare_keras.py:functional"])
def test_keras_is_judged_on_its_other_backends(
    conform: Callable, monkeypatch: pytest.MonkeyPatch, target: str, backend: str
) -> None:
    """It is exported, and run, by the backend that KERAS_BACKEND names."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    ended, result = check(conform, target)
    assert ended.status == 0, ended.stdout + ended.stderr
    [part] = result["parts"]
    assert part["described"]["proof"]["holds"]


@pytest.mark.release
@pytest.mark.parametrize(
    ("target", "backend", "said"),
    [
        ("gathered_jax.py:function_of_frequencies", "jax", "it mixes positions by a Fourier transform"),
        ("gathered_keras.py:Frequencies", "tensorflow", "it mixes positions by a Fourier transform"),
        ("gathered_keras.py:Frequencies", "jax", "it mixes positions by a Fourier transform"),
        ("gathered_keras.py:InWindows", "jax", "its scores are of fewer keys than there are positions"),
    ],
)
def test_what_no_layer_has_is_named_with_its_line(
    conform: Callable, monkeypatch: pytest.MonkeyPatch, target: str, backend: str, said: str
) -> None:
    """Of a Fourier transform of two axes there is no export."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    ended, _ = check(conform, target)
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stdout
    assert f"At: {target.partition(':')[0]}:" in ended.stdout
    assert "--layer" not in ended.stdout


NAMED = {
    "bare_jax.py:NnxTanh": ("pre-gelu", "gelu-tanh"),
    "bare_jax.py:NnxEpsilon": ("pre-gelu", "norm-eps-1e-3"),
    "bare_jax.py:NnxFast": ("pre-gelu", "norm-fast-variance"),
    "bare_keras.py:functional_epsilon": ("post-relu", "norm-eps-1e-3"),
}


@pytest.mark.release
@pytest.mark.parametrize("target", NAMED)
def test_a_bug_is_named_where_the_layer_is_stated(conform: Callable, target: str) -> None:
    layer, deviation = NAMED[target]
    ended, result = check(conform, target, "--layer", layer)
    assert ended.status == 1, ended.stdout + ended.stderr
    found = {name for part in result["parts"] for each in part["diagnoses"] for name in each["deviations"]}
    assert deviation in found, ended.stdout


@pytest.mark.release
def test_parts_of_a_model_of_linen_are_judged(conform: Callable) -> None:
    ended, result = check(conform, "bare_jax.py:LinenModel", "--at", "layer_1")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert [part["at"] for part in result["parts"]] == ["layer_1"]


@pytest.mark.release
def test_parts_of_a_model_of_keras_are_judged(conform: Callable) -> None:
    ended, result = check(conform, "bare_keras.py:Model", "--at", "second")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert [part["at"] for part in result["parts"]] == ["second"]
