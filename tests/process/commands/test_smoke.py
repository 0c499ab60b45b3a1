"""`conform smoke`: fakes that each lie in one way, what the checklist says of them, and whose fault it is."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from products import daily, of_a_release

from encoder_conformance.commands.smoke.checklist import NAMES


def steps(ended: Any) -> dict[str, dict[str, Any]]:
    """The checklist by step, with the verdict beside it."""
    found = json.loads(ended.stdout)
    return {"verdict": found["verdict"], **{step["name"]: step for step in found["steps"]}}


def smoked(conform: Callable, folder: Path) -> dict[str, Any]:
    ended = conform("smoke", folder, "--json")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return steps(ended)


def test_the_honest_one_passes_every_step(conform: Callable, honest: Path) -> None:
    ended = conform("smoke", honest)
    assert ended.status == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == list(NAMES)
    assert {line.split()[0] for line in lines[1:-1]} == {"✓"}
    assert f"conform run --impl {honest}" in lines[-1]


def test_what_is_not_declared_is_not_asked(conform: Callable, fake: Callable) -> None:
    folder = fake(
        "modest", checks="[output]", dtypes="[float32]", modes="[eval]", layouts="[batch_first]", masks="[attend]",
        checkpoint="false",
    )  # fmt: skip
    ended = conform("smoke", folder, "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    states = {name: step["state"] for name, step in steps(ended).items() if name != "verdict"}
    assert {name for name, state in states.items() if state == "not declared"} == {
        "stages", "weights", "gradients", "refusal", "forms",
    }  # fmt: skip


BROKEN = {
    "a-module-that-nobody-has": (
        "def start(self, device, threads):\n    import no_such_framework",
        "start",
        "No module named 'no_such_framework'",
        "pip install 'numpy'",
    ),
    "raises-in-build": (
        "def build(self, layer, parameters, dtype):\n    raise KeyError('W_q')",
        "build",
        "KeyError: 'W_q'",
        "it was raised at liar/adapter.py:",
    ),
    "another-shape": (
        "def output(self, x, masks, run):\n    return super().output(x, masks, run)[:, :-1]",
        "output",
        "instead of [2, 10, 20]",
        "",
    ),
    "another-dtype": (
        "def output(self, x, masks, run):\n    return super().output(x, masks, run).astype('float64')",
        "output",
        "dtype float64 instead of float32",
        "",
    ),
    "a-stage-that-it-does-not-have": (
        "def stages(self, x, masks, run):\n    shown = super().stages(x, masks, run)\n"
        "    del shown['key']\n    return shown",
        "stages",
        "wrong names: missing key",
        "take stages out of capabilities",
    ),
    "no-refusal": (
        "def refusal(self, operation, error):\n    return None",
        "refusal",
        "gave an error of no category",
        "Adapter.refusal says what an exception of the framework's own refuses",
    ),
    "a-layout-that-it-does-not-have": (
        "def output(self, x, masks, run):\n    return super().output(x, masks, replace(run, layout='batch_first'))",
        "forms",
        "its manifest declares what pre-gelu/sequence-first in float32 needs",
        "take that out of capabilities",
    ),
}
"""Name → the lie, the step that fails, what is said there, and what to do."""


@pytest.mark.parametrize("name", daily(("raises-in-build", "another-shape", "no-refusal"), BROKEN))
def test_a_broken_adapter_is_told_from_a_wrong_implementation(conform: Callable, fake: Callable, name: str) -> None:
    lie, at, said, do = BROKEN[name]
    found = smoked(conform, fake("liar", lie))
    assert found["verdict"] == "adapter"
    assert found[at]["state"] == "failed"
    assert said in found[at]["said"]
    assert do in "\n".join(found[at]["do"])
    before = NAMES[: NAMES.index(at)]
    assert {found[step]["state"] for step in before} == {"ok"}


def test_a_line_that_raised_nothing_is_not_named(conform: Callable, fake: Callable) -> None:
    """A right refusal leaves a traceback in the log; what goes wrong after it raises nothing."""
    lie = """
    def _check_fit(self, x, mask, memory):
        if self.layer.d_model != x.shape[-1] or mask is not None and mask.shape[-1] != x.shape[1]:
            raise ValueError("x has another size")

    def refusal(self, operation, error):
        return {"build": "configuration", "run": "shape"}[operation]
    """
    found = smoked(conform, fake("liar", lie))
    assert "accepted a mask of" in found["refusal"]["said"]
    assert "raised at" not in "\n".join(found["refusal"]["do"])


def test_what_is_raised_elsewhere_is_told_from_the_line_that_called_it(conform: Callable, fake: Callable) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        return np.linalg.inv(np.zeros((2, 2)))
    """
    folder = fake("liar", lie)
    [line] = [at for at, text in enumerate((folder / "adapter.py").read_text().splitlines(), 1) if "linalg.inv" in text]
    [advice] = [text for text in smoked(conform, folder)["build"]["do"] if "raised" in text]
    assert advice.startswith("it was raised at ")
    assert "liar/adapter.py" not in advice.partition("; called at ")[0]
    assert advice.endswith(f"liar/adapter.py:{line}, in build")


