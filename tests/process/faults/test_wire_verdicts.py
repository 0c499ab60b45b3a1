"""No verdict is false because of what came over the wire, and each fault is charged to the check that it belongs to."""

import os
import select
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.messages import Answer, Examine, Inspect
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.channel import Channel, EndedError, OverdueError
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

CASES = ("--case", "pre-gelu/no-mask", "--case", "pre-gelu/padding-right", "--dtype", "float32", "--jobs", "1")
"""Two cases of three checks: output, stages, gradients, twice."""
NO_ROWS = np.zeros((0, 2), np.int64)


def test_an_answer_after_the_deadline_is_too_late_though_it_is_there(tmp_path: Path) -> None:
    (requests, sent), (answers, said) = os.pipe(), os.pipe()
    channel = Channel(sent, answers)
    os.write(said, b"an answer")
    channel.limit(0.0)
    with pytest.raises(OverdueError):
        channel.read(1)
    channel.limit(60.0)
    assert channel.read(9) == b"an answer"
    os.close(said)
    assert channel.read(1) == b""
    for descriptor in (requests, sent, answers):
        os.close(descriptor)


def test_a_request_that_nobody_reads_is_given_up_at_the_deadline() -> None:
    (requests, sent), (answers, said) = os.pipe(), os.pipe()
    channel = Channel(sent, answers)
    while select.select([], [sent], [], 0)[1]:
        os.write(sent, bytes(1 << 16))
    channel.limit(0.05)
    with pytest.raises(OverdueError):
        channel.write(memoryview(b"more"))
    channel.interrupt()
    channel.limit(60.0)
    with pytest.raises(EndedError):
        channel.read(1)
    for descriptor in (requests, sent, answers, said):
        os.close(descriptor)


HOLDS = """
    held = False

    def gradients(self, x, masks, run, cotangent):
        if masks.joined() is None:
            {hold}
            signal.pause()
        return super().gradients(x, masks, run, cotangent)
"""


HOLDERS = {
    "a_child": "if not os.fork(): signal.pause()",
    "a_daemon": "os.fork() or os.setsid() or os.fork() or signal.pause()",
    "a_program": "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "with_the_wire": "os.dup2(4, 1); import subprocess; subprocess.Popen(['sleep', '1000'], close_fds=False)",
}


def name_of(fault: str) -> str:
    return f"raw_{fault.replace('-', '_')}"


def named(folders: list[Path]) -> list[str]:
    return [word for folder in folders for word in ("--impl", str(folder))]


