"""The specification's files: whole, valid by their schemas, and refused with place and next step when they are not."""

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import get_args

import jsonschema
import numpy as np
import pytest
import yaml

from encoder_conformance.oracle.golden.thinning import compared_tensors
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import IMPLS, SPECS
from encoder_conformance.spec.additions import ADDITIONS, Addition
from encoder_conformance.spec.families import RECOMMENDED_AT_MOST
from encoder_conformance.spec.load import Constants, clauses, load
from encoder_conformance.spec.stages import SHAPES, stages
from encoder_conformance.spec.steps import STEPS
from encoder_conformance.spec.yaml_file import read_model
from tools.pages.schema import schema_files

LAYER, SITUATION = "layers/pre-gelu.yaml", "situations/padding-right.yaml"
CLAUSES_OF_LAYER = "clauses: [L-1, E-3, E-7]"
YAML_FILES = sorted(
    [
        SPECS / "constants.yaml",
        SPECS / "published.yaml",
        *(SPECS / "layers").rglob("*.yaml"),
        *(SPECS / "situations").iterdir(),
    ]
)
MANIFESTS = sorted(IMPLS.glob("*/impl.yaml"))
REPOSITORY = Path(__file__).resolve().parents[3]
SPECIFICATION = load()
CASES = SPECIFICATION.cases


def short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@cache
def validator(schema: Path) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", [*YAML_FILES, *MANIFESTS], ids=short)
def test_every_yaml_file_names_a_schema_and_keeps_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named, "the first line names no schema"
    schema = SPECS / "schema" / Path(named[1]).name
    if path in YAML_FILES:  # specs/ is read alone, so the way there is part of it
        assert (path.parent / named[1]).resolve() == schema.resolve()
    kind = {"layers": "layer", "published": "layer", "situations": "situation"}.get(
        path.parent.name, path.stem.replace("impl", "implementation")
    )
    assert schema.name == f"{kind}.schema.json"
    validator(schema).validate(yaml.safe_load(text))


@pytest.mark.parametrize("path", YAML_FILES, ids=short)
def test_every_schema_refuses_an_unknown_key(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    schema = path.parent / text.splitlines()[0].split("=", 1)[1]
    data = {**yaml.safe_load(text), "colour": "red"}
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        validator(schema.resolve()).validate(data)


def test_every_schema_is_generated_and_is_a_schema() -> None:
    emitted = schema_files()
    assert {path.name for path in emitted} == {path.name for path in (SPECS / "schema").iterdir()}
    for content in emitted.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(content))


def test_every_clause_has_a_case_and_every_cited_clause_exists() -> None:
    cited = {clause for case in CASES.values() for clause in case.clauses}
    assert cited == set(clauses())
    assert len(clauses()) >= 20
    assert all(text.rstrip().endswith((".", ":", ".)")) for text in clauses().values())


def test_clauses_and_rules_stand_in_the_order_of_their_numbers() -> None:
    """E-1, E-2, … without a gap, and all of one letter together."""
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    numbers: dict[str, list[int]] = {}
    for letter, number in re.findall(r"^- \*{1,2}([A-Z])-([0-9]+)\*", readme, re.MULTILINE):
        numbers.setdefault(letter, []).append(int(number))
    assert numbers == {letter: list(range(1, len(found) + 1)) for letter, found in numbers.items()}
    ids = [tuple(name.split("-")) for name in clauses()]
    assert ids == sorted(ids, key=lambda name: (list(dict(ids)).index(name[0]), int(name[1])))


def test_every_case_has_an_id_of_its_own() -> None:
    pairs = [(case.layer.layer, case.situation.situation) for case in CASES.values()]
    assert len(CASES) == len(set(pairs)) >= 45
    assert list(CASES) == ["/".join(pair) for pair in pairs]
    for case in CASES.values():
        assert case.layer.family in case.situation.families


