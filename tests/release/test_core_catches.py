"""What each fake of tests/process lies about, level core catches: a shorter run that catches as much as the whole.

Each is caught elsewhere by the case that was written for it. The wrong forms of the oracle are planted in
tests/frameworks/test_pytorch.py.
"""

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.subjects.plan import plan, select
from encoder_conformance.worker.session import Session


class Fake(NamedTuple):
    """The body of an adapter that lies, the outcomes by which that shows, and lines of its manifest."""

    body: str
    caught: tuple[str, ...] = ("fail",)
    manifest: Mapping[str, str] = MappingProxyType({})


def module(name: str) -> dict[str, Any]:
    [path] = (Path(__file__).parents[1] / "process").rglob(f"test_{name}.py")
    return runpy.run_path(str(path))


def collected() -> dict[str, Fake]:
    fakes, given, refusals = module("fakes"), module("given"), module("refusals")
    training, invariants = module("training"), module("invariants")
    outputs, stages = {"checks": "[output]"}, {"checks": "[stages]"}
    found: dict[str, Fake] = {}
    for name, (lie, _) in fakes["OUTPUTS"].items():
        # Of an output that has no such element nothing is untrue.
        guarded = f"try: {lie}\n    except IndexError: pass"
        found[f"output: {name}"] = Fake(fakes["GIVES"].format(lie=guarded), manifest=outputs)
    for name, (lie, _) in fakes["ANSWERS"].items():
        found[f"stages: {name}"] = Fake(fakes["SHOWS"].format(lie=lie), ("error",), stages)
    inside = "out = out.astype('float32').astype(out.dtype)"
    found["output: float32-inside"] = Fake(fakes["GIVES"].format(lie=inside), manifest=outputs)
    found["output: noisy"] = Fake(
        fakes["NOISY"].format(noisy="(out + 1e-4 * drawn).astype(out.dtype)"), manifest=outputs
    )
    for name, (lie, _, _) in given["MISREADINGS"].items():
        found[f"misread: {name}"] = Fake(given["READS"].format(body=lie), ("fail", "error"), outputs)
    for name, (lie, _, said) in given["ANSWERS"].items():
        if said:  # what nothing specifies is not untrue
            found[f"form: {name}"] = Fake(lie)
    for name, (lie, _) in refusals["LIES"].items():
        found[f"refusal: {name}"] = Fake(lie, ("fail", "error"), {"checks": "[refusal]"})
    for body, check, lies in (("DROPS", "dropout", "DROPOUT"), ("BEGINS", "initialisation", "INITIAL")):
        for name, (lie, _) in training[lies].items():
            body_of = training["told"](training[body], lie)
            found[f"{check}: {name}"] = Fake(body_of, manifest={"checks": f"[{check}]"})
    for name, (lie, _) in training["PARAMETERS"].items():
        body_of = training["told"](training["HOLDS"], lie)
        found[f"initialisation: {name}"] = Fake(body_of, manifest={"checks": "[initialisation]"})
    found["dropout: on in eval"] = Fake(training["EVAL"], manifest={"checks": "[dropout, output]"})
    for name, (lie, _, _) in invariants["BROKEN"].items():
        found[f"invariant: {name}"] = Fake(invariants["LIE"].format(before="pass", after=lie), manifest=outputs)
    for encoding in ("ignore", "integer", "float", "additive"):
        rolled = f"Masks(np.roll(masks.padding, 1, -1), masks.attention, encoding={encoding!r})"
        lie = f"if masks.encoding == {encoding!r} and masks.padding is not None: masks = {rolled}"
        found[f"invariant: {encoding}-rolled"] = Fake(given["READS"].format(body=lie), manifest=outputs)
    return found


FAKES = collected()


@pytest.mark.parametrize("name", FAKES)
def test_the_core_catches_what_a_fake_lies_about(fake: Callable[..., Path], name: str) -> None:
    lie = FAKES[name]
    folder = fake("liar", lie.body, **lie.manifest)
    ready = resolve(read_implementation(folder), folder, {})
    assert isinstance(ready, Ready)
    tasks = plan(ready.implementation, select(load().cases, (), "core"))
    session, goldens = Session(ready, "cpu", 1, folder / "worker.log"), read_golden_manifest()
    try:
        for task in tasks:
            if task.opt_out is None:
                answer = put(session, task, lambda case: read_golden(case, goldens, constants()))
                record = judged(answer)
                if record.outcome not in EXPECTED and record.outcome.value in lie.caught:
                    return
    finally:
        session.close()
    pytest.fail(f"level core does not catch it: {name}")
