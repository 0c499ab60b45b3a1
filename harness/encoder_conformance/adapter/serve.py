"""The worker's side of the wire: answers start, build, initialise, run, profile and stop until the stream ends."""

import contextlib
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.adapter.base import Adapter, Tensors
from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.request import RunRequest
from encoder_conformance.adapter.stopwatch import timed
from encoder_conformance.adapter.way_back import WayBack
from encoder_conformance.platform.memory import collect_from_here
from encoder_conformance.protocol.descriptors import claim_standard_streams, open_wire
from encoder_conformance.protocol.frames import (
    PROTOCOL,
    WHOLE,
    EndOfStream,
    Frame,
    Sendable,
    pieces,
    read_frame,
    write_pieces,
)


def serve(adapter: Adapter) -> None:
    """Answer requests on the wire until `stop` or the end of the stream: the last statement of an adapter.py.

    Anything that is printed to stdout goes to stderr, and so into the log. Python's garbage collector, which is off
    while an adapter is imported, is on from here, and passes over what the import has made.

    Example: `if __name__ == "__main__": serve(MyBackend())`.
    """
    claim_standard_streams()
    requests, answers = open_wire()
    collect_from_here()
    asking = WayBack(adapter)
    while True:
        try:
            request = read_frame(requests)
        except EndOfStream:
            return
        stops = request.message.get("op") == "stop"
        write_pieces(answers, _framed(adapter, request, asking))
        del request  # a large layer's parameters: the next request may take long to come
        if stops:
            return


def _framed(adapter: Adapter, request: Frame, asking: WayBack) -> Iterable[bytes | memoryview]:
    """The answer to a request, or what went wrong."""
    try:
        reply, tensors = _answer(adapter, request, asking)
        return pieces({"id": request.message.get("id"), **reply}, tensors)
    except Exception as error:
        with contextlib.suppress(OSError):  # the disk of the log is full
            traceback.print_exc()
        category, text = adapter.refusal(request.message.get("op", ""), error), str(error).strip()
        name = type(error).__name__
        reply = {"error": f"{name}: {text}" if text else name, **({"refused": category} if category else {})}
        return pieces({"id": request.message.get("id"), "ok": False, **reply})


def _answer(adapter: Adapter, request: Frame, asking: WayBack | None = None) -> tuple[dict[str, Any], Sendable]:
    """`asking`: what is asked of the way back beside, and of which layers it was."""
    message, tensors, asking = request.message, request.tensors, asking or WayBack(adapter)
    match message.get("op"):
        case "start":
            if message["protocol"] != PROTOCOL:
                raise ValueError(f"the harness speaks protocol {message['protocol']}, this adapter {PROTOCOL}")
            adapter.choices = message.get("choices", {})
            environment = adapter.start(message["device"], message["threads"])
            reply = {"protocol": PROTOCOL, "versions": environment.versions, "settings": environment.settings}
            return {"ok": True, **reply}, {}
        case "build":
            asking.layer = message["layer"].get("layer", "")
            held = adapter.build(message["layer"], tensors, message["dtype"])
            return {"ok": True, "own": adapter.map.own_names() if adapter.map else {}}, held
        case "initialise":
            fresh = adapter.initialise(message["seed"])
            return {"ok": True, "trainable": list(fresh.trainable)}, fresh.parameters
        case "read_checkpoint":
            path = Path(message["path"])
            return {"ok": True}, adapter.read_checkpoint(message["layer"], tensors, message["dtype"], path)
        case "export":
            file = adapter.write(message["layer"], tensors, message["dtype"], message["mask"])
            return {"ok": True}, {"file": np.frombuffer(file, dtype=np.uint8)}
        case "run":
            x, masks, run = _asked(message, tensors)
            return {"ok": True}, asking.run(message["check"], x, masks, run, tensors.get("cotangent"))
        case "profile":
            return _profile(adapter, *_asked(message, tensors), message["repeats"])
        case "stop":
            return {"ok": True}, {}
        case _:
            reply, answer = adapter.other(message, tensors)
            return {"ok": True, **reply}, answer


def _asked(message: Mapping[str, Any], tensors: Tensors) -> tuple[Array, Masks, RunRequest]:
    """x, or the token ids of a layer with an embedding, its masks, and what the run is told beside them."""
    x = tensors["ids"] if "ids" in tensors else tensors["x"]
    return x, Masks.of(tensors, message["given"]), RunRequest.of(tensors, message)


def _profile(adapter: Adapter, x: Array, masks: Masks, run: RunRequest, repeats: int) -> tuple[dict[str, Any], Tensors]:
    try:
        by_stage = adapter.profile(x, masks, run, repeats)
    except NotImplementedError as error:
        return {"ok": False, "error": str(error), "refused": "unsupported"}, {}
    return {"ok": True}, {**by_stage, WHOLE: timed(lambda: adapter.output(x, masks, run), repeats)}
