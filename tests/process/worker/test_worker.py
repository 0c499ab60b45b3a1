"""Workers that crash, hang, babble or lie about the protocol: each costs what it should, and the run ends by itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from products import daily

CASES = ("--case", "pre-gelu/no-mask", "--case", "pre-gelu/padding-right", "--dtype", "float32")
"""Two cases of three checks: output, stages, gradients, twice."""


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(("--level", "core"), id="core"),
        pytest.param(
            [
                word
                for layer in ("pre-gelu*", "post-relu*", "*rms*", "stack-*", "encoder-pre-gelu", "embedding-*")
                for word in ("--case", f"{layer}/*")
            ],
            id="all",
            marks=pytest.mark.release,
        ),
    ],
)
def test_the_honest_one_passes_everything(conform: Callable, fake: Callable, asked: Sequence[str]) -> None:
    ended = conform("run", "--impl", fake("honest_copy"), *asked, "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.report["complete"]
    assert set(ended.outcomes()) == {"pass"}
    assert max(record["rms"] or 0.0 for record in ended.report["records"]) <= 2


def test_a_killed_worker_costs_one_check_and_is_started_again(conform: Callable, fake: Callable) -> None:
    lie = """
    def stages(self, x, masks, run):
        if masks.joined() is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().stages(x, masks, run)
    """
    ended = conform("run", "--impl", fake("killed", lie), *CASES)
    assert ended.status == 1
    assert ended.outcomes() == ["pass", "crash", "pass", "pass", "pass", "pass"]
    assert "SIGKILL" in ended.messages()


def test_what_is_asked_next_is_sent_before_the_last_is_answered(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        import select
        if not select.select([3], [], [], 60)[0]:
            raise RuntimeError("nothing was sent")
        return super().output(x, masks, run)
    """
    one = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
    ended = conform("run", "--impl", fake("waiting", lie), *one)
    assert ended.outcomes() == ["pass", "pass", "pass"], ended.messages()


def test_a_layer_that_cannot_be_built_costs_what_was_sent_behind_it_and_no_other(
    conform: Callable, fake: Callable
) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        if layer["layer"] == "pre-gelu":
            raise RuntimeError("not this one")
        return super().build(layer, parameters, dtype)
    """
    asked = ("--case", "p*-*elu/no-mask", "--dtype", "float32", "--jobs", "1")
    ended = conform("run", "--impl", fake("unbuilt", lie), *asked)
    records = ended.report["records"]
    assert {record["outcome"] for record in records if record["case"] == "pre-gelu/no-mask"} == {"error"}
    assert {record["outcome"] for record in records if record["case"] != "pre-gelu/no-mask"} == {"pass"}


def test_an_exit_is_a_crash_that_says_its_last_words(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        print("out of luck")
        os._exit(7)
    """
    ended = conform("run", "--impl", fake("quitter", lie), *CASES)
    assert ended.outcomes("output") == ["crash", "crash"]
    assert ended.outcomes("stages") == ["pass", "pass"]
    assert "status 7; its last words: out of luck" in ended.messages()


def test_a_worker_that_sleeps_for_ever_times_out(conform: Callable, fake: Callable) -> None:
    lie = """
    def gradients(self, x, masks, run, cotangent):
        while masks.joined() is None:
            signal.pause()
        return super().gradients(x, masks, run, cotangent)
    """
    ended = conform("run", "--impl", fake("sleeper", lie, timeouts="{start: 60, build: 60, run: 2}"), *CASES)
    assert ended.outcomes() == ["pass", "pass", "timeout", "pass", "pass", "pass"]
    assert "no answer to run in 2 s" in ended.messages()


def test_a_worker_that_does_not_even_read_times_out(conform: Callable, fake: Callable) -> None:
    script = "import signal\nwhile True: signal.pause()\n"
    ended = conform("run", "--impl", fake("deaf", script=script, timeouts="{start: 2, build: 60, run: 60}"), *CASES)
    assert ended.status == 1
    assert set(ended.outcomes()) == {"timeout"}
    assert "could not be started" in ended.messages()
    assert "(see " not in ended.messages()  # its log is empty


RAW = """
import runpy, sys
from encoder_conformance.adapter.serve import _answer
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import encode, read_frame
adapter = runpy.run_path("{honest}/adapter.py")["Honest"]()
(requests, out), count = open_wire(), 0
while True:
    request = read_frame(requests)
    reply, tensors = _answer(adapter, request)
    frame = encode({{"id": request.message["id"], **reply}}, tensors)
    count += request.message["op"] == "run"
    if request.message["op"] == "run" and count == 2:
        {lie}
    out.write(frame)
"""


