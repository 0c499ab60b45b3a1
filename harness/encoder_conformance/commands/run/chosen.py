"""Selects the implementations that a run judges, and finds those that can be started here."""

from collections.abc import Sequence

from encoder_conformance.commands.options import warn_of_left_out
from encoder_conformance.implementation.declared import check_declared
from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import Device, default_implementations, find_implementation
from encoder_conformance.platform.errors import InputError, nearest


def chosen_implementations(
    requested: tuple[str, ...], pythons: dict[str, str], device: Device
) -> tuple[list[Ready], list[Missing]]:
    """The implementations that can be started, and those that cannot. Raises InputError if a requested one cannot."""
    warn_of_left_out()
    chosen = (
        [find_implementation(name) for name in dict.fromkeys(requested)] if requested else default_implementations()
    )
    names = [implementation.name for _, implementation in chosen]
    folder_names = [implementation.folder_name for _, implementation in chosen]
    require_distinct(names)
    for name in pythons:
        if name not in folder_names:
            raise InputError(f"names {name!r}, which is not judged", where="--python", hint=nearest(name, folder_names))
    ready, absent = [], []
    for folder, implementation in chosen:
        check_declared(implementation, folder)
        interpreter = resolve(implementation, folder, pythons)
        if isinstance(interpreter, Ready) and device not in implementation.capabilities.devices:
            devices = ", ".join(implementation.capabilities.devices)
            interpreter = Missing(
                implementation, f"runs on {devices}, not on {device}", f"--device {devices.split(', ')[0]}"
            )
        if isinstance(interpreter, Ready):
            ready.append(interpreter)
        elif requested:
            raise InputError(f"{implementation.name}: {interpreter.reason}", where="--impl", hint=interpreter.hint)
        else:
            absent.append(interpreter)
    if not ready:
        reasons = "; ".join(f"{missing.implementation.name}: {missing.reason}" for missing in absent)
        raise InputError(
            f"no implementation can be started here ({reasons})", hint="pip install 'encoder-conformance[all]'"
        )
    return ready, absent


def require_distinct(names: Sequence[str]) -> None:
    """Raises InputError for two implementations of one name: their records could not be told apart."""
    for name in names:
        if names.count(name) > 1:
            hint = "rename one's folder and key"
            raise InputError(f"two implementations are called {name}", where="--impl", hint=hint)