def test_a_large_layer_that_repeats_a_choice_and_one_that_uses_an_addition_are_recommended_at_most() -> None:
    """Rule V-9, which names the two families."""
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    [rule] = re.findall(r"^- \*V-9\* (.+?\.) Reason", readme, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)`", rule)) == RECOMMENDED_AT_MOST
    for case in CASES.values():
        weaker = case.layer.family in RECOMMENDED_AT_MOST or case.layer.additions
        most = "recommended" if weaker and case.situation.level == "required" else case.situation.level
        assert case.own_level == most, case.id
        assert case.is_required == (case.own_level == "required"), case.id
    weaker_cases = ("post-gelu-512/padding-right", "stack-shared-heads-12/no-mask", "pre-quick-gelu/padding-right")
    assert {CASES[name].level for name in weaker_cases} == {"recommended"}
    assert CASES["post-relu-512/padding-right"].level == "required"


def test_every_addition_has_a_layer_and_the_rule_names_it() -> None:
    """Rule L-7. Attention alone has no activation, whatever its file says (E-17)."""
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    [rule] = re.findall(r"^- \*L-7\* (.+?) Reason", readme, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)`", rule)) - {"additions"} == set(ADDITIONS) == set(get_args(Addition))
    used = {addition for layer in SPECIFICATION.layers.values() for addition in layer.additions}
    assert used == set(ADDITIONS)
    alone = SPECIFICATION.layers["cross-attention"]
    quick = alone.feed_forward.model_copy(update={"activation": "quick_gelu"})
    assert alone.model_copy(update={"feed_forward": quick}).additions == ()


def test_the_core_lists_no_case_that_is_recommended_for_its_layer(copy: Path) -> None:
    (copy / "core.yaml").write_text("cases: [stack-shared-heads-6/no-mask]\n", encoding="utf-8")
    refused(copy, "core.yaml", "stack-shared-heads-6/no-mask, which is recommended")


def test_every_layer_has_cases_and_every_situation_too() -> None:
    assert {case.layer.layer for case in CASES.values()} == set(SPECIFICATION.layers)
    assert {case.situation.situation for case in CASES.values()} == set(SPECIFICATION.situations)


def test_the_stage_table_of_the_readme_is_the_one_that_is_used() -> None:
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    order = re.search(r"^Pre-norm: (norm1, .+?)\. Post-norm", readme, re.MULTILINE | re.DOTALL)
    assert order
    named = tuple(" ".join(order[1].split()).split(", "))
    assert stages(SPECIFICATION.layers["pre-gelu"]) == named
    moved = [name for name in named if not name.startswith("norm")]
    for norm, after in (("norm1", "residual1"), ("norm2", "residual2")):
        moved.insert(moved.index(after) + 1, norm)
    assert stages(SPECIFICATION.layers["post-gelu"]) == tuple(moved)
    for names, shape in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| \[(B, [^\]]+)\] \|", readme, re.MULTILINE):
        for name in re.findall(r"\w+", names):
            assert SHAPES[name] == shape.replace(",", ""), name


def test_the_counts_that_are_written_out_are_those_of_the_specification() -> None:
    """README, the page of a run and the changelog say how many cases there are, as `conform list cases` does."""
    specification = load()
    pages = [(REPOSITORY / page).read_text(encoding="utf-8") for page in ("README.md", "docs/running.md")]
    said = [numbers for page in pages for numbers in re.findall(r"(\d+) of (\d+) cases", page)]
    assert said == [(str(len(specification.core)), str(len(specification.cases)))] * len(said)
    assert len(said) >= 2
    counts = {
        "clauses": len(clauses()),
        "layers": len(specification.layers),
        "situations": len(specification.situations),
        "cases": len(specification.cases),
        "goldens": len(specification.with_golden),
    }
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    line = next(line for line in changelog.splitlines() if line.startswith("- The specification: "))
    assert [f"{count} {what}" for what, count in counts.items() if f"{count} {what}" not in line] == []


