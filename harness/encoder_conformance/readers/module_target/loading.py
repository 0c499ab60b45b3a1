"""Finds the module that a target names: `package.module:name`, `file.py:name` or `hf:NAME`, and makes it."""

import ast
import difflib
import importlib
import importlib.util
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from encoder_conformance.protocol.handover import LIVE, read_handed_over
from encoder_conformance.readers.module_target.errors import BadTarget, is_at_import, last_frames
from encoder_conformance.readers.module_target.frameworks import ModuleFramework, framework_of
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.module_target.model_sizes import narrowed, said_of

_UNDER_MAIN = "put that under `if __name__ == '__main__':`"
_REQUIRED = re.compile(r"requires the (\S+) library")
"""What transformers says of a library that a model needs."""


def load_target(target: str, arguments: Mapping[str, str], folder: Path) -> tuple[ModuleFramework, Any]:
    """The module, and whose it is. Raises BadTarget.

    `arguments` are Python literals, or else words. Paths and packages are those of `folder`.
    """
    source, _, name = target.rpartition(":")
    values = {key: value_of(text) for key, text in arguments.items()}
    if target.startswith(LIVE):
        return _made(without_input(lambda: read_handed_over(Path(target.removeprefix(LIVE)))), "it", values)
    if source == "hf":
        return _made(_from_transformers(name, values, folder), name, {})
    if not (source and name):
        raise BadTarget(f"{target!r} names no module", "write package.module:name, file.py:name or hf:NAME")
    sys.path.insert(0, str(folder))
    found = _attribute(_imported(source, folder), name, source)
    return _made(found, name, values)


def without_input(work: Callable[[], Any]) -> Any:
    """Run somebody's code with an empty standard input: its own is the protocol's."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        return work()
    except EOFError as error:
        problem = f"it asks for input, and nobody is there: {last_frames(error)}"
        raise BadTarget(problem, _UNDER_MAIN) from None
    except BadTarget:
        raise
    except ModuleNotFoundError as error:
        raise BadTarget(last_frames(error), _to_add(error)) from None
    except (Exception, SystemExit) as error:
        ends_import = isinstance(error, SystemExit) and is_at_import(error)
        raise BadTarget(last_frames(error), _UNDER_MAIN if ends_import else "") from None
    finally:
        sys.stdin = stdin


def _to_add(error: ModuleNotFoundError) -> str:
    """The command that adds what an import did not find; "" where a package that is there lacks a part."""
    top = (error.name or "").partition(".")[0]
    return f"{install(top)}, unless it is a file of yours" if top and top not in sys.modules else ""


def value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _imported(source: str, folder: Path) -> Any:
    if not source.endswith(".py"):
        if not without_input(lambda: _is_there(source)):
            hint = f"it is looked for in {folder} and among what is installed; if it is a package: {install(source)}"
            raise BadTarget(f"there is no module {source!r}", hint)
        return without_input(lambda: importlib.import_module(source))
    path = (folder / source).resolve()
    if not path.is_file():
        raise BadTarget(f"there is no file {source!r}", f"it is looked for in {folder}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[path.stem] = module
    without_input(lambda: loader.exec_module(module))
    return module


def _is_there(source: str) -> bool:
    """Whether there is a module of this name. Raises what a package around it raises as it is imported."""
    try:
        return importlib.util.find_spec(source) is not None
    except ValueError:
        return False
    except ModuleNotFoundError as error:
        if error.name and (source == error.name or source.startswith(f"{error.name}.")):
            return False
        raise


def _attribute(module: Any, name: str, source: str) -> Any:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            own = [each for each in dir(found) if not each.startswith("_")]
            matches = difflib.get_close_matches(part, own, n=3, cutoff=0.5)
            meant = f"did you mean {' or '.join(matches)}?" if matches else ""
            hint = meant or f"it has {', '.join(_modules_in(found)) or 'no module'}"
            raise BadTarget(f"{source} has no {part!r}", hint)
        found = getattr(found, part)
    return found


def _modules_in(found: Any) -> list[str]:
    """The names of a module that could be targets."""
    return [
        name
        for name, value in vars(found).items()
        if framework_of(value) is not None or (inspect.isclass(value) and value.__module__ == found.__name__)
    ][:8]


def _made(found: Any, name: str, arguments: Mapping[str, Any]) -> tuple[ModuleFramework, Any]:
    if framework := framework_of(found):
        if arguments:
            raise BadTarget(f"{name} is a module already, and takes no --arg", "name the class that makes it")
        return framework, found
    if not callable(found):
        problem = f"{name} is {type(found).__name__}, and no module of PyTorch, Keras, Flax, Equinox or JAX"
        raise BadTarget(problem, "nor a class or function that makes one")
    _check_arguments(found, name, arguments)
    made = without_input(lambda: found(**arguments))
    if framework := framework_of(made):
        return framework, made
    raise BadTarget(f"{name} makes {type(made).__name__}, and no module of PyTorch, Keras, Flax, Equinox or JAX")


def _check_arguments(found: Any, name: str, arguments: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return
    free = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    names = [p.name for p in parameters]
    unknown = [each for each in arguments if each not in names]
    if unknown and not any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters):
        raise BadTarget(f"{name} has no argument {unknown[0]!r}", f"it has {', '.join(names)}")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in free and p.name not in arguments]
    if needed:
        hint = " ".join(f"--arg {each}=…" for each in needed)
        raise BadTarget(f"{name} needs {', '.join(needed)}", f"give {hint}, or name a function that makes it without")


def _from_transformers(name: str, arguments: Mapping[str, Any], folder: Path) -> Any:
    """The model of that type with its configuration's defaults and these arguments, or that of a folder with
    config.json and safetensors; nothing is downloaded."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if importlib.util.find_spec("transformers") is None:
        raise BadTarget("transformers is not installed", install("transformers"))
    from transformers import CONFIG_MAPPING, AutoModel

    path = (folder / name).resolve()
    if (path / "config.json").is_file():
        options = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
        return without_input(lambda: AutoModel.from_pretrained(path, **options, **arguments))
    if name not in CONFIG_MAPPING:
        matches = difflib.get_close_matches(name, list(CONFIG_MAPPING), n=3)
        hint = f"did you mean {' or '.join(matches)}?" if matches else "name it as transformers.CONFIG_MAPPING does"
        raise BadTarget(f"transformers has no model type {name!r}", hint)
    return made_by_transformers(_configured(name, arguments))


