"""Makes the folder of a new implementation atomically, and refuses unsuitable names."""

import importlib.util
import keyword
import re
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from string import Template

from encoder_conformance.commands.new.frameworks import FRAMEWORKS, TEMPLATES, Framework
from encoder_conformance.implementation.manifest import known_folders
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import shown

_SUFFIX = ".template"


def make(name: str, framework: str, out: Path) -> Path:
    """Make the folder `out`/`name` from the framework's template. Raises InputError."""
    folder = out / name
    _refuse_name(name)
    if folder.exists():
        raise InputError("exists already", where=shown(folder), hint="give another name, or another --out")
    framework_facts = FRAMEWORKS[framework]
    try:
        out.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=out))
        try:
            for file, text in _files(name, framework, framework_facts).items():
                (temporary / file).write_text(text, encoding="utf-8")
            temporary.chmod(0o755)  # mkdtemp's folder is private to its owner
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=shown(folder), hint="choose another --out"
        ) from None
    return folder


def _files(name: str, framework: str, framework_facts: Framework) -> dict[str, str]:
    """File name → text. The name of the adapter's class is `name` in camel case."""
    substitutions = {
        key: ", ".join(value) if isinstance(value, tuple) else value for key, value in asdict(framework_facts).items()
    }
    substitutions |= {"name": name, "adapter": "".join(word.capitalize() for word in name.split("_"))}
    files = {"impl.yaml": (TEMPLATES / "impl.yaml").read_text(encoding="utf-8")}
    for path in sorted((TEMPLATES / framework).iterdir()):
        files[path.name.removesuffix(_SUFFIX)] = path.read_text(encoding="utf-8")
    if framework_facts.requirements:
        files["requirements.txt"] = framework_facts.requirements.read_text(encoding="utf-8")
    return {file: Template(text).substitute(substitutions) for file, text in files.items()}


def _refuse_name(name: str) -> None:
    """Raises InputError for a name that is invalid, a Python keyword, or taken by a module or implementation."""
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
    """Whether a module of this name can be imported here, or a framework needs one. Nothing is imported."""
    required = {module for framework in FRAMEWORKS.values() for module in framework.requires}
    return name in required or importlib.util.find_spec(name) is not None
