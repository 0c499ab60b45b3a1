"""The pytest plugin: `pytest --conform package.module:Layer` judges a module, each case an item (docs/checking.md).

pytest imports this file whenever it starts, so it imports nothing of the harness until --conform asks for it.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from encoder_conformance.commands.check.pytest_items import JudgedModule


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conform", "conformance of Transformer encoder layers")
    target = "judge this module: package.module:name, file.py:name or hf:TYPE; may be given again"
    group.addoption("--conform", action="append", default=[], metavar="TARGET", dest="conform_targets", help=target)
    layer = "what it should be: an id, a YAML file or hf:NAME; default: what conform.yaml says, or what is read off it"
    group.addoption("--conform-layer", metavar="ID|YAML|hf:NAME", help=layer)
    levels = ["core", "required", "recommended", "optional"]
    group.addoption("--conform-level", choices=levels, default="core", help="default: core")
    update = "write the deviations that explain what does not conform to conform.yaml, and judge by these"
    group.addoption("--conform-update", action="store_true", help=update)


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """With --conform and no path, nothing but the modules is judged."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return True if config.getoption("conform_targets") and not named else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds the items of each module, so that -k and -m select among them as among any."""
    if targets := config.getoption("conform_targets"):
        from encoder_conformance.commands.check.pytest_items import judged_modules

        found = judged_modules(session, targets)
        config.stash[_MODULES] = found
        items += [item for module in found for item in module.collect()]
        session.testscollected = len(items)


_MODULES: "pytest.StashKey[list[JudgedModule]]" = pytest.StashKey()


def pytest_unconfigure(config: pytest.Config) -> None:
    for module in config.stash.get(_MODULES, []):
        module.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    targets = config.getoption("conform_targets")
    return [f"conform: {', '.join(targets)}"] if targets else []
