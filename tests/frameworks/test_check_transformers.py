"""`conform check` on layers of transformers, made from their configurations: read off them and proved."""

import importlib
import importlib.util
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from encoder_conformance.oracle.published_layers import published_as
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.frameworks.torch_beside import parameters_beside
from encoder_conformance.readers.module_target.frameworks.torch_in_model import LayerCall, attention_of
from encoder_conformance.readers.module_target.frameworks.torch_layers_called import found_in
from encoder_conformance.readers.module_target.loading import load_target, made_by_transformers, narrower
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.model_sizes import narrowed

BARE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bare_modules.py")))
D, H, F = BARE["D"], BARE["H"], BARE["F"]
SIZES = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": F}
READ: dict[str, tuple[str, str, dict[str, int], tuple[str, str, float]]] = {
    "bert": ("BertLayer", "BertConfig", SIZES, ("post", "gelu", 1e-12)),
    "roberta": ("RobertaLayer", "RobertaConfig", SIZES, ("post", "gelu", 1e-12)),
    "distilbert": (
        "TransformerBlock",
        "DistilBertConfig",
        {"dim": D, "n_heads": H, "hidden_dim": F},
        ("post", "gelu", 1e-12),
    ),
    "vit": ("ViTLayer", "ViTConfig", SIZES, ("pre", "gelu", 1e-12)),
    "whisper": (
        "WhisperEncoderLayer",
        "WhisperConfig",
        {"d_model": D, "encoder_attention_heads": H, "encoder_ffn_dim": F},
        ("pre", "gelu", 1e-5),
    ),
    "clip": ("CLIPEncoderLayer", "CLIPVisionConfig", SIZES, ("pre", "quick_gelu", 1e-5)),
    "gpt2": ("GPT2Block", "GPT2Config", {"n_embd": D, "n_head": H, "n_inner": F}, ("pre", "gelu_tanh", 1e-5)),
}


@pytest.mark.parametrize("module", READ)
def test_the_layer_and_its_map_are_read_and_proved(module: str) -> None:
    layer, config, choices, (placement, activation, epsilon) = READ[module]
    models = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    index = {"layer_idx": 0} if layer == "GPT2Block" else {}
    torch.manual_seed(0)
    made = getattr(models, layer)(getattr(transformers, config)(**choices), **index)
    BARE["assert_read"](examine(made), placement, activation, epsilon, H)


TEXT = {**SIZES, "num_hidden_layers": 1, "vocab_size": 30}
T5 = {"d_model": D, "num_heads": H, "d_ff": F, "d_kv": D // H, "num_layers": 1, "num_decoder_layers": 1}
AT_MANY_POSITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "t5": ({**T5, "vocab_size": 30}, "t5"),
    "mpnet": ({**TEXT, "layer_norm_eps": 1e-5}, "mpnet"),
    "ibert": (TEXT, "bert"),
}
"""A table by distance that the layer owns, and one that its model does; an epsilon that the exporter leaves out."""


@pytest.mark.parametrize(
    "module", [name if name == "t5" else pytest.param(name, marks=pytest.mark.release) for name in AT_MANY_POSITIONS]
)
def test_what_an_exporter_simplifies_is_read_all_the_same(module: str) -> None:
    configured, published = AT_MANY_POSITIONS[module]
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(module, **configured))
    parts = framework_of(model).parts(model)  # type: ignore[union-attr]
    [*_, path] = [each for each in parts.listed() if "decoder" not in each]
    found = examine(parts.at(path))
    assert found.layer is not None
    assert found.proof is not None
    assert found.proof.holds
    assert published in published_as(found.layer)
    assert described(found).parameters


