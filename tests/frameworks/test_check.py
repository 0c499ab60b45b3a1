"""`conform check` on bare modules: what is read off them is right and proved, and bugs in them are named."""

import hashlib
import random
import re
import runpy
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import read_document
from products import daily
from torch import nn

from encoder_conformance.commands.check.maps import map_findings
from encoder_conformance.platform.errors import InputError
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, WeightSource
from encoder_conformance.readers.onnx_file.tracing.norms import NormOperand, norm_of, standardised
from encoder_conformance.spec.layer import Window as LocalWindow
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.opening import open_subject
from encoder_conformance.subjects.subject import SubjectRequest

MODULES = Path(__file__).with_name("bare_modules.py")
BARE: dict[str, Any] = runpy.run_path(str(MODULES))
D, H, F = BARE["D"], BARE["H"], BARE["F"]
assert_read = BARE["assert_read"]


READ: dict[str, tuple[Callable[[], nn.Module], tuple[str, str, float]]] = {
    "torch post": (BARE["torch_layer"], ("post", "relu", 1e-5)),
    "torch post, batch first": (lambda: BARE["torch_layer"](batch_first=True), ("post", "relu", 1e-5)),
    "torch post gelu": (lambda: BARE["torch_layer"](activation="gelu"), ("post", "gelu", 1e-5)),
    "torch pre": (lambda: BARE["torch_layer"](norm_first=True, batch_first=True), ("pre", "relu", 1e-5)),
    "torch pre gelu": (lambda: BARE["torch_layer"](norm_first=True, activation="gelu"), ("pre", "gelu", 1e-5)),
    "torch stack": (lambda: BARE["torch_stack"](2), ("post", "relu", 1e-5)),
    "einsum": (BARE["Einsum"], ("pre", "gelu", 1e-5)),
    "fused qkv": (BARE["Fused"], ("pre", "gelu", 1e-5)),
    "fused kvq": (lambda: BARE["Fused"]("kvq"), ("pre", "gelu", 1e-5)),
    "fused vqk": (lambda: BARE["Fused"]("vqk"), ("pre", "gelu", 1e-5)),
    "gains less 1": (BARE["LessOne"], ("pre", "gelu", 1e-5)),
}


READ_OFTEN = ("fused kvq",)
"""A release reads all."""


@pytest.mark.parametrize(
    "name", [name if name in READ_OFTEN else pytest.param(name, marks=pytest.mark.release) for name in READ]
)
def test_the_layer_and_its_map_are_read_and_proved(name: str) -> None:
    placement, activation, epsilon = READ[name][1]
    assert_read(read(name), placement, activation, epsilon, H)


@cache
def read(name: str) -> Examination:
    torch.manual_seed(0)
    return examine(READ[name][0]())


@pytest.mark.release
@pytest.mark.parametrize("near", [2, 100, 400])
def test_a_window_is_read_as_one(near: int) -> None:
    """One that a few positions show, one that many do, and one that none of those asked does."""

    class Window(BARE["Fused"]):  # type: ignore[misc]
        def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any) -> torch.Tensor:
            at = torch.arange(q.shape[-2])
            seen = (at[:, None] - at).abs() <= near
            return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    found = examine(Window())
    assert found.layer is not None, found.exported.problem
    assert found.layer.attention.window == (None if near > 300 else LocalWindow(left=near, right=near))


@pytest.mark.release
def test_a_weight_that_is_used_the_other_way_round_than_its_kin_is_said() -> None:
    """A square one, which no shape tells; and the order of a fused one, which its name does."""

    class Turned(BARE["Fused"]):  # type: ignore[misc]
        def attention(self, y: torch.Tensor, mask: Any) -> torch.Tensor:
            q, k, v = (self.split(part) for part in self.qkv(y).chunk(3, -1))
            return self.merge(self.attend(q, k, v, mask)) @ self.proj.weight + self.proj.bias

    [said] = [finding.message for finding in map_findings(described(examine(Turned())), None)]
    line = Turned.attention.__code__.co_firstlineno + 2
    assert said == f"proj.weight is used as [in, out], and qkv.weight as [out, in] (test_check.py:{line})"
    said = [finding.message for finding in map_findings(described(read("fused kvq")), None)]
    assert said == ["qkv.weight holds key, value, query, in this order, and its name says query, key, value"]
    assert not [*map_findings(described(read("torch stack")), None)]