def test_the_parameter_table_of_the_readme_is_the_one_that_is_used() -> None:
    readme = (SPECS / "README.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for names, shapes in re.findall(r"^\| ((?:`[\w.]+\.\w+`(?:, )?)+) \| (.+?) \|$", readme, re.MULTILINE):
        listed, sizes = re.findall(r"[\w.]+", names), re.findall(r"\[([^\]]+)\]", shapes)
        for name, size in zip(listed, sizes * (len(listed) if len(sizes) == 1 else 1), strict=True):
            found[name] = size.replace(",", "")
    assert found == {name: axes for step in STEPS.values() for name, axes in step.parameter_axes().items()}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("layers", "situations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def refused(specs: Path, file: str, *words: str) -> str:
    """Loading must fail, name the file and these words, and say what to do."""
    with pytest.raises(InputError) as caught:
        load(specs=specs)
    assert file in caught.value.where
    text = str(caught.value)
    assert caught.value.hint, text
    for word in words:
        assert word in text, text
    return text


EDITS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "unknown key": (LAYER, "d_model: 24", "d_model: 24\ncolour: red", ("colour", "unknown")),
    "unknown key below": (LAYER, "  d_ff: 40", "  d_ff: 40\n  dff: 40", ("feed_forward.dff", "unknown")),
    "missing key": (LAYER, "d_model: 24\n", "", ("d_model", "missing")),
    "missing key below": (LAYER, "  epsilon: 1.0e-5\n", "", ("norm.epsilon", "missing")),
    "text for a number": (LAYER, "num_heads: 3", 'num_heads: "3"', ("attention.num_heads", "'3'")),
    "fraction for a count": (LAYER, "d_model: 24", "d_model: 24.5", ("d_model", "24.5")),
    "float for a count": (LAYER, "d_model: 24", "d_model: 24.0", ("d_model", "24.0")),
    "truth for a count": (LAYER, "d_model: 24", "d_model: true", ("d_model", "True")),
    "text for epsilon": (LAYER, "epsilon: 1.0e-5", 'epsilon: "1e-5"', ("norm.epsilon", "1e-5")),
    "date for a count": (LAYER, "d_model: 24", "d_model: 2024-02-01", ("d_model", "2024-02-01")),
    "no size": (LAYER, "d_model: 24", "d_model: 0", ("d_model", "greater than 0")),
    "heads do not divide": (LAYER, "num_heads: 3", "num_heads: 5", ("num_heads = 5", "d_model = 24")),
    "other choice": (LAYER, "activation: gelu", "activation: tanh", ("feed_forward.activation", "'relu'", "'gelu'")),
    "NaN": (LAYER, "epsilon: 1.0e-5", "epsilon: .nan", ("norm.epsilon", "nan")),
    "infinity": (LAYER, "epsilon: 1.0e-5", "epsilon: .inf", ("norm.epsilon", "inf")),
    "epsilon of nothing": (LAYER, "epsilon: 1.0e-5", "epsilon: 0.0", ("norm.epsilon", "0.0")),
    "epsilon below float32": (LAYER, "epsilon: 1.0e-5", "epsilon: 1.0e-60", ("norm.epsilon", "float32")),
    "epsilon above float32": (LAYER, "epsilon: 1.0e-5", "epsilon: 1.0e+60", ("norm.epsilon", "1e+60")),
    "id of another": (LAYER, "layer: pre-gelu", "layer: pre-relu", ("key layer", "pre-relu", "pre-gelu")),
    "id in capitals": (LAYER, "layer: pre-gelu", "layer: Pre-GELU", ("layer", "Pre-GELU")),
    "no clauses": (LAYER, CLAUSES_OF_LAYER, "clauses: []", ("clauses", "at least 1")),
    "unknown clause": (LAYER, CLAUSES_OF_LAYER, "clauses: [E-77]", ("clauses", "E-77", "did you mean E-7")),
    "no clause's name": (LAYER, CLAUSES_OF_LAYER, "clauses: [seven]", ("clauses.0", "seven")),
    "stack in a family of layers": (LAYER, "layers: 1", "layers: 6", ("key family", "small", "stack = {layers: 6")),
    "final norm in a family of layers": (
        LAYER,
        "final_norm: false",
        "final_norm: true",
        ("key family", "final_norm: true}"),
    ),
    "layer in a family of stacks": (LAYER, "family: small", "family: stacks", ("key family", "stack = {layers: 1")),
    "token ids in a family of layers": (
        LAYER,
        "embedding: null",
        "embedding: {vocabulary: 9, positions: none}",
        ("key family", "has an embedding"),
    ),
    "unknown family": (LAYER, "family: small", "family: tiny", ("family", "'small'")),
    "too many lengths": (SITUATION, "[8, 6]", "[8, 6, 4]", ("mask.padding.lengths", "3", "batch is 2")),
    "too few lengths": (SITUATION, "[8, 6]", "[]", ("mask.padding.lengths", "0", "batch is 2")),
    "too long": (SITUATION, "[8, 6]", "[8, 11]", ("mask.padding.lengths", "11", "sequence is 10")),
    "negative length": (SITUATION, "[8, 6]", "[8, -1]", ("lengths.1", "-1")),
    "nothing valid": (SITUATION, "[8, 6]", "[0, 0]", ("mask.padding.lengths", "nothing to compare")),
    "unknown padding": (SITUATION, "kind: right", "kind: middle", ("mask.padding", "middle", "'left'")),
    "lengths of holes": (SITUATION, "kind: right, lengths: [8, 6]", "kind: holes, lengths: [8, 6]", ("positions",)),
    "hole outside": (
        SITUATION,
        "kind: right, lengths: [8, 6]",
        "kind: holes, positions: [[10], []]",
        ("mask.padding.positions", "10", "sequence is 10"),
    ),
    "unknown attention": (SITUATION, "attention: null", "attention: {kind: sideways}", ("mask.attention", "sideways")),
    "unknown parameter": (
        SITUATION,
        "parameter_exponents: {}",
        "parameter_exponents: {attention.query.wait: 1}",
        ("parameter_exponents", "attention.query.wait"),
    ),
    "exponent out of range": (
        SITUATION,
        "parameter_exponents: {}",
        "parameter_exponents: {attention.query.weight: 99}",
        ("parameter_exponents.attention.query.weight", "99"),
    ),
    "no checks": (SITUATION, "checks: [output, stages, gradients]", "checks: []", ("checks", "at least 1")),
    "unknown check": (SITUATION, "checks: [output, ", "checks: [outputs, ", ("checks.0", "outputs")),
    "unknown level": (SITUATION, "level: required", "level: mandatory", ("level", "mandatory")),
    "key twice": (LAYER, "d_model: 24\n", "d_model: 24\nd_model: 25\n", (f"{LAYER}:7:1", "'d_model'", "twice")),
    "key twice below": (LAYER, "  d_ff: 40", "  d_ff: 40\n  d_ff: 41", ("pre-gelu.yaml:21:3", "'d_ff'", "twice")),
    "tab": (LAYER, "  d_ff: 40", "\td_ff: 40", ("pre-gelu.yaml:20:1", "\\t")),
    "bracket left open": (LAYER, CLAUSES_OF_LAYER, "clauses: [L-1", ("pre-gelu.yaml:5:",)),
    "two documents": (LAYER, "d_model: 24", "---\nd_model: 24", ("pre-gelu.yaml:6:1", "another document")),
    "a tag of Python's": (LAYER, "d_model: 24", "d_model: !!python/name:os.system", ("pre-gelu.yaml:6:10",)),
    "a tag that does not fit": (LAYER, "d_model: 24", "d_model: !!int many", ("many",)),
    "no such day": (LAYER, "d_model: 24", "d_model: 2024-02-31", ("day",)),
    "list for a key": (LAYER, "d_model: 24", "? [d_model]\n: 24", ("list",)),
    "endless depth": (LAYER, "d_model: 24", f"d_model: {'[' * 50_000}{']' * 50_000}", ("too deeply",)),
    "some depth": (LAYER, "d_model: 24", f"d_model: {'[' * 2000}{']' * 2000}", ("too deeply",)),
    "a list in itself": (LAYER, "d_model: 24", "d_model: &a [*a]", ("circular",)),
    "control character": (LAYER, "d_model: 24", "d_model: 24 # \x07", ("#x0007",)),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_wrong_file_is_refused_with_place_key_and_next_step(copy: Path, name: str) -> None:
    file, old, new, words = EDITS[name]
    edit(copy / file, old, new)
    refused(copy, file, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "mapping"),
        (b"# only this\n", "mapping"),
        (b"- pre-gelu\n- post-gelu\n", "mapping"),
        (b"pre-gelu\n", "mapping"),
        (b"title: caf\xe9\n", "UTF-8"),
        ("title: x\n".encode("utf-16"), "UTF-8"),
    ],
    ids=["empty", "comment", "list", "word", "latin-1", "utf-16"],
)
def test_a_file_that_is_no_mapping_in_utf8_is_refused(copy: Path, content: bytes, words: str) -> None:
    (copy / LAYER).write_bytes(content)
    refused(copy, LAYER, words)


