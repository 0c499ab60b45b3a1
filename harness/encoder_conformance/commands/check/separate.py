"""One check in a process of its own, for `from_python`.

python -m encoder_conformance.commands.check.separate FILE
"""

import json
import pickle
import sys
from pathlib import Path

from encoder_conformance.commands.check.checking import Checking
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import SILENT

REQUEST, RESULT, PROBLEM = "request.pickle", "result.json", "problem.json"


def write_request(request: CheckRequest, folder: Path) -> Path:
    """The file that `main` reads, in a folder that is private to the user; result and problem come to lie beside it."""
    path = folder / REQUEST
    path.write_bytes(pickle.dumps(request))
    return path


def main(path: Path) -> None:
    """Do the check that the file has the pickled request of; result or problem come to lie beside it."""
    folder = path.parent
    try:
        result = Checking(pickle.loads(path.read_bytes()), folder / "check.log", SILENT).result()
    except InputError as error:
        problem = {"problem": error.problem, "where": error.where, "hint": error.hint}
        (folder / PROBLEM).write_text(json.dumps(problem), encoding="utf-8")
    else:
        (folder / RESULT).write_text(result.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