@pytest.mark.release
def test_a_gain_less_1_is_given_and_read_and_said(conform: Callable) -> None:
    ended, result = check(conform, "LessOne", "--layer", "pre-gelu")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "! norm1.gain is norm1.weight + 1" in ended.stdout
    assert {record["outcome"] for record in result["parts"][0]["records"]} == {"pass"}


def meanings(found: Examination) -> dict[str, str]:
    return {mask.name: mask.polarity.meaning for mask in found.semantics.masks if mask.polarity}


@pytest.mark.release
def test_masks_are_told_by_what_they_hide() -> None:
    torch_layer = read("torch post")
    assert torch_layer.semantics.layout == "SBD"
    assert meanings(torch_layer) == {"src_mask": "ignore", "src_key_padding_mask": "ignore"}
    assert meanings(stated("einsum")[1]) == {"mask": "attend"}  # and `keep`, which does nothing, is none
    assert meanings(read("fused kvq")) == {"mask": "attend"}


def fingerprint(module: nn.Module) -> str:
    """Everything of a module and of PyTorch that an examination could leave behind."""
    digest = hashlib.sha256()
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(f"{name} {value.dtype} {value.requires_grad} {id(value)}".encode())
        digest.update(value.detach().numpy().tobytes())
    for name, each in module.named_modules():
        hooks = len(each._forward_hooks), len(each._forward_pre_hooks), len(each._backward_hooks)
        digest.update(f"{name} {id(each)} {each.training} {hooks} {sorted(each.__dict__)}".encode())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(repr((random.getstate(), np.random.get_state())).encode())
    digest.update(f"{torch.get_default_dtype()} {torch.is_grad_enabled()}".encode())
    digest.update(f"{torch.backends.mha.get_fastpath_enabled()} {torch.get_num_threads()}".encode())
    return digest.hexdigest()


@pytest.mark.parametrize("name", [pytest.param("torch post", marks=pytest.mark.release), "einsum"])
def test_the_module_comes_back_as_it_was(name: str) -> None:
    before, _, after = stated(name)
    assert after == before


@cache
def stated(name: str) -> tuple[str, Examination, str]:
    """One examination of a module with hooks and a mode of its own, between two fingerprints."""
    module = READ[name][0]()
    module.train()
    next(iter(module.parameters())).requires_grad_(False)
    module.register_forward_hook(lambda *_: None)
    before = fingerprint(module)
    found = examine(module, load().layers["pre-gelu"], resize=True, dtypes=("bfloat16", "float16"))
    return before, found, fingerprint(module)


@pytest.mark.release
def test_16_bits_are_taken_and_the_map_is_proved_in_the_widest_format() -> None:
    found = stated("einsum")[1]
    assert found.taken == ("bfloat16", "float16")
    assert found.dtypes == ("float64", "float32")


def check(conform: Callable, target: str, *arguments: str) -> Any:
    target = f"{MODULES}:{target}" if ":" not in target else target
    ended = conform("check", target, "--jobs", "1", "--out", "report", *arguments)
    return ended, read_document(ended.out / "check.json")


@pytest.mark.parametrize("target", [pytest.param("instance", marks=pytest.mark.release), "Einsum"])
def test_a_right_module_does_what_it_was_read_to_be(conform: Callable, target: str) -> None:
    ended, result = check(conform, target)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "This is a correct pre-norm layer (layer_norm ε 1e-05, gelu" in ended.stdout
    assert "does what it should" not in ended.stdout
    [part] = result["parts"]
    asked = {(record["check"], record["dtype"]) for record in part["records"]}
    assert {("output", "float32"), ("gradients", "float64"), ("invariant", "float32")} <= asked
    assert any(record["case"].startswith("as-read-own/") for record in part["records"])
    assert all(record["outcome"] == "pass" for record in part["records"])
    assert {"other-configuration", "initialisation"} <= {each["kind"] for each in part["not_asked"]}


