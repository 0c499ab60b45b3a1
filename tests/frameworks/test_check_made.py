"""A class is made with what the user says, with what the names of its required arguments say, or refused with both."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

from encoder_conformance.protocol.handover import hand_over  # noqa: E402
from encoder_conformance.readers.module_target.argument_names import stated_by  # noqa: E402
from encoder_conformance.readers.module_target.errors import BadTarget  # noqa: E402
from encoder_conformance.readers.module_target.loading import Loaded, as_options, load_target  # noqa: E402
from encoder_conformance.readers.module_target.mapping import OwnParameters  # noqa: E402
from encoder_conformance.readers.module_target.proving import shapes_of  # noqa: E402
from encoder_conformance.readers.module_target.searching import candidate_maps  # noqa: E402
from encoder_conformance.spec.load import load  # noqa: E402

MODULES = {
    "somebodys_encoders/__init__.py": "",
    "somebodys_encoders/sizes.py": """
        from dataclasses import dataclass

        @dataclass
        class Config:
            dim: int = 48
            heads: int = 4
    """,
    "somebodys_encoders/configurations.py": """
        class PlainConfig:
            n_embd = n_head = 4

        class TextConfig:
            def __init__(self, hidden_size=48, num_heads=4):
                self.hidden_size, self.num_heads = hidden_size, num_heads

        class ImageConfig(TextConfig):
            pass

        class ModelConfig:
            def __init__(self):
                self.text, self.image = TextConfig(), ImageConfig()
    """,
    "somebodys_encoders/of_configurations.py": """
        from torch import nn
        from .configurations import ImageConfig, ModelConfig, PlainConfig, TextConfig

        class Layer(nn.TransformerEncoderLayer):
            def __init__(self, config):
                super().__init__(config.hidden_size, config.num_heads, 96, batch_first=True)

        class ImageLayer(Layer):
            pass

        class TextLayer(Layer):
            def __init__(self, config: ModelConfig):
                super().__init__(config)

        class EitherLayer(Layer):
            def __init__(self, config: TextConfig | ImageConfig):
                super().__init__(config)
    """,
    "somebodys_encoders/layers/block.py": """
        from __future__ import annotations
        from torch import nn
        from ..sizes import Config
        from . import parts

        class Block(nn.TransformerEncoderLayer):
            def __init__(self, cfg: Config):
                super().__init__(cfg.dim, cfg.heads, 96, batch_first=True)

        class OfConfig(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.config = config
                self.layer = parts.Layer(config.n_embd, config.n_head)
                self.mlp = MLP(config)
            def forward(self, x):
                return self.layer(x)

        class MLP(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.up = nn.Linear(c.n_embd, c.intermediate_size)

        class OfKeys(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layer = parts.Layer(config["hidden_size"], config["num_attention_heads"])
                self.fast = config.get("fast", False)
            def forward(self, x):
                return self.layer(x)

        class OfParts(nn.Module):
            def __init__(self, *, size: int, self_attn, layer: parts.Layer, act_layer: nn.Module):
                super().__init__()
    """,
    "somebodys_encoders/layers/parts.py": """
        from torch import nn

        import somebodys_encoders.sizes

        class Layer(nn.TransformerEncoderLayer):
            def __init__(self, hidden, n_heads):
                super().__init__(hidden, n_heads, 96, batch_first=True)
    """,
    "a_repository/src/models/vision.py": """
        from src.sizes import make

        def layer(n_heads, activation):
            return make(n_heads, activation)
    """,
    "same_name/__init__.py": "from same_name.same_name import layer",
    "same_name/sizes.py": "HEADS = 4",
    "same_name/same_name.py": """
        from torch import nn
        from same_name.sizes import HEADS

        def layer(dim):
            return nn.TransformerEncoderLayer(dim, HEADS, 96)
    """,
    "beside_python/sched/__init__.py": "",
    "beside_python/helpers_of_it.py": "from sched import scheduler",
    "beside_python/layers_of_it.py": """
        import helpers_of_it
        from torch import nn

        def layer(dim):
            return nn.TransformerEncoderLayer(dim, 4, 96)
    """,
    "hidden/hidden.py": "from hidden.layers import layer",
    "hidden/sizes.py": "HEADS = 4",
    "hidden/layers.py": """
        from torch import nn
        from hidden.sizes import HEADS

        def layer(dim):
            return nn.TransformerEncoderLayer(dim, HEADS, 96)
    """,
    "a_repository/helpers.py": "from src.sizes import make",
    "a_repository/src/by_helpers.py": """
        import helpers

        def layer(n_heads, activation):
            return helpers.make(n_heads, activation)
    """,
    "a_repository/src/sizes.py": """
        from torch import nn

        def make(heads, activation):
            return nn.TransformerEncoderLayer(64, heads, 96, activation=activation)
    """,
    "alone.py": """
        from torch import nn

        class Block(nn.Module):
            def __init__(self, size, self_attn, feed_forward, dropout):
                super().__init__()
                self.attention, self.feed_forward = self_attn, feed_forward
                self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
            def forward(self, x):
                x = self.norm1(x + self.attention(x))
                return self.norm2(x + self.feed_forward(x))

        class MultiHeadedAttention(nn.Module):
            def __init__(self, h, d_model):
                super().__init__()
                self.inner = nn.MultiheadAttention(d_model, h, batch_first=True)
            def forward(self, x):
                return self.inner(x, x, x, need_weights=False)[0]

        class PositionwiseFeedForward(nn.Sequential):
            def __init__(self, d_model, d_ff):
                super().__init__(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

        class WithChoices(nn.Module):
            def __init__(self, dim, heads, d_ff, eps, act, norm_first):
                super().__init__()

        class Counted(nn.TransformerEncoderLayer):
            def __init__(self, d_model, heads_count, d_ff, drop_prob):
                super().__init__(d_model, heads_count, d_ff, drop_prob)

        class DimsFirst(nn.TransformerEncoderLayer):
            def __init__(self, dim_model, dim_inner, heads, dim_key, v_dim):
                super().__init__(dim_model, heads, dim_inner)
                assert dim_key == v_dim == dim_model // heads

        class InFullWords(nn.TransformerEncoderLayer):
            def __init__(self, embedding_dimension, number_of_heads, ffn_dimension, maximum_position_encoding, name):
                super().__init__(embedding_dimension, number_of_heads, ffn_dimension)
                assert isinstance(name, str) and isinstance(maximum_position_encoding, int)

        class InOtherWords(nn.TransformerEncoderLayer):
            def __init__(self, model_depth, nb_head, d_point_wise_ff, qkv_features):
                super().__init__(model_depth, nb_head, d_point_wise_ff)
                assert qkv_features == model_depth

        class OfTotals(nn.TransformerEncoderLayer):
            def __init__(self, output_size, total_heads, total_dense_units, hidden_size):
                super().__init__(output_size, total_heads, total_dense_units)
                assert hidden_size == total_dense_units

        class small_config:
            width, heads, hidden = 64, 4, 96

        class OfAClass(nn.TransformerEncoderLayer):
            def __init__(self, config):
                super().__init__(config.width, config.heads, config.hidden)

        class OfItsDepth(nn.TransformerEncoderLayer):
            def __init__(self, depth, heads, ff_nodes):
                super().__init__(depth, heads, ff_nodes)

        class OfDeepLayers(nn.Module):
            def __init__(self, depth, n_heads, embd_dim):
                super().__init__()
                layers = [nn.TransformerEncoderLayer(embd_dim, n_heads, 96) for _ in range(depth)]
                self.layers = nn.Sequential(*layers)

        class NamesNothing(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.scale = nn.LayerScale(dim)

        class ByOtherNames(nn.TransformerEncoderLayer):
            def __init__(self, dm, n_heads, expansion_dims, mlp_dim_ratio, h_size, n_patch, max_T, dropout_mlp, causal):
                super().__init__(dm, n_heads, expansion_dims, dropout_mlp)
                assert h_size == dm // n_heads and mlp_dim_ratio > 1 and n_patch * 5 < max_T and not causal

        class OfItems(nn.TransformerEncoderLayer):
            def __init__(self, embeddsize, heads, d_mlp, attn_dim, n_items, use_gate):
                super().__init__(embeddsize, heads, d_mlp)
                assert attn_dim % heads == 0 and n_items > 8 and not use_gate

        class OfTheTutorial(nn.TransformerEncoderLayer):
            def __init__(self, ntoken, ninp, nhead, nhid, nlayers, n_classes, target_vocab_size):
                super().__init__(ninp, nhead, nhid)
                assert ntoken > 8 and nlayers == 2 and n_classes > 1 and target_vocab_size > 8

        class OfFeatures(nn.TransformerEncoderLayer):
            def __init__(self, feature_size, hidden_size, attention_head_num):
                super().__init__(feature_size, attention_head_num, hidden_size)

        class OfTwelveHeads(nn.TransformerEncoderLayer):
            def __init__(self, embed_dim, num_heads=12):
                super().__init__(embed_dim, num_heads, 96)

        class HeadsConfig:
            def __init__(self, width, heads=12):
                self.width, self.heads = width, heads

        class OfItsHeads(nn.TransformerEncoderLayer):
            def __init__(self, config: HeadsConfig):
                super().__init__(config.width, config.heads, 96)

        class LongConfig:
            def __init__(self, n_embd, n_head, bos_token_id):
                self.n_embd, self.n_head = n_embd, n_head

        class OfLongConfig(nn.TransformerEncoderLayer):
            def __init__(self, config: LongConfig):
                super().__init__(config.n_embd, config.n_head, 96)

        class Encoder(nn.Module):
            def __init__(self, block, num_layers):
                super().__init__()

        class OfUnknown(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.up = nn.Linear(config.n_embd, config.zeta)

        class Odd(nn.Module):
            def __init__(self, dim, heads):
                super().__init__()
                assert dim % 48 == 0, "dim has to be a multiple of 48"

        def activated(act):
            assert act is nn.GELU
            return nn.TransformerEncoderLayer(64, 4, 96, activation=act())

        cfg = {"width": 32}
        width = 64

        def configured(cfg, mode):
            assert mode == "width"
            return nn.TransformerEncoderLayer(cfg["width"], 4, 96)
    """,
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    before, modules = list(sys.path), {*sys.modules}
    yield tmp_path
    sys.path[:] = before
    for each in {*sys.modules} - modules:
        del sys.modules[each]


def _made(target: str, folder: Path, **arguments: str) -> Loaded:
    return load_target(target, arguments, folder, {})


BLOCK = "somebodys_encoders/layers/block.py"
OF_CONFIGURATIONS = "somebodys_encoders/of_configurations.py"
IN_FULL_WORDS = {
    "embedding_dimension": "64",
    "number_of_heads": "4",
    "ffn_dimension": "96",
    "maximum_position_encoding": "512",
    "name": "'layer'",
}
IN_OTHER_WORDS = {"model_depth": "64", "nb_head": "4", "d_point_wise_ff": "96", "qkv_features": "64"}
OF_TOTALS = {"output_size": "64", "total_heads": "4", "total_dense_units": "96", "hidden_size": "96"}
PARTS = {
    "size": "64",
    "self_attn": "MultiHeadedAttention(h=4, d_model=64)",
    "feed_forward": "PositionwiseFeedForward(d_model=64, d_ff=96)",
    "dropout": "0.1",
}
OF_ITEMS = {
    "embeddsize": "64",
    "heads": "4",
    "d_mlp": "96",
    "attn_dim": "64",
    "n_items": "100",
    "use_gate": "False",
}
OF_THE_TUTORIAL = {
    "ntoken": "100",
    "ninp": "64",
    "nhead": "4",
    "nhid": "96",
    "nlayers": "2",
    "n_classes": "10",
    "target_vocab_size": "100",
}
OTHER_NAMES = {
    "dm": "64",
    "n_heads": "4",
    "expansion_dims": "96",
    "mlp_dim_ratio": "2",
    "h_size": "16",
    "n_patch": "64",
    "max_T": "512",
    "dropout_mlp": "0.1",
    "causal": "False",
}


@pytest.mark.parametrize(
    ("target", "supposed"),
    [
        (f"{BLOCK}:Block", {"cfg": "Config()"}),
        (f"{BLOCK}:OfConfig", {"config": "SimpleNamespace(n_embd=64, intermediate_size=96, n_head=4)"}),
        (f"{OF_CONFIGURATIONS}:ImageLayer", {"config": "ImageConfig()"}),
        (f"{OF_CONFIGURATIONS}:TextLayer", {"config": "TextConfig()"}),
        (f"{OF_CONFIGURATIONS}:EitherLayer", {"config": "TextConfig()"}),
        ("somebodys_encoders/layers/parts.py:Layer", {"hidden": "64", "n_heads": "4"}),
        ("alone.py:Block", PARTS),
        ("alone.py:Counted", {"d_model": "64", "heads_count": "4", "d_ff": "96", "drop_prob": "0.1"}),
        ("alone.py:DimsFirst", {"dim_model": "64", "dim_inner": "96", "heads": "4", "dim_key": "16", "v_dim": "16"}),
        ("alone.py:InFullWords", IN_FULL_WORDS),
        ("alone.py:ByOtherNames", OTHER_NAMES),
        ("alone.py:InOtherWords", IN_OTHER_WORDS),
        ("alone.py:OfTotals", OF_TOTALS),
        ("alone.py:OfItsDepth", {"depth": "64", "heads": "4", "ff_nodes": "96"}),
        ("alone.py:OfDeepLayers", {"depth": "2", "n_heads": "4", "embd_dim": "64"}),
        ("alone.py:OfItems", OF_ITEMS),
        ("alone.py:OfTheTutorial", OF_THE_TUTORIAL),
        ("alone.py:OfFeatures", {"feature_size": "64", "hidden_size": "96", "attention_head_num": "4"}),
        ("alone.py:OfTwelveHeads", {"embed_dim": "72"}),
        ("alone.py:OfItsHeads", {"config": "HeadsConfig(width=72)"}),
        (f"{BLOCK}:OfKeys", {"config": "dict(hidden_size=64, num_attention_heads=4)"}),
        ("alone.py:OfLongConfig", {"config": "SimpleNamespace(n_embd=64, n_head=4)"}),
        ("alone.py:Encoder", {"block": f"Block({', '.join(f'{k}={v}' for k, v in PARTS.items())})", "num_layers": "2"}),
    ],
)
def test_what_is_required_is_what_its_name_says(target: str, supposed: dict[str, str], folder: Path) -> None:
    """Of a file with relative imports the package is imported, wherever the command was given."""
    made = _made(target, folder)
    assert made.supposed == supposed
    again = load_target(target, supposed, folder)  # as an adapter that was written does
    assert [each.shape for each in again.module.parameters()] == [each.shape for each in made.module.parameters()]


@pytest.mark.parametrize("file", ["models/vision", "by_helpers"])
def test_a_package_or_file_of_the_repository_around_a_file_is_found(file: str, folder: Path) -> None:
    made = _made(f"a_repository/src/{file}.py:layer", folder)
    assert as_options(made.supposed) == "--arg n_heads=4 --arg activation=gelu"


def test_a_file_of_the_name_of_its_package_is_no_package(folder: Path) -> None:
    """As x_transformers/x_transformers.py: it imports the package that it is in, and stood for it."""
    assert _made("same_name/same_name.py:layer", folder).supposed == {"dim": "64"}


def test_a_folder_is_imported_that_a_file_in_it_has_the_name_of(folder: Path) -> None:
    """As vivit/vivit.py beside vivit/layers.py, without an __init__.py: it stood for the folder."""
    assert _made("hidden/layers.py:layer", folder).supposed == {"dim": "64"}


def test_a_folder_of_the_name_of_a_module_of_python_does_not_stand_for_that(folder: Path) -> None:
    """As models/ssl beside models/encoder.py: where the command is given it is no top of anything, and PyTorch's own
    import of ssl ended with it."""
    assert _made("beside_python/layers_of_it.py:layer", folder).supposed == {"dim": "64"}


def test_what_is_given_stands_for_the_same_size_of_a_part(folder: Path) -> None:
    made = _made("alone.py:Block", folder, size="32")
    assert made.supposed["self_attn"] == "MultiHeadedAttention(h=4, d_model=32)"


def test_what_is_stated_is_no_guess(folder: Path) -> None:
    """Of a module that should be another layer what was supposed is never what is wrong."""
    bert = load().layers["post-gelu-bert"]
    own = load_target("alone.py:WithChoices", {}, folder, stated_by(bert, resize=False))
    sizes = {"dim": str(bert.d_model), "heads": str(bert.attention.num_heads), "d_ff": str(bert.feed_forward.d_ff)}
    assert own.supposed == {**sizes, "eps": "1e-12", "act": "'gelu'", "norm_first": "False"}
    resized = load_target("alone.py:WithChoices", {}, folder, stated_by(bert, resize=True))
    assert resized.supposed == {**own.supposed, "dim": "64", "heads": "4", "d_ff": "96"}


def test_a_class_without_annotation_that_says_enough_is_refused_with_what_is_known(folder: Path) -> None:
    with pytest.raises(BadTarget, match="OfParts needs size, self_attn, layer, act_layer") as refused:
        _made(f"{BLOCK}:OfParts", folder)
    known = "give --arg size=64 --arg self_attn=… --arg layer='parts.Layer(hidden=64, n_heads=4)' --arg act_layer=…"
    assert known in refused.value.hint


def test_of_a_configuration_what_is_unknown_is_left_open(folder: Path) -> None:
    with pytest.raises(BadTarget, match="OfUnknown needs config") as refused:
        _made("alone.py:OfUnknown", folder)
    assert "give --arg config='SimpleNamespace(n_embd=64, zeta=…)', or" in refused.value.hint


def test_a_file_without_a_name_is_told_its_classes(folder: Path) -> None:
    with pytest.raises(BadTarget) as refused:
        _made("alone.py", folder)
    assert "write alone.py:NAME, of Block, MultiHeadedAttention, PositionwiseFeedForward" in refused.value.hint


def test_nothing_is_supposed_of_a_source_that_holds_given_numbers(folder: Path) -> None:
    with pytest.raises(BadTarget, match="Odd needs dim, heads"):
        load_target("alone.py:Odd", {}, folder)


def test_a_module_that_refuses_what_was_supposed_is_quoted_with_it(folder: Path) -> None:
    with pytest.raises(BadTarget, match="multiple of 48") as refused:
        _made("alone.py:Odd", folder)
    assert "it was made with --arg dim=64 --arg heads=4" in refused.value.hint
    with pytest.raises(BadTarget) as refused:
        load_target("alone.py:Odd", {"dim": "64", "heads": "4"}, folder)
    assert not refused.value.hint


def test_a_line_that_names_what_a_library_has_not_is_to_be_mended(folder: Path) -> None:
    """Whatever it is made with, and as its file is imported."""
    with pytest.raises(BadTarget, match="no attribute 'LayerScale'") as refused:
        _made("alone.py:NamesNothing", folder)
    assert "that line names what is not there" in refused.value.hint
    (folder / "of_another_version.py").write_text("from torch.nn import LayerScale\n")
    with pytest.raises(BadTarget, match="cannot import name 'LayerScale'") as refused:
        _made("of_another_version.py:Block", folder)
    assert "that line names what is not there" in refused.value.hint
    (folder / "needing.py").write_text("raise ImportError('it needs a compiler')\n")
    with pytest.raises(BadTarget, match="it needs a compiler") as refused:
        _made("needing.py:Block", folder)
    assert not refused.value.hint


def test_a_class_of_settings_is_given_by_its_name(folder: Path) -> None:
    """Its attributes are read, and nobody makes one of it; of another class a name alone is a word."""
    made = load_target("alone.py:OfAClass", {"config": "small_config"}, folder)
    assert made.module.linear1.out_features == 96


def test_an_argument_is_an_expression_of_the_target_s_names(folder: Path) -> None:
    assert _made(f"{BLOCK}:Block", folder, cfg="Config(dim=32)").module.self_attn.embed_dim == 32
    assert _made("alone.py:activated", folder, act="nn.GELU").supposed == {}
    with pytest.raises(BadTarget, match="the file of the target has no 'Settings'"):
        _made(f"{BLOCK}:Block", folder, cfg="Settings(dim=32)")
    with pytest.raises(BadTarget, match="unexpected keyword argument 'width'"):
        _made(f"{BLOCK}:Block", folder, cfg="Config(width=32)")


def test_a_name_alone_is_a_word_but_for_a_configuration_of_the_target_s_file(folder: Path) -> None:
    assert _made("alone.py:configured", folder, cfg="cfg", mode="width").module.self_attn.embed_dim == 32


def test_a_check_says_with_what_the_module_was_made(conform: Callable, folder: Path) -> None:
    ended = conform(
        "check",
        f"{folder}/{BLOCK}:Block",
        "--dtype",
        "float32",
        "--write-adapter",
        str(folder / "written"),
        "--out",
        str(folder / "o"),
    )
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "it was made with --arg cfg='Config()', as the names of its arguments suggest" in ended.stdout
    part = json.loads((folder / "o" / "check.json").read_text())["parts"][0]
    assert part["layer"]["d_model"] == 48
    layer = folder / "written" / "written-layer.yaml"
    run = conform("run", "--impl", str(folder / "written"), "--layer", str(layer), "--jobs", "1", "--dtype", "float32")
    assert run.status == 0, run.stdout + run.stderr


def test_two_modules_are_made_alike_and_compared(conform: Callable, folder: Path) -> None:
    (folder / "other.py").write_text((folder / "alone.py").read_text().replace("ReLU", "GELU"))
    ended = conform("diff", f"{folder}/alone.py:Block", f"{folder}/other.py:Block", "--out", str(folder / "o"))
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "A: it was made with --arg size=64" in ended.stdout
    assert "They differ, first at ffn_activation" in ended.stdout


def test_a_class_that_is_handed_over_by_value_gets_its_sizes_too(folder: Path) -> None:
    """As a notebook's is: `encoder_conformance.check(Block)`. What its code does not use is not there."""
    names = {"__name__": "a_notebook"}
    exec(dedent(MODULES["alone.py"]), names)
    of_sizes = hand_over(partial(names["WithChoices"], heads=8, norm_first=False), folder)
    made = load_target(f"live:{of_sizes}", {}, folder, {})
    assert made.supposed == {"dim": "64", "d_ff": "96", "eps": "1e-05", "act": "'gelu'"}
    of_parts = hand_over(names["Block"], folder)
    with pytest.raises(BadTarget, match="it needs size, self_attn, feed_forward, dropout"):
        load_target(f"live:{of_parts}", {}, folder, {})


def test_queries_are_not_exchanged_with_keys_of_fewer_heads() -> None:
    """Among the maps that are tried where no graph tells which parameter is which."""
    layer = load().layers["pre-rope-gated"]
    shapes = shapes_of(layer)
    own = OwnParameters({name: tuple(reversed(shape)) for name, shape in shapes.items()})
    maps = list(candidate_maps(own, layer))
    assert len(maps) > 1
    assert all(at.shape == shapes[name] for each in maps for name, at in each.items())