RAW = """
import sys
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import read_frame, write_frame
requests, answers = open_wire()
request = read_frame(requests)
{lie}
read_frame(requests)
"""


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (
            "write_frame(answers, {'id': request.message['id'], 'ok': True, 'protocol': 99})",
            "speaks protocol 99, this harness 3: bring the adapter up to docs/wire.md",
        ),
        (
            "answers.write(b'Loading the weights of a large model ...')",
            "not a frame: b'Loading the weigh'; only frames belong on the wire: an adapter prints to standard error",
        ),
        ("sys.exit('no licence')", "exited with status 1; its last words: no licence"),
    ],
    ids=["another-protocol", "text", "ends"],
)
def test_one_that_does_not_speak_the_wire(conform: Callable, fake: Callable, lie: str, said: str) -> None:
    found = smoked(conform, fake("foreign", script=RAW.format(lie=lie)))
    assert found["verdict"] == "adapter"
    assert said in found["start"]["said"]
    assert found["build"]["state"] == "not tried"


def test_a_blank_is_said_with_its_file_and_line_and_is_no_failure_of_numbers(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        raise NotImplementedError("BLANK: attention, from x [B, S, D] to [B, S, D]")

    def stages(self, x, masks, run):
        raise NotImplementedError("BLANK: every stage")
    """
    folder = fake("unfinished", lie)
    lines = (folder / "adapter.py").read_text().splitlines()
    first, second = (at for at, line in enumerate(lines, start=1) if "BLANK" in line)
    found = smoked(conform, folder)
    assert found["verdict"] == "blank"
    assert f"adapter.py:{first}: BLANK: attention, from x [B, S, D] to [B, S, D]" in found["output"]["said"]
    assert f"adapter.py:{second}: BLANK: every stage" in found["output"]["do"][0]
    assert found["numbers"]["state"] == "not tried"


GAVE_BACK = {
    "transposed": ("held[Q] = held[Q].T", "attention.query.weight is transposed"),
    "transposed-into-another-shape": ("held[F] = held[F].T", "feed_forward.hidden.weight is transposed"),
    "reshaped": ("held[F] = held[F].reshape(held[F].shape[::-1])", "came back as [48, 20]: it is [20, 48]"),
    "swapped": (
        "held[Q], held[K] = held[K], held[Q]",
        "attention.query.weight holds what belongs to attention.key.weight",
    ),
    "interleaved": (
        "held[Q] = held[Q].reshape(20, 4, 5).swapaxes(1, 2).reshape(20, 20)",
        "attention.query.weight is split into heads the other way",
    ),
    "zero": ("held[Q] = np.zeros_like(held[Q])", "attention.query.weight is missing"),
    "as-made": ("held[Q] = np.full_like(held[Q], 0.25)", "0.25 throughout: it was never loaded"),
    "wide": ("held[Q] = held[Q].astype('float64')", "came back as float64: keep it in float32"),
    "narrow": ("held[Q] = (held[Q] * np.float32(1.001))", "rounded: it went through a narrower format"),
    "left-out": ("del held[Q]", "the map takes every parameter"),
}
"""Name → what is done to the parameters that the layer says it holds, and what is said of it."""


@pytest.mark.parametrize("name", daily(("transposed", "swapped", "zero", "wide"), GAVE_BACK))
def test_what_is_wrong_with_the_parameters_that_came_back_is_said(conform: Callable, fake: Callable, name: str) -> None:
    lie, said = GAVE_BACK[name]
    body = f"""
    def build(self, layer, parameters, dtype):
        held = dict(super().build(layer, parameters, dtype))
        Q, K, F = "attention.query.weight", "attention.key.weight", "feed_forward.hidden.weight"
        {lie}
        return held
    """
    found = smoked(conform, fake("forgetful", body))
    assert found["verdict"] == "adapter"
    assert found["parameters"]["state"] == "failed"
    assert said in "\n".join(found["parameters"]["do"])
    assert found["output"]["state"] == "not tried"


WRONG = {
    "transposed": ("p[Q] = p[Q].T", "attention.query.weight (the map's 'W_q') is transposed"),
    "all-transposed": (
        "p |= {n: v.T for n, v in p.items() if v.ndim == 2 and v.shape[0] == v.shape[1]}",
        "are transposed, all of them",
    ),
    "swapped": ("p[Q], p[K] = p[K], p[Q]", "are swapped"),
    "taken-twice": ("p[V] = p[K]", "attention.value.weight holds what belongs to attention.key.weight"),
    "zero": ("p[B] = 0 * p[B]", "feed_forward.output.bias is missing"),
    "one": ("p[G] = p[G] ** 0", "norm1.gain is missing: it is as if it were one"),
    "interleaved": (
        "p[Q] = p[Q].reshape(*p[Q].shape[:1], H, -1).swapaxes(1, 2).reshape(p[Q].shape)",
        "attention.query.weight (the map's 'W_q') is split into heads the other way",
    ),
    "interleaved-output": (
        "p[O] = p[O].reshape(H, -1, p[O].shape[1]).swapaxes(0, 1).reshape(p[O].shape)",
        "attention.output.weight has its rows split into heads the other way",
    ),
}
"""Name → what is done to the parameters that the live layer computes with, which it does not say, and what is said."""

SHOWN = {"all": "all", "output-alone": None}


EVERY_TIME = ("swapped", "all")


@pytest.mark.release
@pytest.mark.parametrize(("name", "shown"), daily([EVERY_TIME], product(WRONG, SHOWN)))
def test_the_parameter_that_a_wrong_map_gave_is_named(conform: Callable, fake: Callable, name: str, shown: str) -> None:
    """What came back is right bit for bit: only the numbers can tell."""
    lie, said = WRONG[name]
    body = f"""
    def build(self, layer, parameters, dtype):
        from encoder_conformance import ParameterMap, Take
        held, p, H = super().build(layer, parameters, dtype), dict(parameters), layer["attention"]["num_heads"]
        Q, K, V, O = (f"attention.{{of}}.weight" for of in ("query", "key", "value", "output"))
        B, G = "feed_forward.output.bias", "norm1.gain"
        self.map = ParameterMap({{("W_q" if name == Q else name): Take(name) for name in parameters}})
        self.map.to_own(parameters, layer)
        {lie}
        self.parameters = {{name: np.ascontiguousarray(value) for name, value in p.items()}}
        return held
    """
    folder = fake("wrong", body, **({} if SHOWN[shown] else {"checks": "[output]"}))
    found = smoked(conform, folder)
    assert found["verdict"] == "implementation"
    assert found["parameters"]["state"] == "ok"
    assert found["numbers"]["state"] == "failed"
    assert said in "\n".join(found["numbers"]["do"])


@pytest.mark.release
def test_what_no_parameter_explains_is_explained_by_the_catalogue(conform: Callable, fake: Callable) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        return super().build({**layer, "norm": {**layer["norm"], "epsilon": 1e-3}}, parameters, dtype)
    """
    found = smoked(conform, fake("keras_like", lie))
    assert found["verdict"] == "implementation"
    [text] = found["numbers"]["do"]
    assert "Cause: Both norms' epsilon is 1e-3, the default of Keras (norm-eps-1e-3), " in text
    assert found["gradients"]["state"] == "not tried"
    assert found["refusal"]["state"] == "ok"


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        of_a_release("found[Q] = found[Q].T", "the gradient by attention.query.weight is transposed"),
        (
            "found[Q], found[K] = found[K], found[Q]",
            "the gradient by attention.query.weight holds what belongs to attention.key.weight",
        ),
        of_a_release(
            "found = {n: v / 2 for n, v in found.items()}", "the gradient by norm1.gain is 0.5 times what it should be"
        ),
        of_a_release("found[Q] = np.sqrt(np.abs(found[Q]))", "the gradient by attention.query.weight is another"),
        (
            "blind = masks.attention is not None and not masks.attention.any(-1).all()\n"
            "        found = {n: v + np.nan * blind if blind else v for n, v in found.items()}",
            "Give such rows finite scores before the softmax",
        ),
    ],
    ids=["transposed", "swapped", "mean-for-sum", "another", "no-key"],
)
def test_a_wrong_gradient_is_named(conform: Callable, fake: Callable, lie: str, said: str) -> None:
    body = f"""
    def gradients(self, x, masks, run, cotangent):
        found = super().gradients(x, masks, run, cotangent)
        Q, K = "attention.query.weight", "attention.key.weight"
        {lie}
        return {{name: np.ascontiguousarray(value) for name, value in found.items()}}
    """
    found = smoked(conform, fake("half", body))
    assert found["numbers"]["state"] == "ok"
    assert found["gradients"]["blame"] == "implementation"
    assert said in "\n".join(found["gradients"]["do"])