@pytest.mark.release
def test_formats_of_16_bits_are_asked_where_the_module_takes_them(conform: Callable) -> None:
    narrow = "--dtype", "bfloat16", "--dtype", "float16"
    ended, result = check(conform, "Fused", *narrow)
    assert ended.status == 0, ended.stdout + ended.stderr
    [part] = result["parts"]
    assert {record["dtype"] for record in part["records"]} == {"bfloat16", "float16"}
    assert {record["check"] for record in part["records"]} == {"output", "stages"}
    assert part["described"]["proof"]["dtype"] == "float64", "what it is, is read in the widest"
    ended, result = check(conform, "NoFirstResidual", "--layer", "pre-gelu", *narrow)
    assert ended.status == 1, ended.stdout + ended.stderr
    found = {name for each in result["parts"][0]["diagnoses"] for name in each["deviations"]}
    assert "residual1-missing" in found, ended.stdout
    ended, _ = check(conform, "InFloat32", *narrow)
    assert ended.status == 2
    assert "it gives no output in bfloat16 or float16" in ended.stderr


@pytest.mark.release
def test_stated_at_the_module_s_sizes(conform: Callable) -> None:
    ended, result = check(conform, "Fused", "--layer", "pre-gelu")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "This is pre-gelu (" in ended.stdout
    assert result["parts"][0]["layer"]["d_model"] == D