def test_one_id_in_two_files_is_refused(copy: Path) -> None:
    shutil.copy(copy / LAYER, copy / "layers/pre-gelu.yml")
    refused(copy, "layers/pre-gelu.yml", "'pre-gelu'", "twice", "pre-gelu.yaml")


def test_a_folder_in_a_files_place_is_refused(copy: Path) -> None:
    (copy / "layers/zero.yaml").mkdir()
    refused(copy, "layers/zero.yaml", "read")


def test_a_folder_without_layers_is_refused(copy: Path) -> None:
    for path in (copy / "layers").glob("*.yaml"):
        path.unlink()
    refused(copy, "layers", "no YAML file")


def test_every_problem_of_a_file_is_told_at_once(copy: Path) -> None:
    edit(copy / LAYER, "d_model: 24", "colour: red")
    edit(copy / LAYER, "activation: gelu", "activation: tanh")
    refused(copy, LAYER, "colour", "d_model", "feed_forward.activation")


@pytest.mark.parametrize("written", ["1.0e-5", "1e-5", "1E-05", "0.00001", "10.0e-6", "1.e-5", ".00001"])
def test_epsilon_may_be_written_in_any_way_and_is_a_float32(copy: Path, written: str) -> None:
    edit(copy / LAYER, "epsilon: 1.0e-5", f"epsilon: {written}")
    epsilon = load(specs=copy).layers["pre-gelu"].norm.epsilon
    assert epsilon == float(np.float32(1e-5)) == 9.999999747378752e-06 != 1e-5