BROKEN_FRAMES = [
    ('out.write(b"Loading the weights ...\\n")', "something that is not a frame: b'Loading "),
    ("out.write(b'9\\n')", "not a frame"),
    ("frame = (2**40).to_bytes(8, 'little') + frame", "not a frame"),
    ("frame = frame[:3]; out.write(frame); sys.exit()", "not a frame"),
    ("frame = (20).to_bytes(8, 'little') + b'x' * 20", "not a frame"),
    ("frame = encode({'id': 1, 'ok': True})", "answered request 1 when asked"),
    ("frame = encode({'ok': True})", "broke the protocol: id: Field required"),
    ("frame = encode({'id': request.message['id']})", "broke the protocol: ok: Field required"),
]


@pytest.mark.parametrize(("lie", "said"), daily(BROKEN_FRAMES[::3], BROKEN_FRAMES))
def test_a_broken_frame_costs_one_check(conform: Callable, fake: Callable, lie: str, said: str, honest: Path) -> None:
    ended = conform("run", "--impl", fake("babbler", script=RAW.format(honest=honest, lie=lie)), *CASES)
    # The worker counts from 0 again when it was started again, so a later second check can be hit as well.
    assert ended.status == 1
    assert set(ended.outcomes()) == {"pass", "error"}
    assert ended.report["complete"]
    assert said in ended.messages()


