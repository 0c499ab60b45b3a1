"""docs/adapter-api.md documents every public name of the package, and its examples run."""

import inspect
import re
from pathlib import Path

import pytest

import encoder_conformance

PAGE_PATH = Path(__file__).resolve().parents[3] / "docs" / "adapter-api.md"
PAGE = PAGE_PATH.read_text(encoding="utf-8")
SECTIONS = dict(zip(*[iter(re.split(r"^## `?(.+?)`?\n", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))
"""The name in each heading → what stands below it."""
FOR_USERS = {"InputError", "assert_conforms", "check"}
"""Names for those who judge a module, and write no adapter: docs/checking.md has them."""
ADAPTERS = sorted(set(encoder_conformance.__all__) - FOR_USERS)
CLASSES = [name for name in ADAPTERS if inspect.isclass(getattr(encoder_conformance, name))]


def test_every_public_name_has_a_heading_and_no_other_name_has_one() -> None:
    headings = re.findall(r"^#{2,} (.+)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(f"`{name}`" for name in ADAPTERS)
    checking = PAGE_PATH.with_name("checking.md").read_text(encoding="utf-8")
    assert all(name in checking for name in FOR_USERS - {"InputError"})


def test_the_table_of_names_links_to_every_heading() -> None:
    linked = re.findall(r"\[`(\w+)`\]\(#(\w+)\)", PAGE.partition("\n## ")[0])
    assert sorted(linked) == sorted((name, name.lower()) for name in ADAPTERS)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_its_public_methods_and_attributes_on_the_page(name: str) -> None:
    public = {member for member in vars(getattr(encoder_conformance, name)) if not member.startswith("_")}
    assert {member for member in public if not re.search(rf"\b{member}\b", SECTIONS[name])} == set()


def test_the_parameters_of_every_method_of_an_adapter_are_those_of_the_page() -> None:
    said = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", SECTIONS["Adapter"], re.MULTILINE))
    methods = {name: method for name, method in vars(encoder_conformance.Adapter).items() if inspect.isfunction(method)}
    assert {name: [word.split(":")[0] for word in parameters.split(", ")] for name, parameters in said.items()} == {
        name: list(inspect.signature(method).parameters)[1:] for name, method in methods.items()
    }


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 10
    exec("\n".join(examples), {"__name__": "adapter_api"})
