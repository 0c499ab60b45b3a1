"""Finds the module that a target names: `package.module:name`, `file.py:name` or `hf:NAME`, and makes it."""

import difflib
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from encoder_conformance.protocol.handover import LIVE, read_handed_over
from encoder_conformance.readers.module_target.allocated import filled_with_nan
from encoder_conformance.readers.module_target.callables import names_of, parameters_of
from encoder_conformance.readers.module_target.errors import MEND, BadTarget
from encoder_conformance.readers.module_target.frameworks import ModuleFramework, framework_of
from encoder_conformance.readers.module_target.graphs_of_keras import of_each_length, whole_graph
from encoder_conformance.readers.module_target.importing import classes_of, imported, without_input
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.module_target.making import UNKNOWN, is_known, randomness_left_out, supposed, value_of
from encoder_conformance.readers.module_target.making_again import keep_maker
from encoder_conformance.readers.module_target.model_sizes import narrowed, said_of

_NAMED = 8
"""Classes that a hint names."""
_OF_JAX = "a function of JAX is named with its parameters: (function, parameters)"
_REQUIRED = re.compile(r"requires the (\S+) library")
"""What transformers says of a library that a model needs."""


class Loaded(NamedTuple):
    """A module, whose it is, and the arguments it was made with that nobody said: name → expression."""

    framework: ModuleFramework
    module: Any
    supposed: Mapping[str, str] = MappingProxyType({})


def work_in(folder: Path) -> None:
    """Files that a module opens by relative paths are those of the folder in which the user asked, if it is there."""
    if folder.is_dir():
        os.chdir(folder)


def load_target(
    target: str, arguments: Mapping[str, str], folder: Path, supposing: Mapping[re.Pattern[str], str] | None = None
) -> Loaded:
    """The module that a target names. Raises BadTarget.

    `arguments` are Python literals, expressions of the target's own names, or else words. Paths and packages are those
    of `folder`. `supposing`: required arguments that are missing are what their names say that they may be, or what the
    layer has that was stated (`making.stated_by`); None: they are an error.
    """
    source, _, name = target.rpartition(":")
    if target.startswith(LIVE):
        found = without_input(lambda: read_handed_over(Path(target.removeprefix(LIVE))))
        return _made(found, "it", arguments, supposing)
    if source == "hf":
        values = {key: value_of(text) for key, text in arguments.items()}
        return _made(_from_transformers(name, values, folder), name, {})
    if not (source and name):
        raise BadTarget(f"{target!r} names no module", _to_name(target, folder))
    sys.path.insert(0, str(folder))
    return _made(_attribute(imported(source, folder), name, source), name, arguments, supposing)


def _to_name(target: str, folder: Path) -> str:
    """How a target is written; of a file alone the classes that it defines."""
    path = folder / target.rstrip(":")
    classes = classes_of(path) if path.suffix == ".py" and path.is_file() else []
    of_file = f"write {path.name}:NAME, of {', '.join(classes[:_NAMED])}"
    return of_file if classes else "write package.module:name, file.py:name or hf:NAME"


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
    ][:_NAMED]


def _made(
    found: Any, name: str, arguments: Mapping[str, str], supposing: Mapping[re.Pattern[str], str] | None = None
) -> Loaded:
    if framework := framework_of(found):
        if arguments:
            raise BadTarget(f"{name} is a module already, and takes no --arg", "name the class that makes it")
        return Loaded(framework, found)
    if not callable(found):
        problem = f"{name} is {type(found).__name__}, and no module of PyTorch, Keras, Flax, Equinox or JAX"
        raise BadTarget(problem, "nor a class or function that makes one")
    _refuse_unknown(found, name, arguments)
    chosen = supposed(found, arguments, supposing or {})
    if supposing is None or not all(map(is_known, chosen.values())):
        _refuse_missing(name, chosen)
    left_out = {} if supposing is None else randomness_left_out(found, arguments)
    made, make, used = _with_randomness(found, arguments, chosen, left_out)
    if framework := framework_of(made):
        keep_maker(made, make)
        return Loaded(framework, made, used)
    hint = _OF_JAX if callable(made) and "jax" in sys.modules else ""
    if callable(getattr(made, "module", None)):
        hint = "name a function that gives its .module()"
    elif any(each.__module__.partition(".")[0] == "tensorflow" for each in type(made).__mro__):
        hint = "of TensorFlow's objects a layer of Keras is judged: name one that has these weights"
    raise BadTarget(f"{name} makes {type(made).__name__}, and no module of PyTorch, Keras, Flax, Equinox or JAX", hint)


def _with_randomness(
    found: Any, arguments: Mapping[str, str], chosen: Mapping[str, str], left_out: Mapping[str, str]
) -> tuple[Any, Callable[[], Any], Mapping[str, str]]:
    """As `_that_makes`, with what draws parameters (`left_out`), too, where None in its place is refused."""
    try:
        return _that_makes(found, arguments, chosen)
    except BadTarget as error:
        if not (left_out and "None" in error.problem):
            raise
    return _that_makes(found, arguments, {**chosen, **left_out})


def _that_makes(
    found: Any, arguments: Mapping[str, str], chosen: Mapping[str, str]
) -> tuple[Any, Callable[[], Any], Mapping[str, str]]:
    """What is made with these arguments and those that were chosen, what makes it again, and with which of these.
    Raises BadTarget."""
    names, failed = names_of(found), list[BadTarget]()
    for each in of_each_length(chosen):
        values = {key: value_of(text, names) for key, text in {**arguments, **each}.items()}

        def make(values: Mapping[str, Any] = values) -> Any:
            return without_input(lambda: whole_graph(found(**values), values.values()))

        try:
            with filled_with_nan():
                return make(), make, each
        except BadTarget as error:
            failed.append(_told_of(error, each))
    raise failed[0]


def _refuse_unknown(found: Any, name: str, arguments: Mapping[str, str]) -> None:
    """Raises BadTarget for an argument that it does not take."""
    parameters = parameters_of(found)
    names = [p.name for p in parameters]
    unknown = [each for each in arguments if each not in names]
    if names and unknown and not any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters):
        raise BadTarget(f"{name} has no argument {unknown[0]!r}", f"it has {', '.join(names)}")


def _refuse_missing(name: str, chosen: Mapping[str, str]) -> None:
    """Raises BadTarget where something required is missing, of which `chosen` says what it may be."""
    if chosen:
        hint = f"give {as_options(chosen)}, or name a function without arguments that returns the module"
        raise BadTarget(f"{name} needs {', '.join(chosen)}", hint)


def as_options(arguments: Mapping[str, str]) -> str:
    """As somebody types them in a shell."""
    return " ".join(f"--arg {name}={_typed(text)}" for name, text in arguments.items())


def _typed(text: str) -> str:
    """An expression as a shell's word; `…` in the place of one that nobody knows."""
    value = value_of(text)
    return shlex.quote(value if isinstance(value, str) else text) if text else UNKNOWN


def _told_of(error: BadTarget, chosen: Mapping[str, str]) -> BadTarget:
    """The error of a module that could not be made with what was supposed, which says so."""
    if not chosen or error.hint == MEND:
        return error
    return BadTarget(error.problem, f"it was made with {as_options(chosen)}, as these names suggest: say what it takes")


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