@pytest.mark.parametrize(
    ("name", "arguments", "sizes"),
    [
        ("albert", {}, {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}),
        ("gemma3_text", {}, {"hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 2}),
        ("albert", {"num_attention_heads": 32}, {}),
        ("bert", {}, {}),
    ],
    ids=("wide", "two heads of keys stay", "a size is given", "narrow"),
)
def test_a_model_whose_defaults_are_wide_has_sizes_that_a_check_can_carry(
    name: str, arguments: dict[str, int], sizes: dict[str, int]
) -> None:
    chosen = narrowed(transformers.AutoConfig.for_model(name, **arguments).to_dict(), arguments)
    assert chosen.items() >= sizes.items()
    assert bool(chosen) == bool(sizes)


def test_a_model_that_is_no_type_of_transformers_keeps_its_sizes(tmp_path: Path) -> None:
    """A folder has weights of its own sizes, though it be called as a type is."""
    (tmp_path / "albert").mkdir()
    (tmp_path / "albert" / "config.json").write_text("{}", encoding="utf-8")
    for target in ("hf:albert", "hf:nothing", "file.py:albert"):
        assert narrower(target, {"num_hidden_layers": "1"}, tmp_path) == ({"num_hidden_layers": "1"}, "")
    arguments, said = narrower("hf:albert", {"num_hidden_layers": "1"}, tmp_path / "elsewhere")
    assert arguments == {
        "num_hidden_layers": "1",
        "hidden_size": "512",
        "num_attention_heads": "8",
        "intermediate_size": "2048",
    }
    assert "its own hidden_size is 4096: it was made with hidden_size 512" in said


@pytest.mark.release
def test_sizes_that_are_not_its_own_are_said(conform: Any) -> None:
    ended = conform("check", "hf:albert", "--arg", "num_hidden_layers=1", "--out", "o", "-v", seconds=400)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "its own hidden_size is 4096: it was made with hidden_size 512" in ended.stdout


@pytest.mark.parametrize("kind", ["eager", "sdpa"])
def test_the_attention_that_a_layer_computes_with_is_named(kind: str) -> None:
    config = transformers.BertConfig(attn_implementation=kind, num_hidden_layers=1, vocab_size=30, **SIZES)
    assert attention_of(transformers.BertModel(config).encoder.layer[0]) == kind
    assert attention_of(torch.nn.TransformerEncoderLayer(D, H, F)) == ""


@pytest.mark.release
def test_a_table_by_distance_that_is_scaled_and_gets_no_gradient() -> None:
    """LayoutLMv3 divides its tables by the root of a head's size, and makes them under no_grad; those of places on the
    page give all scores of a head one number where it is called with ids alone."""
    torch.manual_seed(0)
    sizes = {**TEXT, "hidden_size": 32, "coordinate_size": 4, "shape_size": 8, "input_size": 16, "patch_size": 8}
    model = transformers.LayoutLMv3Model(transformers.LayoutLMv3Config(**sizes))
    parts = framework_of(model).parts(model)  # type: ignore[union-attr]
    found = described(examine(parts.at(*parts.listed())))
    assert found.layer is not None
    assert found.proof is not None
    assert found.proof.holds
    table = found.parameters["attention.position_bias.table"]
    assert (table.own, table.times) == ("encoder.rel_pos_bias.weight", 0.25)
    assert "attention.position_bias.table" in found.ungiven
    assert found.idle_here == ("encoder.rel_pos_x_bias.weight", "encoder.rel_pos_y_bias.weight")


@pytest.mark.release
def test_a_model_that_is_there_with_a_head_alone_is_made() -> None:
    """transformers has Pop2PianoForConditionalGeneration, and no Pop2PianoModel."""
    sizes = {**T5, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "vocab_size": 30}
    made = made_by_transformers(transformers.Pop2PianoConfig(**sizes))
    assert type(made).__name__ == "Pop2PianoForConditionalGeneration"


@pytest.mark.release
def test_a_model_that_does_not_do_without_boxes_is_run_with_them() -> None:
    """UDOP's: its layers are given the bias that the model makes, and not one of their own that it never uses."""
    torch.manual_seed(0)
    sizes = {**T5, "vocab_size": 30, "image_size": 16, "patch_size": 8}
    model = transformers.UdopModel(transformers.UdopConfig(**sizes)).eval()
    found = found_in(model)
    assert [each.way.root for each in found] == ["encoder"]
    assert LayerCall(model, found[0]).given == ("position_bias",)


class _Beside(torch.nn.Module):
    """Gives its layer rows of three tables, of which one gets no gradient and one is not used."""

    def __init__(self) -> None:
        super().__init__()
        tables = {name: torch.nn.Parameter(torch.ones(3)) for name in ("trained", "still", "idle")}
        self.tables, self.layer = torch.nn.ParameterDict(tables), torch.nn.Linear(2, 2)

    def beside(self) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            still = self.tables["still"] * 2
        return {"rows": self.tables["trained"] + still, "still": still, "numbers": torch.arange(3)}


def test_tables_of_a_model_are_found_though_they_get_no_gradient() -> None:
    model = _Beside()
    assert parameters_beside(model, model.layer, model.beside) == (
        ("tables.still", "tables.trained"), ("tables.still",)
    )  # fmt: skip
    assert all(bool((value == 1).all()) for value in model.tables.values())


def test_a_map_that_multiplies_goes_there_and_back() -> None:
    own = OwnParameters({"held": (3,)})
    map = ElementMap(own, {"gain": np.array([2, 0, 1])}, {"gain": 1.0}, {"gain": 0.25})
    live = LiveNumbers()
    map.load(live, {"gain": np.array([1.0, 2.0, 3.0])})  # type: ignore[arg-type]
    assert live.flat().tolist() == [4.0, 8.0, 0.0]
    assert map.held(live.flat())["gain"].tolist() == [1.0, 2.0, 3.0]
    assert map.taken(np.array([4.0, 8.0, 0.0]))["gain"].tolist() == [0.0, 16.0, 32.0]


class LiveNumbers:
    """A module that is its parameters alone."""

    def __init__(self) -> None:
        self._flat = np.zeros(3)

    def flat(self) -> np.ndarray:
        return self._flat

    def assign(self, flat: np.ndarray) -> None:
        self._flat = flat


@pytest.mark.release
def test_a_folder_of_a_checkpoint(conform: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, vocab_size=30, **SIZES))
    model.save_pretrained(tmp_path / "tiny")
    ended = conform(
        "check", "hf:tiny", "--at", "encoder.layer.0", "--layer", "post-gelu-bert", "--jobs", "1", "--out", "o"
    )
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "This is post-gelu-bert-encoder-layer-0 (" in ended.stdout


PORT = Path(__file__).parents[2] / "docs" / "checking" / "model.py"


@pytest.mark.release
def test_a_model_of_transformers_states_what_it_should_be(conform: Any, tmp_path: Path) -> None:
    """By its configuration's defaults, and by that of a folder; read off its own module."""
    ended = conform("check", f"{PORT}:Block", "--layer", "hf:bert", "--jobs", "1", "--out", "o")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "norm.epsilon is 0.001 in the module" in ended.stdout
    assert "and 1e-12 in bert" in ended.stdout
    assert "Cause: Both norms' epsilon is 1e-3, the default of Keras (norm-eps-1e-3, " in ended.stdout
    config = transformers.BertConfig(num_hidden_layers=1, vocab_size=30, layer_norm_eps=1e-3, **SIZES)
    transformers.BertModel(config).save_pretrained(tmp_path / "tiny")
    ended = conform("check", f"{PORT}:Block", "--layer", "hf:tiny@encoder.layer.0", "--jobs", "1", "--out", "o")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "This is tiny (post-norm layer_norm ε 0.001" in ended.stdout


@pytest.mark.release
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("hf:brt", "transformers has no model type 'brt'"),
        ("hf:bert@encoder.layer.77", "encoder.layer has no part '77'"),
        ("hf:fnet", "it mixes positions by a Fourier transform"),
        ("hf:segformer", "there is a convolution in it"),
    ],
)
def test_a_model_that_states_nothing(conform: Any, named: str, said: str) -> None:
    ended = conform("check", f"{PORT}:Block", "--layer", named, "--jobs", "1", "--out", "o")
    assert ended.status == 2, ended.stdout + ended.stderr
    assert said in ended.stderr


@pytest.mark.release
@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed")
def test_a_library_that_a_model_needs_is_named() -> None:
    with pytest.raises(BadTarget, match="DetrModel needs the library timm, which is not installed"):
        load_target("hf:detr", {}, Path())
