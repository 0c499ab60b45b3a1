"""Adapters of a few lines that each lie in one way: none passes, and what is said of each names the lie.

Every lie is told by a real worker, over the wire. The judge's own traps are in test_judge.py, dying workers and broken
frames in test_worker.py.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import DtypeName, read_implementation
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.golden.store import golden_path, read_golden, read_golden_manifest
from encoder_conformance.platform.paths import IMPLS, PACKAGE, SPECS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.session import Session

PADDED, PLAIN, SMALL = "pre-gelu/padding-right", "pre-gelu/no-mask", "pre-gelu/single-position"
"""[2, 10, 24] with lengths 8 and 6; the same without a mask; [3, 1, 24]."""


def records(folder: Path, *cases: str, dtype: DtypeName = "float32") -> list[Record]:
    """What the judge says of the implementation in `folder`, in the order in which it is asked."""
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    planned = plan(ready.implementation, [load().cases[case] for case in cases], (dtype,))
    tasks = [task for task in planned if task.opt_out is None]
    session = Session(ready, "cpu", 1, folder / "worker.log")
    manifest = read_golden_manifest()
    try:
        return [judged(put(session, t, lambda case: read_golden(case, manifest, constants()))) for t in tasks]
    finally:
        session.close()


OUTPUTS = {
    # Values that are not finite: a comparison with NaN is false, and `nan > tolerance` is no failure.
    "nan-for-one-value": ("out[0, 3, 5] = np.nan", "nan at [0, 3, 5] instead of"),
    "nan-for-all": ("out[:] = np.nan", "nan at [0, 0, 0] instead of"),
    "nan-where-it-is-wrong": ("out[1] += 1; out[1] = np.nan", "nan at [1, 0, 0] instead of"),  # zeroed in both: equal
    "infinity": ("out[1, 2, 0] = np.inf", "inf at [1, 2, 0] instead of"),
    # Another shape that NumPy would broadcast against the right one, or that holds the same numbers.
    "one-item-for-all": ("out = out[:1]", "shape [1, 10, 24] instead of [2, 10, 24]"),
    "one-position-for-all": ("out = out[:, :1]", "shape [2, 1, 24] instead of [2, 10, 24]"),
    "one-feature-for-all": ("out = out[..., :1]", "shape [2, 10, 1] instead of [2, 10, 24]"),
    "one-number": ("out = out.mean()", "shape [] instead of [2, 10, 24]"),
    "an-axis-more": ("out = out[None]", "shape [1, 2, 10, 24] instead of [2, 10, 24]"),
    "nothing": ("out = out[:0]", "shape [0, 10, 24] instead of [2, 10, 24]"),
    "flat": ("out = out.reshape(-1)", "shape [480] instead of [2, 10, 24]"),
    "sequence-first": ("out = out.swapaxes(0, 1)", "shape [10, 2, 24] instead of [2, 10, 24]"),
    "last-token-missing": ("out = out[:, :-1]", "shape [2, 9, 24] instead of [2, 10, 24]"),
    # Another dtype, even where the numbers are as good or better.
    "float64-for-float32": ("out = out.astype('float64')", "dtype float64 instead of float32"),
    "float16-for-float32": ("out = out.astype('float16')", "dtype float16 instead of float32"),
    # The right sum, or a difference whose sum is below any tolerance, or the right numbers in other places.
    "one-too-small": ("out -= 1", "output: rms"),  # (a - b).sum() <= tolerance
    "right-sum": ("out[..., ::2] += 1e-3; out[..., 1::2] -= 1e-3", "output: rms"),
    "right-numbers-turned-round": ("out = out[..., ::-1]", "output: rms"),
    "right-numbers-sorted": ("out = np.sort(out)", "output: rms"),
    "right-numbers-of-the-other-item": ("out = out[::-1]", "output: rms"),
    "last-valid-token-wrong": ("out[0, 7] += 1e-3", "at [0, 7, "),
    "one-value-wrong": ("out[0, 3, 5] += 1e-3", "at [0, 3, 5]"),
    "zeros": ("out[:] = 0", "output: rms"),
    "a-little-off-everywhere": ("out *= 1 + 1e-5", "output: rms"),  # within 1e-3 and 1e-4, the usual tolerances
}
"""Name → what is done to the right output [2, 10, 24], of lengths 8 and 6, and what is said of it."""


GIVES = """
def output(self, x, masks, run):
    out = np.array(super().output(x, masks, run))
    {lie}
    return out