def test_a_layer_of_ones_own_joins_in(copy: Path) -> None:
    (copy / LAYER).rename(copy / "mine.yaml")
    edit(copy / "mine.yaml", "layer: pre-gelu", "layer: mine")
    cases = load(extra_layers=(copy / "mine.yaml",)).cases
    assert {name for name in cases if name.startswith("mine/")} == {
        f"mine/{name}" for name, situation in SPECIFICATION.situations.items() if "small" in situation.families
    }


def test_a_layer_of_ones_own_may_not_take_anothers_id(copy: Path) -> None:
    with pytest.raises(InputError, match="exists already") as caught:
        load(extra_layers=(copy / LAYER,))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("rms_limit: 2.0", "rms_limit: -2.0", "rms_limit"),
        ("max_limit: 10.0", "max_limit: .nan", "max_limit"),
        ("condition_runs: 64", "condition_runs: 0", "condition_runs"),
        ("whole_output_up_to: 1024\n", "", "whole_output_up_to"),
    ],
)
def test_wrong_constants_are_refused(tmp_path: Path, old: str, new: str, key: str) -> None:
    path = tmp_path / "constants.yaml"
    shutil.copy(SPECS / "constants.yaml", path)
    edit(path, old, new)
    with pytest.raises(InputError, match=key) as caught:
        read_model(path, Constants)
    assert caught.value.where.endswith("constants.yaml")
    assert caught.value.hint


def test_an_odd_width_has_no_balanced_input(copy: Path) -> None:
    """The two do not meet in one file: the layer's family is where the situation takes hold of it."""
    edit(copy / "layers/vit-base.yaml", "d_model: 768", "d_model: 765")
    edit(copy / "layers/vit-base.yaml", "num_heads: 12", "num_heads: 5")
    text = refused(copy, "layers/vit-base.yaml", "d_model = 765 is odd", "family vision", "balanced")
    assert "situations/vision-" in text
    (copy / "layers/vit-base.yaml").rename(copy / "mine.yaml")
    edit(copy / "mine.yaml", "layer: vit-base", "layer: mine")
    with pytest.raises(InputError, match="d_model = 765 is odd") as caught:
        load(extra_layers=(copy / "mine.yaml",))
    assert str(copy / "mine.yaml") in caught.value.where


def test_an_error_is_told_relative_to_where_one_stands(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(copy / LAYER, "d_model: 24", "colour: red")
    monkeypatch.chdir(copy)
    assert refused(copy, LAYER).startswith(LAYER)


def test_every_case_with_a_golden_compares_something() -> None:
    """Where nothing is specified anything would pass; of an empty batch the shape is the point."""
    for case in load().cases.values():
        tensors = compared_tensors(case)
        compared = [where.any() for _, where in tensors.values()]
        assert all(compared) or not case.situation.batch, f"{case.id} compares nothing in {list(tensors)}"