def test_prints_through_the_base_class_are_harmless(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        print("hello from Python")
        os.write(1, b"hello from C")
        return super().output(x, masks, run)
    """
    ended = conform("run", "--impl", fake("printer", lie), *CASES)
    assert ended.status == 0, ended.messages()
    log = (ended.out / "logs" / "printer.log").read_text()
    assert "hello from Python" in log
    assert "hello from C" in log


def test_an_exception_is_this_check_s_error(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        raise ValueError("x is not to my taste")
    """
    ended = conform("run", "--impl", fake("picky", lie), *CASES)
    assert ended.outcomes("output") == ["error", "error"]
    assert "ValueError: x is not to my taste" in ended.messages()
    assert "Traceback" in (ended.out / "logs" / "picky.log").read_text()


WRONG_PARAMETERS = [
    ("return {k: v for k, v in held.items() if k != 'norm1.gain'}", "missing from the built layer: norm1.gain"),
    (
        "return {**held, 'attention.key.weight': held['attention.query.weight'].T.copy()}",
        "attention.key.weight and attention.query.weight came back as the same numbers, one transposed: in the layer "
        "these two are one",
    ),
    (
        "return {**held, 'norm2.gain': held['norm1.gain']}",
        "norm2.gain and norm1.gain came back as the same numbers: in the layer these two are one",
    ),
    (
        "key = held['attention.key.weight'].copy(); key[:8] = held['attention.query.weight'][:8]; "
        "return {**held, 'attention.key.weight': key}",
        "attention.key.weight and attention.query.weight came back as in part the same numbers: in the layer these two",
    ),
    ("return {**held, 'bonus': held['norm1.gain']}", "does not have: bonus"),
    ("return {**held, 'norm1.gain': held['norm1.gain'] + 1}", "norm1.gain came back with other values"),
    ("return {**held, 'norm1.gain': held['norm1.gain'].astype('float64')}", "came back as float64"),
    (
        "name = 'feed_forward.hidden.weight'; return {**held, name: held[name].T}",
        "came back as float32 [40, 24] instead of float32 [24, 40]",
    ),
]


@pytest.mark.parametrize(("lie", "said"), daily(WRONG_PARAMETERS[::2], WRONG_PARAMETERS))
def test_parameters_that_do_not_round_trip(conform: Callable, fake: Callable, lie: str, said: str) -> None:
    body = f"""
    def build(self, layer, parameters, dtype):
        held = super().build(layer, parameters, dtype)
        {lie}
    """
    ended = conform("run", "--impl", fake("forgetful", body), *CASES)
    assert set(ended.outcomes()) == {"error"}
    assert said in ended.messages()


def test_another_protocol_is_said(conform: Callable, fake: Callable) -> None:
    script = """
    from encoder_conformance.protocol.descriptors import open_wire
    from encoder_conformance.protocol.frames import read_frame, write_frame
    requests, answers = open_wire()
    request = read_frame(requests)
    write_frame(answers, {"id": request.message["id"], "ok": True, "protocol": 99})
    read_frame(requests)
    """
    ended = conform("run", "--impl", fake("modern", script=script), *CASES)
    assert set(ended.outcomes()) == {"error"}
    assert "speaks protocol 99, this harness 3" in ended.messages()


def test_the_first_stage_out_of_line_is_named(conform: Callable, fake: Callable) -> None:
    lie = """
    def build(self, layer, parameters, dtype):
        held = super().build(layer, parameters, dtype)
        self.layer = self.layer.model_copy(update={"norm": self.layer.norm.model_copy(update={"epsilon": 1e-3})})
        return held
    """
    ended = conform("run", "--impl", fake("epsilon", lie), *CASES[:2], "--dtype", "float32", diagnosed=False)
    assert ended.outcomes() == ["fail", "fail", "fail"]
    assert next(r for r in ended.report["records"] if r["check"] == "stages")["stage"] == "norm1"


def test_workers_of_two_implementations_run_and_only_the_liar_fails(conform: Callable, fake: Callable) -> None:
    lie = """
    def output(self, x, masks, run):
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = conform("run", "--impl", fake("one"), "--impl", fake("two", lie), *CASES, "--jobs", "2")
    assert set(ended.outcomes(implementation="one")) == {"pass"}
    assert ended.outcomes("output", "two") == ["crash", "crash"]
    assert ended.outcomes("stages", "two") == ["pass", "pass"]


def test_the_one_that_is_allowed_most_time_begins(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    lie = """
    def start(self, device, threads):
        with open("../begun", "a") as begun:
            print(os.path.basename(os.getcwd()), file=begun)
        return super().start(device, threads)
    """
    quick = fake("quick", lie, timeouts="{start: 90, build: 20, run: 20}")
    slow = fake("slow", lie, timeouts="{start: 60, build: 60, run: 20}")
    ended = conform("run", "--impl", quick, "--impl", slow, *CASES, "--jobs", "1")
    assert (tmp_path / "begun").read_text().split() == ["slow", "quick"]
    assert [judged["name"] for judged in ended.report["implementations"]] == ["quick", "slow"]


def test_an_opt_out_is_no_pass(conform: Callable, fake: Callable) -> None:
    unsupported = '[{when: {check: gradients}, reason: "it has no backward pass", link: "https://example.org/x"}]'
    ended = conform("run", "--impl", fake("modest", unsupported=unsupported), *CASES[:2], "--dtype", "float32")
    assert ended.status == 0
    assert ended.outcomes() == ["pass", "pass", "unsupported"]
    assert "2 of 2 checks conform (1 unsupported)" in ended.stdout
    assert "it has no backward pass" in ended.stdout


def test_a_backend_of_single_layers_says_so(conform: Callable, fake: Callable) -> None:
    unsupported = '[{when: {stack: true}, reason: "it is one layer", link: "https://example.org/x"}]'
    cases = ("--case", "pre-gelu/single-position", "--case", "stack-pre-gelu/no-mask", "--dtype", "float32")
    ended = conform("run", "--impl", fake("single", unsupported=unsupported), *cases)
    assert ended.status == 0, ended.stdout + ended.stderr
    outcomes = {record["case"]: record["outcome"] for record in ended.report["records"]}
    assert outcomes == {"pre-gelu/single-position": "pass", "stack-pre-gelu/no-mask": "unsupported"}


def test_an_opt_out_of_several_speaks_of_each_of_them_and_of_nothing_else(conform: Callable, fake: Callable) -> None:
    when = "{situation: [single-position, causal], check: [output, stages]}"
    unsupported = f'[{{when: {when}, reason: "it does not go there", link: "https://example.org/x"}}]'
    cases = [f"--case=pre-gelu/{name}" for name in ("single-position", "causal", "padding-right")]
    ended = conform("run", "--impl", fake("some", unsupported=unsupported), *cases, "--dtype", "float32")
    assert ended.status == 0, ended.stdout + ended.stderr
    left_out = {(r["case"], r["check"]) for r in ended.report["records"] if r["outcome"] == "unsupported"}
    assert left_out == {
        (f"pre-gelu/{name}", check) for name in ("single-position", "causal") for check in ("output", "stages")
    }


def test_a_run_in_which_everything_is_opted_out_is_no_success(conform: Callable, fake: Callable) -> None:
    ended = conform("run", "--impl", fake("idle", dtypes="[float64]"), *CASES[:2], "--dtype", "float32")
    assert ended.status == 3
    assert "nothing was judged" in ended.stdout


def test_a_long_message_is_one_line_on_the_terminal_bounded_in_the_report_and_whole_in_the_log(
    conform: Callable, fake: Callable
) -> None:
    lie = "def output(self, x, masks, run):\n    raise KeyError('first line\\n' + 'x' * 5000)"
    ended = conform("run", "--impl", fake("loud", lie, checks="[output]"), "--case", "pre-gelu/no-mask")
    assert ended.status == 1
    shown = [line for line in ended.stdout.splitlines() if "first line" in line]
    assert shown
    assert all(len(line) < 600 and line.endswith(" …") for line in shown)
    [message] = {record["message"] for record in ended.report["records"] if "first line" in record["message"]}
    assert 3900 < len(message) <= 4000
    assert message.endswith(" characters)")
    assert "x" * 5000 in (ended.out / "logs" / "loud.log").read_text()
