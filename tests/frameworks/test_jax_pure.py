"""The JAX implementation: what the suite does not ask."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acting import acting_in_required_cases
from placed import assert_told

from encoder_conformance.oracle.catalogue import seen_in_evaluation


def test_sizes_and_choices_that_do_not_fit() -> None:
    from encoder_conformance.impls.jax_pure.attention import Attention
    from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
    from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax

    with pytest.raises(ValueError, match=r"10.*4"):
        Attention(10, 4, 10, MaskedSoftmax())
    with pytest.raises(ValueError, match="swish"):
        FeedForward("swish")


@pytest.mark.release
@pytest.mark.linux
def test_it_computes_with_as_many_threads_as_it_is_given(busiest_thread: Callable[[str, str, int], float]) -> None:
    assert busiest_thread("jax_pure", "JaxPure", 1) > 0.8
    assert busiest_thread("jax_pure", "JaxPure", 2) < 0.7


OF_LAYERS_WITHOUT_PLANTS = {"gelu-exact", "norm-layer-norm", "scale-by-head-dim"}
"""What only layers with an approximate GELU, with RMSNorm, or whose heads share their projections can have."""


def test_every_wrong_form_can_be_planted(planted_forms: Callable[[str], None]) -> None:
    planted_forms("planted_jax")


@pytest.mark.release
def test_the_core_sees_every_wrong_form(planted: Callable) -> None:
    """Each deviation of the catalogue, in the real encoder, by output or stages; and nothing where none is planted."""
    core = planted("planted_jax", "PlantedJax", "jax_pure", "layer_norm")
    assert list(core.failures([])) == []
    unseen = [
        name for name in seen_in_evaluation() if core.can_have(name) and next(core.failures([name]), None) is None
    ]
    assert unseen == []
    acting = acting_in_required_cases() & {*seen_in_evaluation()}
    assert {name for name in acting if not core.can_have(name)} == OF_LAYERS_WITHOUT_PLANTS


def test_what_is_compiled_is_kept_and_changes_no_number(
    conform: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = tmp_path / "caches" / "encoder-conformance" / "jax"
    first = judged(conform)
    kept = set(folder.iterdir())
    assert any(path.name.startswith("jit_backward") for path in kept)
    assert judged(conform) == first
    assert set(folder.iterdir()) == kept


def test_situations_of_one_shape_share_the_programs_of_gradients_and_stages(
    conform: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is given with them. The output has a program for mask, bias and nothing each, as it has for a user."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    cases = (f"--case=pre-gelu/{situation}" for situation in ("no-mask", "padding-right", "causal", "alibi"))
    ended = conform("run", "--impl", "jax_pure", *cases, "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    kept = [path.name for path in (tmp_path / "caches").rglob("*-cache")]
    made = {name: sum(f.startswith(f"jit_{name}-") for f in kept) for name in ("backward", "encoder_stages", "encoder")}
    assert made == {"backward": 1, "encoder_stages": 1, "encoder": 3}


def test_without_optimisation_it_conforms_too_and_says_so(conform: Callable) -> None:
    asked = "--impl", "jax_pure:optimize=none", "--case", "pre-gelu/no-mask", "--dtype", "float32"
    ended = conform("run", *asked)
    assert ended.status == 0, ended.stdout + ended.stderr
    [told] = ended.report["implementations"]
    assert told["settings"]["optimize"] == "none"


def test_an_initial_kernel_is_drawn_for_its_own_fans() -> None:
    """All of them come of one draw, cut into pieces: each has its bounds, and no piece is another's."""
    import numpy as np

    from encoder_conformance.impls.jax_pure.adapter import JaxPure
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layer = JaxPure(), load().layers["pre-gelu"]
    adapter.start("cpu", 1)
    adapter.build(layer.model_dump(mode="json"), layer_parameters(layer, {}), "float64")
    fresh = adapter.initialise(7).parameters
    kernels = {name: value for name, value in fresh.items() if name.endswith("weight")}
    assert len(kernels) == 6
    for name, value in kernels.items():
        bound = np.sqrt(6 / sum(value.shape))
        assert 0.9 * bound < abs(value).max() <= bound, name
    drawn = np.concatenate([(value / np.sqrt(6 / sum(value.shape))).ravel() for value in kernels.values()])
    assert len(np.unique(drawn.round(9))) == drawn.size


@pytest.mark.linux
def test_programs_are_kept_from_layer_to_layer_until_memory_maps_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.bases.jax_layers import process
    from encoder_conformance.impls.jax_pure.adapter import JaxPure, forward
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layers = JaxPure(), load().layers
    adapter.start("cpu", 1)

    def asked(name: str) -> Any:
        layer = layers[name]
        adapter.build(layer.model_dump(mode="json"), layer_parameters(layer, {}), "float64")
        return adapter.output(
            np.linspace(-1, 1, 2 * 5 * layer.d_model).reshape(2, 5, -1), Masks(None, None), RunRequest()
        )

    forward.clear_cache()
    first = asked("pre-rms-silu")
    asked("post-relu")
    asked("pre-rms-silu")
    assert forward._cache_size() == 2
    monkeypatch.setattr(process, "MAPS_KEPT", 0)
    assert np.array_equal(asked("pre-rms-silu"), first)
    assert forward._cache_size() == 1


