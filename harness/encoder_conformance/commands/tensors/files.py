"""Reads files of questions and of answers, and says what is wrong with one."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors.numpy
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.files import replace_file, require_regular
from encoder_conformance.protocol.tensors import ASKED
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages
from encoder_conformance.subjects.questions import Asking, Questions

_GRADIENT = "gradient."


def write_questions(questions: Questions, path: Path) -> None:
    """The whole file or none of it."""
    tensors, metadata = questions.file()
    replace_file(path, safetensors.numpy.save(tensors, metadata=metadata))


def require_questions(path: Path) -> None:
    """Raises InputError for a file that is there and is not one of questions, which `ask` may write anew."""
    if path.is_file():
        try:
            read_asking(path)
        except InputError:
            problem = "is there already, and holds no questions of this version"
            raise InputError(problem, where=f"--to {path}", hint="name another file") from None


def read_asking(path: Path) -> tuple[Asking, bytes]:
    """The asking in a file of questions, and the file's digest. Raises InputError."""
    _, metadata, digest = _opened(path, "name the file of `conform ask` with --asked")
    if "asking" not in metadata or not digest:
        raise InputError("is no file of `conform ask`", where=str(path), hint="--asked names it")
    try:
        return Asking.model_validate_json(metadata["asking"]), digest
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        hint = "it was written by another version: ask again"
        raise InputError(f"metadata asking: {problem}", where=str(path), hint=hint) from None


def checks_of(tensors: Iterable[str]) -> set[Check]:
    """The checks that a question with these tensors has answers to. An output is always asked for."""
    found: set[Check] = {"output"}
    for name in tensors:
        found.add("gradients" if name.startswith(_GRADIENT) else "output" if name == "output" else "stages")
    return found


def stages_of(answers: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The stages that any question has."""
    return tuple(sorted({name for names in answers.values() for name in names if not name.startswith(_GRADIENT)}))


def read_answers(path: Path, questions: Questions, asked: Path) -> dict[str, set[str]]:
    """Question → the names of the tensors that answer it.

    Raises InputError for a file that is damaged, of another asking, or answers what was not asked.
    """
    names, _, digest = _opened(path, "it has to be a whole safetensors file; write it again")
    if digest is None:
        hint = f"copy the tensor {ASKED!r} of {asked.name} into it, which tells what is answered"
        raise InputError(f"has no tensor {ASKED!r}", where=str(path), hint=hint)
    if digest != questions.digest.tobytes():
        hint = f"answer {asked.name} again, or name the file that was answered with --asked"
        raise InputError(f"answers another asking than {asked}", where=f"{path}: tensor {ASKED}", hint=hint)
    by_question: dict[str, set[str]] = {}
    for name in sorted(names - {ASKED}):
        question, _, tensor = name.rpartition("/")
        _refuse_unknown(name, question, tensor, questions, path)
        by_question.setdefault(question, set()).add(tensor)
    return by_question


def _refuse_unknown(name: str, question: str, tensor: str, questions: Questions, path: Path) -> None:
    by_id = {each.id: each for each in questions.questions}
    if question not in by_id:
        problem = f"the tensor {name!r} answers no question"
        raise InputError(problem, where=str(path), hint=nearest(question, by_id))
    asked = by_id[question]
    gradients = asked.case.expected_shapes("gradients") if "gradients" in asked.checks else {}
    known = {*stages(asked.case.layer), *(_GRADIENT + each for each in gradients)}
    if tensor not in known:
        problem = f"the tensor {name!r} is none that {question} asks for"
        raise InputError(problem, where=str(path), hint=nearest(tensor, known))


def check_same_specification(questions: Questions, digest: bytes, path: Path) -> None:
    """Raise InputError if the file asks other questions than this version makes of the same asking."""
    if digest != questions.digest.tobytes():
        hint = "ask again with this version, and answer that"
        problem = "its questions are not those of this version's specification, or it was edited"
        raise InputError(problem, where=str(path), hint=hint)


def _opened(path: Path, hint: str) -> tuple[set[str], dict[str, str], bytes | None]:
    """The names of a file's tensors, its metadata, and the digest of the questions that it is of. Raises InputError."""
    require_regular(path, str(path), hint)
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            return names, file.metadata() or {}, file.get_tensor(ASKED).tobytes() if ASKED in names else None
    except (OSError, SafetensorError) as error:
        said = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"cannot be read: {said}", where=str(path), hint=hint) from None
