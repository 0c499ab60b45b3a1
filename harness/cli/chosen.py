"""Which implementations a run judges, and which of them can be started here."""

from encoder_conformance.cli.options import say_what_is_left_out
from encoder_conformance.deviations.catalogue import check_declared
from encoder_conformance.errors import InputError, nearest
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import Device, default_implementations, find_implementation


def chosen_implementations(
    named: tuple[str, ...], pythons: dict[str, str], device: Device
) -> tuple[list[Ready], list[Missing]]:
    """Those that can be started here; one that was asked for by name and cannot be is an error."""
    say_what_is_left_out()
    chosen = [find_implementation(name) for name in dict.fromkeys(named)] if named else default_implementations()
    names = [implementation.name for _, implementation in chosen]
    folder_names = [implementation.folder_name for _, implementation in chosen]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two implementations are called {name}", where="--impl", hint="rename one's folder and key"
            )
    for name in pythons:
        if name not in folder_names:
            raise InputError(f"names {name!r}, which is not judged", where="--python", hint=nearest(name, folder_names))
    ready, absent = [], []
    for folder, implementation in chosen:
        check_declared([entry.deviation for entry in implementation.deviations], f"{folder / 'impl.yaml'}")
        found = resolve(implementation, folder, pythons)
        if isinstance(found, Ready) and device not in implementation.capabilities.devices:
            devices = ", ".join(implementation.capabilities.devices)
            found = Missing(implementation, f"runs on {devices}, not on {device}", f"--device {devices.split(', ')[0]}")
        if isinstance(found, Ready):
            ready.append(found)
        elif named:
            raise InputError(f"{implementation.name}: {found.reason}", where="--impl", hint=found.hint)
        else:
            absent.append(found)
    if not ready:
        lines = "; ".join(f"{m.implementation.name}: {m.reason}" for m in absent)
        raise InputError(
            f"no implementation can be started here ({lines})", hint="pip install 'encoder-conformance[all]'"
        )
    return ready, absent
