"""`python -m benchmarks.performance.recording FILE run …`: a `conform` command, and what it asked of its workers.

FILE gets, for each implementation's folder, every request with its tensors, in order; `bare.py` asks the same.
"""

import pickle
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from encoder_conformance.commands import main as conform
from encoder_conformance.protocol.frames import Sendable, Tensors
from encoder_conformance.protocol.messages import Request
from encoder_conformance.protocol.streamed import whole
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.process import Pending, WorkerProcess

Asked = list[tuple[dict[str, Any], Tensors]]


def main() -> None:
    file = Path(sys.argv.pop(1))
    recorded: dict[str, Asked] = {}
    send, start_worker = WorkerProcess._enqueue, WorkerProcess.__init__

    def start(worker: WorkerProcess, launch: Launch) -> None:
        start_worker(worker, launch)
        worker.recorded = recorded.setdefault(launch.folder.name, [])  # type: ignore[attr-defined]

    def send_recorded(worker: WorkerProcess, request: Request, tensors: Sendable | None, *others: Any) -> Pending:
        sent = {name: whole(tensor) for name, tensor in (tensors or {}).items()}
        worker.recorded.append((request.model_dump(mode="json"), sent))  # type: ignore[attr-defined]
        return send(worker, request, tensors, *others)

    try:
        with (
            mock.patch.object(WorkerProcess, "_enqueue", send_recorded),
            mock.patch.object(WorkerProcess, "__init__", start),
        ):
            conform.main()
    finally:
        file.write_bytes(pickle.dumps(recorded))


if __name__ == "__main__":
    main()