@pytest.mark.release
def test_quick_gelu_is_read_and_is_right(conform: Callable) -> None:
    """As in CLIP; few encoders have it, and a warning says so."""
    ended, result = check(conform, "QuickGelu", "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert result["parts"][0]["layer"]["feed_forward"]["activation"] == "quick_gelu"
    assert re.search(r"feed_forward\.activation is quick_gelu \(bare_modules\.py:\d+\), as in clip", ended.stdout)


NAMED = {
    "WrongEpsilon": ("pre-gelu", "norm-eps-1e-3"),
    "TanhGelu": ("pre-gelu", "gelu-tanh"),
    "QuickGelu": ("pre-gelu", "gelu-quick"),
    "ScaledByModel": ("pre-gelu", "scale-by-d-model"),
    "KeyFromQuery": ("pre-gelu", "key-from-query"),
    "NoFirstResidual": ("pre-gelu", "residual1-missing"),
    "TwiceSecondResidual": ("pre-gelu", "residual2-twice"),
    "UnbiasedVariance": ("pre-gelu", "norm-unbiased-variance"),
    "HeadsByReshape": ("pre-gelu", "heads-by-reshape-at-split"),
    "UnusedKeys": ("post-relu", "key-from-query"),
    "PlusOne": ("pre-gelu", "norm-gain-plus-one"),
    "UnreadBias": ("pre-gelu", "ffn-output-bias-missing"),
    "TanhGeluTorch": ("post-gelu", "gelu-tanh"),
    "NoSecondResidualTorch": ("post-relu", "residual2-missing"),
    "PostTorch": ("pre-relu", "norm-placement-post"),
}


_OFTEN = ("HeadsByReshape",)
"""Bugs that every run of the tests looks for; a release looks for all of them."""


@pytest.mark.parametrize(
    "target", [name if name in _OFTEN else pytest.param(name, marks=pytest.mark.release) for name in NAMED]
)
def test_a_bug_in_the_module_is_named_where_the_layer_is_stated(conform: Callable, target: str) -> None:
    layer, deviation = NAMED[target]
    ended, result = check(conform, target, "--layer", layer)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "This is not " in ended.stdout
    [part] = result["parts"]
    found = {each["dtype"]: deviation in each["deviations"] for each in part["diagnoses"]}
    assert found == dict.fromkeys(part["described"]["dtypes"], True), ended.stdout


@pytest.mark.release
def test_a_bug_in_each_layer_of_a_stack_is_named_where_the_stack_is_stated(conform: Callable) -> None:
    """Its graph is no layer's: the map is found by names and numbers, layer by layer, and together with the bug."""
    ended, result = check(conform, "TwiceInEach", "--layer", "stack-pre-gelu", "--dtype", "float32")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "one matches with residual2-twice" in ended.stdout
    [part] = result["parts"]
    assert {name for each in part["diagnoses"] for name in each["deviations"]} == {"residual2-twice"}
    assert {record["outcome"] for record in part["records"]} <= {"pass", "fail"}


@pytest.mark.release
@pytest.mark.parametrize("target", [name for name in NAMED if name != "PostTorch"])  # which is right by itself
def test_the_same_bug_is_never_called_right_without_a_warning(conform: Callable, target: str) -> None:
    ended, result = check(conform, target)
    [part] = result["parts"]
    warned = [finding for finding in part["findings"] if finding["severity"] in ("warning", "error")]
    assert ended.status != 0 or warned, ended.stdout
    assert "does what it should" not in ended.stdout


@pytest.mark.release
def test_two_parameters_that_are_one_are_not_the_stated_layer_s(conform: Callable) -> None:
    ended, _ = check(conform, "Tied")
    assert ended.status == 0
    assert "! attention.query.weight and attention.key.weight are the same numbers" in ended.stdout
    ended, result = check(conform, "Tied", "--layer", "pre-gelu")
    assert ended.status == 1
    tied = next(finding for finding in result["parts"][0]["findings"] if finding["kind"] == "parameters-tied")
    due = {"parameters": ["attention.query.weight", "attention.key.weight"], "in_part": False, "transposed": False}
    assert (tied["severity"], tied["about"]) == ("error", due)
    assert "✗ attention.query.weight and attention.key.weight are the same numbers" in ended.stdout


@pytest.mark.release
def test_a_bias_that_the_stated_layer_has_and_the_module_has_not(conform: Callable) -> None:
    ended, _ = check(conform, "NoValueBias", "--layer", "post-relu")
    assert ended.status == 1
    assert "✗ it has no attention.value.bias, and post-relu has" in ended.stdout


def test_a_program_is_told_what_is_otherwise_by_names_and_not_by_sentences(conform: Callable) -> None:
    ended, result = check(conform, f"{MODULES.with_name('unread_modules.py')}:Parallel")
    assert ended.status == 2, ended.stdout + ended.stderr
    [part] = result["parts"]
    [refused] = [finding for finding in part["findings"] if finding["kind"] == "layer-not-read"]
    assert refused["about"]["features"] == part["described"]["not_read"]["features"] == ["parallel"]
    assert refused["about"]["beyond"] is True
    assert refused["severity"] == "error"


@pytest.mark.release
def test_what_is_called_the_query_and_makes_the_keys(conform: Callable) -> None:
    ended, _ = check(conform, "Swapped", "--layer", "post-relu")
    assert ended.status == 1
    assert "✗ q_proj.weight does the work of attention.key.weight" in ended.stdout


@pytest.mark.release
def test_layers_inside_a_model_are_listed_and_judged(conform: Callable) -> None:
    ended, result = check(conform, "Model")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert [part["at"] for part in result["parts"]] == ["blocks.0", "blocks.1"]
    assert result["parts"][1]["like"] == "blocks.0"
    ended, result = check(conform, "Model", "--at", "blocks.1")
    assert ended.status == 0
    assert [part["at"] for part in result["parts"]] == ["blocks.1"]


@pytest.mark.release
def test_a_decoder_s_layer_is_said_to_be_causal(conform: Callable) -> None:
    ended, _ = check(conform, "Causal")
    assert "no position sees a later one" in ended.stdout
    assert "! no position sees a later one" in ended.stdout


BAD = {
    "Fusd": "did you mean Fused",
    "NeedsForm": "--arg width=64 --arg form=…",
    "number": "is int, and no module of PyTorch",
    "Raising": "this layer never works",
    "convolution": "is a convolution",
    "quantised": "quantised module",
    "decoder": "needs memory beside tgt",
}


@pytest.mark.parametrize("target", daily(("Fusd", "decoder"), BAD))
def test_bad_input_is_said(conform: Callable, target: str) -> None:
    ended, _ = check(conform, target)
    assert ended.status == 2, ended.stdout
    assert BAD[target] in ended.stderr
    assert "encoder_conformance/impls" not in ended.stderr, "its own frames, and none of ours"


@pytest.mark.release
def test_a_module_in_another_format_is_judged_in_that_and_as_copies_in_wider_ones(conform: Callable) -> None:
    ended, _ = check(conform, "half")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "in float64, float32 and float16" in ended.stdout


@pytest.mark.release
def test_arguments_make_the_module(conform: Callable) -> None:
    ended, result = check(conform, "NeedsWidth", "--arg", "width=8")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert result["parts"][0]["layer"]["d_model"] == 8
    assert check(conform, "NeedsWidth", "--arg", "widht=8")[0].status == 2


def test_a_file_that_prints_and_asks_on_import(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(f"print('hello', flush=True)\nexec(open({str(MODULES)!r}).read())\n")
    ended, _ = check(conform, f"{tmp_path}/loud.py:convolution")
    assert "is a convolution" in ended.stderr, "what it printed is in nobody's way"
    (tmp_path / "asking.py").write_text("name = input('which? ')\n")
    ended, _ = check(conform, f"{tmp_path}/asking.py:Fused")
    assert ended.status == 2
    assert "it asks for input" in ended.stderr


def test_a_module_without_numbers_is_refused() -> None:
    with pytest.raises(BadTarget, match="on the device 'meta' and have no numbers"):
        FRAMEWORK.refuse_unfit(BARE["Fused"]().to("meta"))


def test_a_module_of_a_package_may_be_called_as_a_pickle_ends(conform: Callable) -> None:
    ended, _ = check(conform, "nothing.bin:Layer")
    assert ended.status == 2
    assert "there is no module 'nothing" in ended.stderr


def test_a_part_that_is_not_there(conform: Callable) -> None:
    ended, _ = check(conform, "Model", "--at", "blocks.7")
    assert ended.status == 2
    assert "blocks has no part '7'" in ended.stderr


@pytest.mark.release
def test_a_module_whose_parameters_are_not_the_stated_layer_s(conform: Callable) -> None:
    ended, _ = check(conform, "ByNumPy", "--layer", "pre-rms-silu")
    assert ended.status == 1  # an RMSNorm has no shift, and these stay as they are
    ended, _ = check(conform, "ByNumPy", "--layer", "stack-pre-gelu", "--arg", "f=20")
    assert ended.status == 2
    assert "no map of its parameters to those of stack-pre-gelu fits" in ended.stdout


@pytest.mark.release
def test_what_no_export_takes_is_judged_as_the_layer_that_is_stated(conform: Callable) -> None:
    ended, _ = check(conform, "ByNumPy")
    assert ended.status == 2
    assert "It could not be judged" in ended.stdout
    assert "it cannot be exported to ONNX" in ended.stdout
    ended, result = check(conform, "ByNumPy", "--layer", "pre-gelu")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert result["parts"][0]["described"]["searched"]["deviation"] == ""


@pytest.mark.release
def test_the_adapter_that_it_used_is_written_and_runs(conform: Callable, tmp_path: Path) -> None:
    ended, _ = check(conform, "Fused", "--arg", "order=kvq", "--write-adapter", "my_fused")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert (
        "Take('attention.key.weight', 'attention.value.weight', 'attention.query.weight'"
        in (tmp_path / "my_fused" / "adapter.py").read_text()
    )
    ended = conform("run", "--impl", "./my_fused", "--layer", "my_fused/my-fused-layer.yaml", "--jobs", "1")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.outcomes().count("pass") > 20
    ended, _ = check(conform, "Fused", "--write-adapter", "my_fused")
    assert ended.status == 2
    assert "exists already" in ended.stderr


def run_of_the_adapter(conform: Callable, *words: str) -> Any:
    """What `run` makes of the adapter that a check writes."""
    ended = conform("check", *words, "--write-adapter", "written")
    assert ended.status == 0, ended.stdout + ended.stderr
    ended = conform("run", "--impl", "./written", "--layer", "written/written-layer.yaml", "--jobs", "1")
    assert ended.status == 0, ended.stdout + ended.stderr
    return ended


@pytest.mark.release
@pytest.mark.parametrize("name", ["Block", "Filled"])
def test_the_adapter_comes_to_what_the_check_did(conform: Callable, name: str) -> None:
    """Gradients of a batch with an item of padding are NaN in `Block`, and `Filled` chooses what hides."""
    ended = run_of_the_adapter(conform, f"{MODULES.with_name('also_modules.py')}:{name}")
    assert ended.outcomes().count("deviates") == (0 if name == "Block" else 2)


@pytest.mark.release
def test_the_adapter_of_a_module_of_few_positions_is_asked_no_more(conform: Callable) -> None:
    """Its table begins with the keys after a query, and ends at 64 positions."""
    ended = run_of_the_adapter(conform, f"{MODULES.with_name('cases_distances.py')}:OfTurnedDistance")
    assert ended.outcomes().count("pass") > 20


@pytest.mark.release
def test_no_adapter_is_written_that_no_case_of_a_run_can_ask(conform: Callable) -> None:
    ended = conform("check", f"{MODULES.with_name('cases_distances.py')}:OfAnIndex", "--write-adapter", "written")
    assert ended.status == 2
    assert "there is no adapter to write: no case of a run has as many positions as it takes" in ended.stderr


@pytest.mark.release
@pytest.mark.parametrize("source", ["called_modules.py:LazyOfAKind", "called_keras.py:OfAKind"])
def test_an_adapter_calls_it_as_a_user_said(conform: Callable, source: str) -> None:
    ended = run_of_the_adapter(conform, f"{MODULES.parent}/{source}", "--with", "kind=encoder")
    assert ended.outcomes().count("pass") > 8


@pytest.mark.release
def test_an_adapter_finds_the_files_of_its_module(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "sized.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(MODULES.parent)!r})\n"
        "from cases_plain import Plain\n\nclass Sized(Plain):\n    HIDDEN = int(Path('size.txt').read_text())\n"
    )
    (tmp_path / "size.txt").write_text("40")
    assert run_of_the_adapter(conform, "sized.py:Sized").outcomes().count("pass") > 8


@pytest.mark.release
def test_why_there_is_no_adapter_is_said(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "hooked.py").write_text(
        f"import sys\nsys.path.insert(0, {str(MODULES.parent)!r})\nfrom called_modules import OfAKind\n\n\n"
        "def conform_inputs(batch, sequence):\n    return {'kind': 'encoder'}\n"
    )
    ended = conform("check", "hooked.py:OfAKind", "--write-adapter", "written")
    assert ended.status == 2
    assert "what kind is given is an array or a function, which no source says" in ended.stderr
    assert not (tmp_path / "written").exists()


def _words(text: str) -> str:
    """The text without its numbers, in one line."""
    return " ".join(re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", text).split())


@pytest.mark.release
def test_readme_shows_what_is_printed(conform: Callable) -> None:
    root = MODULES.parents[2]
    shown = re.findall(r"```\n(?:\$ [^\n]*\n)?(.*?)```", (root / "README.md").read_text(), re.DOTALL)[:2]
    for text, arguments in zip(shown, (("--layer", "post-gelu-bert"), ()), strict=True):
        ended, _ = check(conform, f"{root}/docs/checking/model.py:Block", *arguments)
        printed = _words(ended.stdout)
        sentences = [each for each in re.split(r"\n(?! )", text.strip()) if each.strip()]
        assert len(sentences) >= 3
        assert [each for each in sentences if _words(each) not in printed] == []
        broken = [part for line in ended.stdout.splitlines()[1:] for part in textwrap.wrap(line, 80)]
        assert len(broken) <= 12, ended.stdout


def test_a_norm_without_a_gain_that_a_gain_follows_is_a_norm() -> None:
    """As x-transformers' is: a vector of ones in the graph, and then the gain. Another vector beside it is none."""
    gain = np.linspace(0.1, 0.9, 6)
    held = {"ones": np.ones(6), "gain": gain, "epsilon": np.float64(1e-5)}
    operands = [NormOperand(name, WeightSource(value, None), "", value.shape) for name, value in held.items()]

    def of(rows: np.ndarray, put: dict[str, np.ndarray]) -> np.ndarray:
        now = held | put
        return standardised(rows, "layer_norm", 1e-5) * now["ones"] * now["gain"]

    form = norm_of(of, lambda values: values, (8, 6), operands)
    assert (form.kind, form.epsilon, form.shift) == ("layer_norm", 1e-5, None)
    assert form.gain is not None
    assert np.array_equal(form.gain.value, gain)
    held["ones"] = np.full(6, 2.0)
    twice = [replace(each, source=WeightSource(held[each.name], None)) for each in operands]
    with pytest.raises(UnsupportedPattern):
        norm_of(of, lambda values: values, (8, 6), twice)


def test_a_file_that_is_not_there_is_no_subject(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file 'nowhere\.py'"):
        open_subject(SubjectRequest("nowhere.py:Layer", folder=tmp_path), tmp_path / "logs" / "worker.log")
