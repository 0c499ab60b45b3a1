"""Layer files say what differs from a base (L-4), and each is as good as one that says every key."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.bases import BASE, OWN
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plain import whole

LAYERS = load().layers
FILES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (SPECS / "layers").glob("*.yaml")}
MINE = {"layer": "mine", "title": "A layer of my own", "clauses": ["E-4"], "family": "small"}
SCHEMA = json.loads((SPECS / "schema" / "layer.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("layers", "situations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    return tmp_path


def write(folder: Path, **keys: Any) -> Path:
    """A layer file of these keys, over those that each file has for itself."""
    path = folder / f"{keys.get('layer', 'mine')}.yaml"
    path.write_text(yaml.safe_dump({**MINE, **keys}), encoding="utf-8")
    return path


def mine(folder: Path, **keys: Any) -> Layer:
    return load(extra_layers=(write(folder, **keys),)).layers["mine"]


def refused(path: Path, *words: str, where: str = "mine.yaml") -> None:
    """Loading must fail at the file `where`, say these words, and what to do."""
    with pytest.raises(InputError) as caught:
        load(extra_layers=(path,))
    assert where in caught.value.where
    assert caught.value.hint
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_a_file_repeats_nothing_of_its_base() -> None:
    """So that a reader sees at once what a layer is for."""
    repeated = []
    for name, file in FILES.items():
        base = whole(LAYERS[file[BASE]].with_decimal_epsilon) if BASE in file else {}
        for key, value in file.items():
            if key in OWN or key not in base:
                continue
            inner = value.items() if isinstance(value, dict) and isinstance(base[key], dict) else ()
            repeated += [f"{name}: {key}"] if base[key] == value else []
            repeated += [f"{name}: {key}.{below}" for below, each in inner if base[key][below] == each]
    assert repeated == []
    assert [name for name, file in FILES.items() if BASE not in file] == ["pre-gelu"]


def test_a_layer_with_a_base_is_the_layer_that_says_every_key(copy: Path) -> None:
    for name, layer in LAYERS.items():
        keys = whole(layer.with_decimal_epsilon)
        (copy / f"layers/{name}.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    assert load(specs=copy).layers == LAYERS


def test_keys_take_the_place_of_the_base_s_and_mappings_key_by_key(tmp_path: Path) -> None:
    layer, base = mine(tmp_path, base="bert-base", d_model=36, dropout={"ffn_output": 0.5}), LAYERS["bert-base"]
    own = {key: getattr(layer, key) for key in (*OWN, "d_model")}
    assert layer == base.model_copy(update={**own, "dropout": base.dropout.model_copy(update={"ffn_output": 0.5})})
    assert (layer.d_model, layer.clauses, layer.family) == (36, ("E-4",), "small")


def test_null_takes_the_place_of_a_mapping(tmp_path: Path) -> None:
    single = mine(tmp_path, base="encoder-512", embedding=None, stack={"layers": 1, "final_norm": False})
    assert single.embedding is None


def test_a_mapping_takes_the_place_of_null(tmp_path: Path) -> None:
    tokens = {"vocabulary": 9, "positions": "none"}
    assert mine(tmp_path, base="pre-gelu", family="encoders", embedding=tokens).embedding.model_dump() == tokens


def test_a_base_lies_in_the_specification_or_beside_the_file(tmp_path: Path) -> None:
    write(tmp_path, layer="wide", base="post-gelu", d_model=60)
    layer = mine(tmp_path, base="wide", attention={"num_heads": 5})
    assert (layer.d_model, layer.attention.num_heads, layer.norm.placement) == (60, 5, "post")
    assert "wide" not in load(extra_layers=(tmp_path / "mine.yaml",)).layers


def test_a_layer_of_the_specification_comes_before_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "post-gelu.yaml").write_text("no: layer\n", encoding="utf-8")
    assert mine(tmp_path, base="post-gelu").d_model == LAYERS["post-gelu"].d_model


def test_layers_are_in_the_order_of_their_files_whatever_their_bases() -> None:
    assert [*LAYERS] == [path.stem for path in sorted((SPECS / "layers").glob("*.yaml"))]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pre-gleu", ("key base", "there is no layer 'pre-gleu'", "did you mean pre-gelu")),
        ("../layers/pre-gelu", ("key base", "no layer's id", "write the id")),
        ("a" * 300, ("key base", "no layer's id")),
        (3, ("key base", "3 is no layer's id")),
        (None, ("key base", "None is no layer's id")),
        ("mine", ("key base", "mine is its own base", "one of them has to say every key")),
    ],
)
def test_a_base_that_is_no_layer_is_refused(tmp_path: Path, name: object, words: tuple[str, ...]) -> None:
    refused(write(tmp_path, base=name), *words)


def test_a_circle_of_bases_is_refused_with_all_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, layer="first", base="second")
    write(tmp_path, layer="second", base="third")
    write(tmp_path, layer="third", base="first")
    refused(write(tmp_path, base="first"), "key base", "first → second → third → first", where="first.yaml")


def test_a_circle_in_the_specification_is_refused_at_its_file(copy: Path) -> None:
    text = (copy / "layers/pre-gelu.yaml").read_text(encoding="utf-8")
    (copy / "layers/pre-gelu.yaml").write_text(f"{text}base: post-relu\n", encoding="utf-8")
    with pytest.raises(InputError, match="pre-gelu → post-relu → post-gelu → pre-gelu") as caught:
        load(specs=copy)
    assert "pre-gelu.yaml: key base" in caught.value.where


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"colour": "red"}, ("key colour is unknown",)),
        ({"norm": {"colour": "red"}}, ("key norm.colour is unknown",)),
        ({"norm": "pre"}, ("norm: ", "(found 'pre')")),
        ({"stack": None}, ("stack: ", "(found None)")),
        (
            {"embedding": {"vocabulary": 9}},
            ("key embedding.positions is missing; its base post-gelu does not give it",),
        ),
        ({"d_model": 31}, ("attention.num_heads = 3 contradicts d_model = 31", "those of post-gelu")),
    ],
)
def test_a_fault_of_a_file_with_a_base_names_the_file_and_the_key(
    tmp_path: Path, keys: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(write(tmp_path, base="post-gelu", **keys), *words)


@pytest.mark.parametrize("key", [key for key in OWN[1:] if key != "source"])
def test_what_a_layer_is_for_is_never_its_base_s(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, base="post-gelu")
    path.write_text(yaml.safe_dump({k: v for k, v in yaml.safe_load(path.read_text()).items() if k != key}))
    refused(path, f"key {key} is missing; its base post-gelu does not give it")


def test_a_fault_of_a_base_is_the_base_s(copy: Path) -> None:
    write(copy, layer="wide", base="post-gelu", colour="red")
    refused(write(copy, base="wide"), "key colour is unknown", where="wide.yaml")
    text = (copy / "layers/post-gelu.yaml").read_text(encoding="utf-8")
    (copy / "layers/post-gelu.yaml").write_text(f"{text}colour: red\n", encoding="utf-8")
    with pytest.raises(InputError, match="key colour is unknown") as caught:  # bert-base is based on it, and before it
        load(specs=copy)
    assert "post-gelu.yaml" in caught.value.where


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ({"base": "pre-gelu"}, ""),
        ({"base": "pre-gelu", "norm": {"epsilon": 1e-6}}, ""),
        ({key: value for key, value in FILES["pre-gelu"].items() if key != "stack"}, "'stack' is a required property"),
        ({**FILES["pre-gelu"], "norm": {"epsilon": 1e-6}}, "'placement' is a required property"),
    ],
    ids=["base", "part of a mapping", "no base", "no base, part of a mapping"],
)
def test_an_editor_asks_for_every_key_where_there_is_no_base(keys: dict[str, Any], missing: str) -> None:
    errors = [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors({**MINE, **keys})]
    assert missing in " ".join(errors)
    assert bool(errors) == bool(missing)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors({"base": "pre-gelu"}))