"""


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_is_wrong_in_one_way_fails(fake: Callable, name: str) -> None:
    lie, said = OUTPUTS[name]
    [record] = records(fake("liar", GIVES.format(lie=lie), checks="[output]"), PADDED)
    assert record.outcome is Outcome.FAIL
    assert said in record.message


@pytest.mark.parametrize(
    ("lie", "said"),
    [("out", "dtype float32 instead of float64"), ("out.astype('float64')", "output: rms")],
    ids=["float32-for-float64", "float32-inside"],
)
def test_float32_in_place_of_float64_fails(fake: Callable, lie: str, said: str) -> None:
    body = f"""
    def output(self, x, masks, run):
        out = super().output(x, masks, run).astype('float32')
        return {lie}
    """
    [record] = records(fake("narrow", body, checks="[output]"), PADDED, dtype="float64")
    assert record.outcome is Outcome.FAIL
    assert said in record.message
    assert record.rms is None or record.rms > 1e5


ANSWERS = {
    "extra-stage": ("return {**shown, 'extra': shown['key']}", "not asked for extra"),
    "missing-stage": ("del shown['key']; return shown", "wrong names: missing key"),
    "renamed-stage": ("shown['Key'] = shown.pop('key'); return shown", "missing key; not asked for Key"),
    "no-stages": ("return {}", "wrong names: missing norm1"),  # `return`, where the backend is missing
    "output-alone": ("return {'output': shown['output']}", "wrong names: missing norm1"),
    "no-answer": ("return None", "wrong names: missing norm1"),
    "no-array": ("return {**shown, 'key': None}", "SafetensorError"),
    "skipped": ("import unittest; raise unittest.SkipTest('no backend here')", "SkipTest: no backend here"),
}
"""Name → what is answered when all stages are `shown`, and what is said of it."""


SHOWS = """
def stages(self, x, masks, run):
    shown = super().stages(x, masks, run)
    {lie}
"""


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none_is_an_error(fake: Callable, name: str) -> None:
    lie, said = ANSWERS[name]
    [record] = records(fake("liar", SHOWS.format(lie=lie), checks="[stages]"), PLAIN)
    assert record.outcome is Outcome.ERROR
    assert said in record.message


@pytest.mark.parametrize(
    ("place", "lie", "outcome", "said"),
    [
        ("start(self, device, threads)", "raise ImportError('no such backend')", Outcome.ERROR, "no such backend"),
        ("start(self, device, threads)", "return None", Outcome.ERROR, "could not be started"),
        ("start(self, device, threads)", "raise SystemExit(0)", Outcome.CRASH, "exited with status 0"),
        ("build(self, layer, parameters, dtype)", "return {}", Outcome.ERROR, "parameters missing"),
        ("build(self, layer, parameters, dtype)", "raise SystemExit(0)", Outcome.CRASH, "exited with status 0"),
        ("output(self, x, masks, run)", "return None", Outcome.ERROR, "run: "),
        ("output(self, x, masks, run)", "raise SystemExit(0)", Outcome.CRASH, "exited with status 0"),
        ("run_check(self, check, x, masks, run, cotangent)", "return {}", Outcome.ERROR, "missing output"),
    ],
)
def test_a_backend_that_is_missing_and_says_nothing_is_no_pass(
    fake: Callable, place: str, lie: str, outcome: Outcome, said: str
) -> None:
    folder = fake("absent", f"def {place}:\n    {lie}", checks="[output]")
    [record] = records(folder, PLAIN)
    assert record.outcome is outcome
    assert said in record.message


@pytest.mark.parametrize("check", ["output", "stages", "gradients"])
def test_the_right_answer_to_the_previous_case_fails(fake: Callable, check: str) -> None:
    """Same shapes, same parameters, and the mask is all that differs."""
    body = """
    before = None

    def run_check(self, *asked):
        now = super().run_check(*asked)
        before, self.before = self.before, now
        return now if before is None else before
    """
    first, second = records(fake("late", body, checks=f"[{check}]"), PLAIN, PADDED)
    assert first.outcome is Outcome.PASS
    assert second.outcome is Outcome.FAIL
    assert "rms" in second.message


WIRE = """
import runpy, sys
from encoder_conformance.adapter.serve import _answer
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import encode, read_frame
adapter = runpy.run_path("{honest}/adapter.py")["Honest"]()
(requests, out), last = open_wire(), b""
while True:
    request = read_frame(requests)
    reply, tensors = _answer(adapter, request)
    frame = encode({{"id": request.message["id"], **reply}}, tensors)
    {lie}
    last = frame
    out.write(frame)