def test_a_folder_that_cannot_be_written_to_is_done_without(
    conform: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "caches").touch()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert judged(conform)
    assert "cache" not in (tmp_path / "report" / "logs" / "jax_pure.log").read_text()


def judged(conform: Callable) -> list[dict[str, Any]]:
    """The records of one case, but for the seconds."""
    ended = conform("run", "--impl", "jax_pure", "--case", "pre-gelu/no-mask", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    return [{key: value for key, value in record.items() if key != "seconds"} for record in ended.report["records"]]


def test_trace_and_profile_name_every_stage(looked_at: Callable) -> None:
    looked_at("jax_pure")


def test_a_stage_by_itself_is_the_stage_of_the_whole() -> None:
    """What `profile` times: a stage computed from those before it, as zeros in their place show."""
    import jax.numpy as jnp
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.jax_pure.adapter import JaxPure, one_stage
    from encoder_conformance.impls.jax_pure.attention import NO_MASKS
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layer = JaxPure(), load().layers["pre-gelu"]
    adapter.start("cpu", 1)
    drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    adapter.build(layer.model_dump(mode="json"), drawn, "float32")
    x = np.linspace(-1, 1, 2 * 5 * layer.d_model, dtype=np.float32).reshape(2, 5, -1)
    shown = adapter.stages(x, Masks(None, None), RunRequest())
    zeroed = {name: jnp.zeros_like(stage) for name, stage in shown.items()}
    for name, stage in shown.items():
        alone = one_stage(name, adapter.encoder, adapter.params, x, NO_MASKS, shown)
        np.testing.assert_allclose(alone, stage, rtol=1e-5, atol=1e-6)
    for name in ("query_heads", "attention_scores", "context", "context_merged", "output"):
        assert not one_stage(name, adapter.encoder, adapter.params, x, NO_MASKS, zeroed).any()


def test_checkpointing_keeps_less_for_the_way_back() -> None:
    """Bytes of what the pulled-back function holds, parameters aside: a function that is a tree of arrays."""
    import jax
    import numpy as np

    from encoder_conformance.impls.jax_pure.adapter import JaxPure, LayerMasks, linearised
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layer = JaxPure(), load().layers["pre-gelu"]
    adapter.start("cpu", 1)
    drawn = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    adapter.build(layer.model_dump(mode="json"), drawn, "float32")
    x = jax.numpy.ones((2, 10, layer.d_model), "float32")
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(adapter.params))

    def kept(*, again: bool) -> int:
        back = linearised(adapter.encoder, again, adapter.params, x, LayerMasks())
        return sum(leaf.nbytes for leaf in jax.tree.leaves(back))

    assert kept(again=True) <= parameters + x.nbytes
    assert kept(again=False) > parameters + 5 * x.nbytes


def test_gradients_in_training_are_of_the_masks_that_were_drawn_checkpointed_or_not() -> None:
    import numpy as np

    from encoder_conformance import Masks, RunRequest
    from encoder_conformance.impls.jax_pure.adapter import JaxPure
    from encoder_conformance.spec.case import layer_parameters
    from encoder_conformance.spec.load import load

    adapter, layer = JaxPure(), load().layers["pre-gelu-dropout"]
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
        assert np.allclose(gradient, again[name], rtol=1e-12, atol=1e-12), name


@pytest.mark.release
def test_a_new_folder_conforms_once_its_blanks_are_filled(conform: Callable, filled: Callable) -> None:
    ended = conform("run", "--impl", filled("jax"), "--case", "post-gelu/padding-right", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert set(ended.outcomes()) == {"pass"}


@pytest.mark.release
def test_a_new_folder_passes_smoke_once_its_blanks_are_filled(conform: Callable, filled: Callable) -> None:
    ended = conform("smoke", filled("jax"))
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.release  # the order of checks is the same in every framework
@pytest.mark.parametrize("optimize", ["none", "default"])
def test_a_wrong_epsilon_fails_within_the_first_ten_checks(wrong_epsilon: Callable[..., None], optimize: str) -> None:
    """A minute of compiling as a user compiles."""
    wrong_epsilon("jax_pure", "JaxPure", f":optimize={optimize}")


def test_token_ids_lie_where_a_run_says() -> None:
    from encoder_conformance.impls.jax_pure.adapter import JaxPure

    adapter = JaxPure()
    adapter.start("cpu", 1)
    assert_told(adapter)
