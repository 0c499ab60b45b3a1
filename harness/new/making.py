"""Makes the folder of a new implementation, all of it or nothing, and refuses names that would not do."""

import importlib.util
import keyword
import re
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from string import Template

from encoder_conformance.errors import InputError
from encoder_conformance.impl.manifest import known_folders
from encoder_conformance.new.frameworks import FRAMEWORKS, TEMPLATES, Framework
from encoder_conformance.paths import shown

_SUFFIX = ".template"


def make(name: str, framework: str, out: Path) -> Path:
    """The new folder, `out`/`name`."""
    folder = out / name
    _refuse_name(name)
    if folder.exists():
        raise InputError("is there already", where=shown(folder), hint="give another name, or another --out")
    about = FRAMEWORKS[framework]
    try:
        out.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=out))
        try:
            for file, text in _files(name, framework, about).items():
                (beside / file).write_text(text, encoding="utf-8")
            beside.chmod(0o755)  # mkdtemp's is for its owner alone
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=shown(folder), hint="choose another --out"
        ) from None
    return folder


def _files(name: str, framework: str, about: Framework) -> dict[str, str]:
    """File → its text. A blank for the name of the class is the name in camel case."""
    filled = {key: ", ".join(value) if isinstance(value, tuple) else value for key, value in asdict(about).items()}
    filled |= {"name": name, "adapter": "".join(word.capitalize() for word in name.split("_"))}
    files = {"impl.yaml": (TEMPLATES / "impl.yaml").read_text(encoding="utf-8")}
    for path in sorted((TEMPLATES / framework).iterdir()):
        files[path.name.removesuffix(_SUFFIX)] = path.read_text(encoding="utf-8")
    if about.requirements:
        files["requirements.txt"] = about.requirements.read_text(encoding="utf-8")
    return {file: Template(text).substitute(filled) for file, text in files.items()}


def _refuse_name(name: str) -> None:
    """Names that no manifest takes, that Python does, or that another module or implementation has."""
    problem = hint = ""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        problem, hint = "is no name for an implementation", "small letters, digits and _, a letter first: my_backend"
    elif name in known_folders():
        problem, hint = "is an implementation already (conform list impls)", "give another name"
    elif _is_module(name):
        problem, hint = "is the name of a module, which the folder would shadow", f"for example {name}_layer"
    if problem:
        raise InputError(f"{name!r} {problem}", where="NAME", hint=hint)


def _is_module(name: str) -> bool:
    """Whether `import` finds it here, or a framework is imported by it, installed or not. Nothing is imported."""
    required = {module for framework in FRAMEWORKS.values() for module in framework.requires}
    return name in required or importlib.util.find_spec(name) is not None