"""


@pytest.mark.parametrize(
    ("lie", "outcome", "said"),
    [
        ("if request.message['op'] == 'run': frame = last", Outcome.ERROR, "answered a request twice"),
        (
            "if request.message['op'] == 'run': out.write(frame[: len(frame) // 2]); sys.exit(0)",
            Outcome.CRASH,
            "cut off after",
        ),
        (
            "if request.message['op'] == 'run': frame = encode(reply | {'id': request.message['id']})",
            Outcome.ERROR,
            "missing output",
        ),
    ],
    ids=["the-previous-frame", "half-a-frame", "no-tensors"],
)
def test_a_frame_that_lies_is_no_answer(fake: Callable, honest: Path, lie: str, outcome: Outcome, said: str) -> None:
    folder = fake("raw", script=WIRE.format(honest=honest, lie=lie), checks="[output]")
    [record] = records(folder, PLAIN)
    assert record.outcome is outcome
    assert said in record.message


NOISY = """
def output(self, x, masks, run):
    out = np.array(super().output(x, masks, run))
    drawn = np.random.default_rng().uniform(-1, 1, out.shape)
    return {noisy}
"""


def test_answers_that_differ_by_more_than_noise_from_run_to_run_fail(fake: Callable) -> None:
    noisy = NOISY.format(noisy="(out + 1e-4 * drawn).astype(out.dtype)")
    for record in records(fake("dice", noisy, checks="[output]"), PLAIN, PADDED):
        assert record.outcome is Outcome.FAIL
        assert "rms" in record.message


def test_answers_that_differ_within_noise_pass(fake: Callable) -> None:
    """Nobody specifies the last bit: an implementation that sums in another order each time conforms.

    That the same question gets the same answer twice is another property, of determinism, and no check asks for it.
    """
    noisy = NOISY.format(noisy="np.where(drawn > 0, np.nextafter(out, np.inf, dtype=out.dtype), out)")
    for record in records(fake("last_bit", noisy, checks="[output]"), PLAIN, PADDED):
        assert record.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("return super().output(x, masks, run) - 1", "max"),  # shown, and not only shown
        ("raise ImportError('no backend')", "ImportError: no backend"),
        ("os._exit(0)", "exited with status 0"),
    ],
    ids=["fail", "error", "crash"],
)
def test_the_command_ends_otherwise_than_with_0(conform: Callable, fake: Callable, lie: str, said: str) -> None:
    """A difference that is printed and not asserted, a missing backend that returns: the exit status tells."""
    folder = fake("liar", f"def output(self, x, masks, run):\n    {lie}", checks="[output]", dtypes="[float32]")
    ended = conform("run", "--impl", folder, "--case", SMALL, diagnosed=False)
    assert ended.status == 1
    assert "0 of 1 checks conform" in ended.stdout
    assert said in ended.messages()


def suite(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """tests/frameworks/suite with these arguments alone: tox adds what it selects to every pytest that it starts."""
    tests = Path(__file__).resolve().parents[1]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        tests / "frameworks" / "suite",
        *arguments,
    ]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tests.parent, env=env, check=False)


@pytest.mark.release
def test_the_suite_without_an_implementation_or_a_case_is_no_success(fake: Callable) -> None:
    assert suite("--level", "core").returncode not in (0, 5)
    everything = '[{when: {check: output}, reason: "it cannot do that", link: "https://example.org"}]'
    idle = suite("--impl", fake("idle", checks="[output]", unsupported=everything), "--level", "core")
    assert idle.returncode not in (0, 5)
    assert "opts out of every case" in idle.stdout + idle.stderr


@pytest.mark.release
def test_the_suite_fails_where_one_case_does(fake: Callable) -> None:
    lie = "def output(self, x, masks, run):\n    return super().output(x, masks, run) - (len(x) == 3)"
    folder = fake("liar", lie, checks="[output]", dtypes="[float32]")
    ended = suite("--impl", folder, "-k", "float32-pre-gelu/single")
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "output: fail: output: rms" in ended.stdout


@pytest.mark.release
def test_the_suite_asks_a_layer_again_after_another(fake: Callable) -> None:
    """An adapter that remembers which layers it has made, and sets what it holds of one only when it makes it."""
    lie = """
    def build(self, layer, parameters, dtype):
        made = self.__dict__.setdefault("made", set())
        if layer["layer"] not in made:
            super().build(layer, parameters, dtype)
        made.add(layer["layer"])
        return parameters
    """
    folder = fake("rememberer", lie, checks="[output]", dtypes="[float32]")
    ended = suite("--impl", folder, "-k", "no-mask and float32-p or built_again", "--level", "core")
    assert "1 failed" in ended.stdout, ended.stdout + ended.stderr
    assert "FAILED tests/frameworks/suite/test_conformance.py::test_a_layer_built_again" in ended.stdout


@pytest.mark.parametrize("claim", [{"checks": "[]"}, {"dtypes": "[]"}, {"stages": "[]", "checks": "[stages]"}])
def test_an_implementation_that_claims_nothing_is_no_success(
    conform: Callable, fake: Callable, claim: dict[str, str]
) -> None:
    assert conform("run", "--impl", fake("modest", **claim), "--case", SMALL).status != 0


@pytest.mark.release  # two runs of a copy
def test_expected_values_that_the_code_under_test_wrote_are_refused(fake: Callable, tmp_path: Path) -> None:
    """A golden is read before its case is asked or after; its sum says whether anyone has touched it since."""
    copy = tmp_path / "copy"
    package = copy / "encoder_conformance"  # `python -m` looks where it is started first
    untouched = golden_path(SMALL).read_bytes()
    for source, to in ((PACKAGE, package), (IMPLS, package / "impls"), (SPECS, package / "_specs")):
        if not to.is_dir():  # a wheel has all three in one
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
    lie = f"""
    def output(self, x, masks, run):
        import safetensors.numpy
        from encoder_conformance.oracle.golden.store import golden_path
        wrong = super().output(x, masks, run) - 1
        held = safetensors.numpy.load_file(golden_path("{SMALL}"))
        held["output"] = wrong.astype("float64").reshape(-1)
        safetensors.numpy.save_file(held, golden_path("{SMALL}"))
        return wrong
    """
    words = ["run", "--impl", fake("author", lie, checks="[output]", dtypes="[float32]"), "--case", SMALL]
    command = [sys.executable, "-m", "encoder_conformance.commands.main", *words, "--out", tmp_path / "report"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=copy, check=False) for _ in range(2)
    )
    assert first.returncode in (1, 2), first.stderr
    assert "output: rms" in first.stdout or "does not match its sum in manifest.json" in first.stderr
    assert second.returncode == 2
    assert "does not match its sum in manifest.json" in second.stderr
    assert golden_path(SMALL).read_bytes() == untouched, "the copy was asked, and not what is installed"