@pytest.mark.release
def test_a_mask_that_is_read_the_other_way_round_in_one_form_alone(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        import dataclasses
        return super().output(x, dataclasses.replace(masks, encoding=masks.encoding.replace("ignore", "attend")), run)
    """
    found = smoked(conform, fake("inverted", lie))
    assert found["numbers"]["state"] == "ok"
    assert found["forms"]["blame"] == "implementation"
    assert "pre-gelu/padding-ignore in float32 needs" in found["forms"]["said"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"requires": "[no_such_framework]"}, "pip install 'numpy'"),
        ({"command": "[no-such-program-anywhere]"}, "its command 'no-such-program-anywhere' is not found"),
        ({"command": "[python, adaptor.py]"}, "names the adapter 'adaptor.py', which is not there"),
        ({"dtypes": "[float8]"}, "capabilities.dtypes"),
        ({"deviations": "[{deviation: gelu-tnah, reason: it is so fast, link: 'https://example.org'}]"}, "gelu-tanh"),
    ],
)
def test_what_cannot_be_started_is_bad_input(
    conform: Callable, fake: Callable, manifest: dict[str, str], said: str
) -> None:
    ended = conform("smoke", fake("broken", **manifest))
    assert ended.status == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_that_holds_no_implementation_is_bad_input(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for given, said in ((tmp_path / "empty", "holds no impl.yaml"), ("pytroch", "did you mean pytorch")):
        ended = conform("smoke", given)
        assert ended.status == 2
        assert said in ended.stderr


def test_an_implementation_that_opts_out_of_all_that_is_asked_is_no_success(conform: Callable, fake: Callable) -> None:
    everything = '[{when: {check: output}, reason: "it cannot do that", link: "https://example.org"}]'
    found = smoked(conform, fake("idle", unsupported=everything))
    assert "opts out" in found["build"]["said"]
