"""An adapter of the standard library alone that commits one fault at one moment: `faulty.py OP MOMENT ACT LAYER PIDS`.

OP: the request at which it happens. MOMENT: `unread`, before that request is read; `read`, after; `half`, within its
answer; `answered`, after its answer. ACT: a signal's name, `exit-N`, `pause` or `close`. LAYER: what else lives then
and holds the wire open: `alone`, nothing; `child`, a forked process; `daemon`, one that has left the session, with
another parent and no environment. PIDS: a file to which every process adds its number.
"""

import json
import os
import signal
import struct
import sys

OP, MOMENT, ACT, LAYER, PIDS = sys.argv[1:]
REQUESTS, ANSWERS = map(int, os.environ["CONFORM_WIRE"].split(","))


def note() -> None:
    with open(PIDS, "a") as pids:  # noqa: PTH123
        print(os.getpid(), file=pids)


def take(count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(REQUESTS, count - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def receive() -> dict:
    (length,) = struct.unpack("<Q", take(8))
    body = take(length)
    (header,) = struct.unpack("<Q", body[:8])
    return json.loads(json.loads(body[8 : 8 + header])["__metadata__"]["message"])


def frame(message: dict, data: bytes = b"") -> bytes:
    tensors = {"x": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}} if data else {}
    header = json.dumps({"__metadata__": {"message": json.dumps(message)}, **tensors}).encode()
    return struct.pack("<QQ", 8 + len(header) + len(data), len(header)) + header + data


def keep_the_wire_open() -> None:
    ready, is_ready = os.pipe()
    if LAYER == "alone" or os.fork():
        os.close(is_ready)
        os.read(ready, 1)
        return
    if LAYER == "daemon":
        os.setsid()
        if os.fork():
            os._exit(0)
        for descriptor in (REQUESTS, ANSWERS, is_ready):
            os.set_inheritable(descriptor, True)
    note()
    os.write(is_ready, b".")
    os.close(is_ready)
    if LAYER == "daemon":
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    while True:
        signal.pause()


def act() -> None:
    keep_the_wire_open()
    if ACT.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[ACT])
    elif ACT.startswith("exit-"):
        os._exit(int(ACT[5:]))
    elif ACT == "close":
        for descriptor in (0, 1, REQUESTS, ANSWERS):
            os.close(descriptor)
    while True:
        signal.pause()


note()
while True:
    if (OP, MOMENT) == ("start", "unread"):
        act()
    request = receive()
    here = request["op"] == OP
    if here and MOMENT == "read":
        act()
    answer = frame({"id": request["id"], "ok": True, "protocol": 3}, bytes(4096))
    if here and MOMENT == "half":
        os.write(ANSWERS, answer[: len(answer) // 2])
        act()
    os.write(ANSWERS, answer)
    if (here and MOMENT == "answered") or (MOMENT == "unread" and (request["op"], OP) == ("start", "run")):
        act()