def narrower(target: str, arguments: Mapping[str, str], folder: Path) -> tuple[dict[str, str], str]:
    """The arguments of hf:TYPE at sizes that a check can carry, and what is to be said of it; "" where they stay."""
    given, name = dict(arguments), target.removeprefix("hf:")
    if name == target or not _is_type(name, folder):
        return given, ""
    values = {key: value_of(text) for key, text in given.items()}
    defaults = _configured(name, values).to_dict()
    chosen = narrowed(defaults, values)
    return given | {key: str(size) for key, size in chosen.items()}, said_of(defaults, chosen)


def _is_type(name: str, folder: Path) -> bool:
    """Whether it is a type of transformers', and no folder with a configuration of its own."""
    if importlib.util.find_spec("transformers") is None or (folder / name / "config.json").is_file():
        return False
    from transformers import CONFIG_MAPPING

    return name in CONFIG_MAPPING


def _configured(name: str, arguments: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    return without_input(lambda: AutoConfig.for_model(name, **arguments))


def made_by_transformers(config: Any) -> Any:
    """The model of a configuration, with parameters that it draws. Raises BadTarget."""
    from transformers import AutoModel

    model = _class_of(config, AutoModel._model_mapping)

    def made() -> Any:
        try:
            return model._from_config(config)
        except ImportError as error:
            if missing := _REQUIRED.search(str(error)):
                problem = f"{model.__name__} needs the library {missing[1]}, which is not installed"
                raise BadTarget(problem, install(missing[1])) from None
            raise

    return without_input(made)


def _class_of(config: Any, known: Mapping[Any, Any]) -> Any:
    """The model of a configuration: the one that is known; of a part of a model the one beside it. Raises BadTarget."""
    if type(config) in known:
        found = known[type(config)]
        return found[0] if isinstance(found, (list, tuple)) else found
    source = type(config).__module__.replace(".configuration_", ".modeling_")
    module = without_input(lambda: importlib.import_module(source))
    of_it = [each for each in vars(module).values() if getattr(each, "config_class", None) is type(config)]
    models = [each for each in of_it if each.__name__.endswith("Model") and "PreTrained" not in each.__name__]
    models = models or [each for each in of_it if "For" in each.__name__]  # some have a head alone, as Pop2Piano has
    if not models:
        raise BadTarget(f"transformers has no model for {type(config).__name__}", "name the model that it is a part of")
    return models[0]