@pytest.mark.release
@pytest.mark.linux
@pytest.mark.parametrize(
    "holders",
    [("a_daemon", "with_the_wire"), pytest.param(("a_child", "a_program"), marks=pytest.mark.release)],
    ids=" ".join,
)
def test_a_child_that_holds_the_wire_makes_no_late_answer_a_pass(
    conform: Callable, fake: Callable, within: Callable, holders: tuple[str, ...]
) -> None:
    """25 s at a limit of 4 s became a pass, and the next check a crash."""
    limits = "{start: 60, build: 60, run: 2}"
    folders = [fake(name, HOLDS.format(hold=HOLDERS[name]), timeouts=limits) for name in holders]
    with within(60):
        ended = conform("run", *named(folders), *CASES)
    for name in holders:
        found = ended.outcomes(implementation=name)
        assert found == ["pass", "pass", "timeout", "pass", "pass", "pass"], name
    assert ended.messages().count("no answer to run in 2 s") == len(holders)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "message",
    [
        {"id": "7", "ok": True},
        {"id": 7.0, "ok": True},
        {"id": True, "ok": True},
        {"id": None, "ok": True},
        {"id": [7], "ok": True},
        {"id": 7, "ok": "yes"},
        {"id": 7, "ok": 1},
        {"id": 7, "ok": "true"},
        {"id": 7, "ok": None},
        {"id": 7, "ok": False, "error": 3},
        {"id": 7, "ok": False, "refused": "because"},
    ],
    ids=str,
)
def test_nothing_in_an_answer_is_converted(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Answer.model_validate(message)


RAW = """
import os, runpy, sys
from encoder_conformance.adapter.serve import _answer
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import encode, read_frame
adapter = runpy.run_path("{honest}/adapter.py")["Honest"]()
requests, out = open_wire()
count, once = 0, os.path.exists("happened")
while True:
    request = read_frame(requests)
    reply, tensors = _answer(adapter, request)
    id = request.message["id"]
    frame = encode({{"id": id, **reply}}, tensors)
    count += request.message["op"] == "run"
    now = request.message["op"] == "run" and count == 2 and not once
    if now:
        open("happened", "w").close()
        {before}
    out.write(frame)
    if now:
        {after}
"""
SECOND = "stages"
FAULTS = {
    # name: before the answer, after it, the outcome of the check, and what is said of it
    "nothing": ("pass", "pass", "pass", ""),
    "text-id": (
        "frame = encode({'id': str(id), **reply}, tensors)",
        "pass",
        "error",
        "id: Input should be a valid int",
    ),
    "float-id": ("frame = encode({'id': float(id), **reply}, tensors)", "pass", "error", "id: Input should be a valid"),
    "yes": ("frame = encode({'id': id, 'ok': 'yes'}, tensors)", "pass", "error", "ok: Input should be a valid bool"),
    "guessed-id": ("frame = encode({'id': 5, **reply}, tensors)", "pass", "error", "answered request 5 when asked"),
    "next-id": ("frame = encode({'id': id + 1, **reply}, tensors)", "pass", "error", "when asked"),
    "last-answer-again": (
        "pass",
        "out.write(frame)",
        "error",
        "after its answer: broke the protocol: answered a request",
    ),
    "exits-after": ("pass", "os._exit(7)", "crash", "after its answer: the worker exited with status 7"),
    "killed-after": ("pass", "os.kill(os.getpid(), 9)", "crash", "after its answer: the worker was ended by SIGKILL"),
    "closes-after": ("pass", "os.close(3); os.close(0); os._exit(0)", "crash", "after its answer: the worker exited"),
    "exits-before": ("os._exit(7)", "pass", "crash", "the worker exited with status 7"),
    "half-and-exits": (
        "out.write(frame[:100]); os._exit(7)",
        "pass",
        "crash",
        "status 7; it had sent a frame cut off after",
    ),
    "half-and-killed": ("out.write(frame[:100]); os.kill(os.getpid(), 9)", "pass", "crash", "ended by SIGKILL; it had"),
    "too-long": (
        "frame = (2**30).to_bytes(8, 'little') + frame[8:]",
        "pass",
        "error",
        "a frame of 1073741824 bytes, where",
    ),
    "long-header": (
        "frame = (2**22).to_bytes(8, 'little') + (2**25).to_bytes(8, 'little') + frame[16:]",
        "pass",
        "error",
        "not a frame",
    ),
    "much-too-large": (
        "import numpy; frame = encode({'id': id, **reply}, {'output': numpy.zeros(2**21)})",
        "pass",
        "error",
        "more than the answer can need",
    ),
}


ALIKE = ("text-id", "yes", "next-id", "killed-after", "closes-after", "half-and-killed", "long-header")
"""Faults whose like is among the others: they are tried before a release."""


@pytest.mark.linux
@pytest.mark.parametrize(
    "faults",
    [tuple(sorted({*FAULTS} - {*ALIKE})), pytest.param(ALIKE, marks=pytest.mark.release)],
    ids=["each-kind", "more-of-a-kind"],
)
def test_blame_falls_on_the_check_that_was_asked_and_on_no_other(
    conform: Callable, fake: Callable, honest: Path, faults: tuple[str, ...], within: Callable
) -> None:
    """All of them in one run: no fault is charged to another implementation either."""
    folders = [
        fake(name_of(fault), script=RAW.format(honest=honest, before=before, after=after))
        for fault, (before, after, _, _) in FAULTS.items()
        if fault in faults
    ]
    with within(110):
        ended = conform("run", *named(folders), *CASES)
    assert ended.report["complete"]
    assert "Traceback" not in ended.stderr
    for fault in faults:
        _, _, outcome, said = FAULTS[fault]
        records = [each for each in ended.report["records"] if each["implementation"] == name_of(fault)]
        at_fault = [each for each in records if each["outcome"] != "pass"]
        assert len(records) == 6
        if outcome == "pass":
            assert at_fault == [], fault
            continue
        assert [each["outcome"] for each in at_fault] == [outcome], fault
        assert said in at_fault[0]["message"], fault
        # The second check that the worker ran; a build is no check.
        assert at_fault[0]["check"] == SECOND, fault


def test_a_frame_sent_ahead_is_not_taken_for_the_next_answer(conform: Callable, fake: Callable, honest: Path) -> None:
    """Zeros for the next check, sent with the answer to this one: nobody can know the next id."""
    after = (
        "[out.write(encode({'id': guess, 'ok': True}, {name: t * 0 for name, t in tensors.items()}))"
        " for guess in (id + 1, count + 1)]"
    )
    ended = conform("run", "--impl", fake("raw", script=RAW.format(honest=honest, before="pass", after=after)), *CASES)
    assert set(ended.outcomes()) == {"pass", "error"}
    assert "when asked" in ended.messages()
    assert ended.outcomes().count("error") == 1


def test_standard_streams_are_not_the_wire(conform: Callable, fake: Callable) -> None:
    lie = """
    print("printed while the adapter is imported")

    def output(self, x, masks, run):
        import subprocess, sys
        print("printed")
        os.write(1, b"written to descriptor 1")
        subprocess.run(["sh", "-c", "echo by a child; cat"], check=True)
        assert sys.stdin.read() == ""
        return super().output(x, masks, run)
    """
    ended = conform("run", "--impl", fake("printer", lie), *CASES)
    assert ended.status == 0, ended.messages()
    log = (ended.out / "logs" / "printer.log").read_text()
    for said in ("while the adapter is imported", "printed", "descriptor 1", "by a child"):
        assert said in log


def test_an_adapter_that_knows_only_standard_streams_is_served(conform: Callable, fake: Callable, honest: Path) -> None:
    script = f"""
    import os, runpy, sys
    os.environ.pop("CONFORM_WIRE")
    os.dup2(3, 0), os.dup2(4, 1)  # as a command that launch.py has not started finds them
    sys.path.insert(0, {str(honest)!r})
    runpy.run_path({str(honest / "adapter.py")!r}, run_name="__main__")
    """
    ended = conform("run", "--impl", fake("old", script=script), *CASES)
    assert ended.status == 0, ended.stdout + ended.stderr


EXAMINED = """
import numpy
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import encode, read_frame

requests, out = open_wire()
while True:
    request = read_frame(requests)
    op, id = request.message["op"], request.message["id"]
    tensors = {} if op == "start" else {"feed_forward.linear_1.weight": numpy.ones(1 << 20)}
    out.write(encode({"id": id, "ok": True, "protocol": 3, "description": {}}, tensors))
"""


def test_a_module_of_any_size_that_can_be_built_is_examined_and_a_list_of_parts_is_short(fake: Callable) -> None:
    """A layer of 512 features, of 12 MB, "broke the protocol"."""
    folder = fake("examined", script=EXAMINED)
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    session = Session(ready, "cpu", 1, folder / "worker.log")
    named = {"target": "m:f", "arguments": {}, "folder": ".", "at": None, "layer": None, "resize": False}
    examined = session.describe(Examine(listed=False, **named))
    assert not isinstance(examined, Failure), examined.message
    assert examined[1]["feed_forward.linear_1.weight"].nbytes == 8 << 20
    # So is an ONNX file whose weights are packed: 8 MiB of float32 are half a MiB of two bits each.
    (folder / "model").mkdir()
    (folder / "model" / "packed.onnx").write_bytes(bytes(1 << 19))
    inspected = session.describe(Inspect(path=str(folder / "model" / "packed.onnx"), mask=None))
    assert not isinstance(inspected, Failure), inspected.message
    listed = session.describe(Examine(listed=True, **named))
    assert isinstance(listed, Failure)
    assert "more than the answer can need" in listed.message
    session.close()


def session_that_has_answered(folder: Path) -> tuple[Session, Task]:
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    planned = plan(ready.implementation, [load().cases["pre-gelu/no-mask"]], ("float32",))
    [task] = [task for task in planned if task.opt_out is None]
    session = Session(ready, "cpu", 1, folder / "worker.log")
    for _ in range(2):
        with session.worker.check():
            assert isinstance(session.observe(task, NO_ROWS), dict)
    return session, task


def test_an_end_by_the_harness_is_nobody_s_fault(fake: Callable) -> None:
    """The budget is over, or Ctrl-C: what was answered until then stands."""
    asked, task = session_that_has_answered(fake("asked", checks="[output]"))
    asked.abort()
    with asked.worker.check():
        assert isinstance(asked.observe(task, NO_ROWS), Failure)
    assert asked.worker.take_fault() is None
    closed, _ = session_that_has_answered(fake("closed", checks="[output]"))
    closed.abort()
    closed.close()
    assert closed.worker.take_fault() is None


@pytest.mark.linux
@pytest.mark.parametrize("close", [False, True], ids=["another-check", "the-end"])
def test_an_end_of_its_own_is_the_fault_of_the_check_before(
    fake: Callable, honest: Path, close: bool, within: Callable
) -> None:
    script = RAW.format(honest=honest, before="pass", after="os.kill(os.getpid(), 14)")
    with within(60):
        session, task = session_that_has_answered(fake("ends", script=script, checks="[output]"))
        assert session.worker.process
        pid = session.worker.process.pid
        while Path("/proc", str(pid)).exists():
            select.select([], [], [], 0.01)
        if close:
            session.close()
        else:
            with session.worker.check():
                assert isinstance(session.observe(task, NO_ROWS), dict)
        fault = session.worker.take_fault()
        assert fault
        assert "was ended by SIGALRM" in fault.message
        assert session.worker.take_fault() is None
        session.abort()
