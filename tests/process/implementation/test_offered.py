"""Implementations that installed packages offer: taken by name, and a broken offer costs one line and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from products import daily

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
Offer = Callable[..., dict[str, str]]


@pytest.fixture
def offer(tmp_path: Path) -> Offer:
    """Install a package that offers `name`: what to run the command with. `folder` goes into it, if there is one."""

    def install(name: str, value: str, folder: Path | None = None) -> dict[str, str]:
        site = tmp_path / "site"
        about = site / f"{name}_package-1.5.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(f"[encoder_conformance.implementations]\n{name} = {value}\n")
        if folder:
            package = site / "acme"
            package.mkdir(exist_ok=True)
            (package / "__init__.py").write_text("raise SystemExit('the package was imported')\n")
            shutil.move(folder, package / folder.name)
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path}

    return install


@pytest.mark.release
def test_an_offered_implementation_is_listed_and_taken_by_name(conform: Callable, fake: Callable, offer: Offer) -> None:
    env = offer("elsewhere", "acme.elsewhere", fake("elsewhere"))
    listed = conform("list", "impls", "--json", env=env)
    assert listed.status == 0, listed.stderr
    assert [row["here"] for row in json.loads(listed.stdout) if row["name"] == "elsewhere"] == ["ready"]
    ran = conform("run", "--impl", "elsewhere", *CASES, env=env)
    assert ran.status == 0, ran.stdout + ran.stderr
    assert set(ran.outcomes()) == {"pass"}
    again = conform("new", "elsewhere", "--framework", "numpy", env=env)
    assert "is an implementation already" in again.stderr


@pytest.mark.release
def test_a_listing_and_a_new_folder_execute_no_implementation(
    conform: Callable, fake: Callable, offer: Offer, tmp_path: Path
) -> None:
    """Neither the package that offers one, nor its adapter."""
    folder = fake("elsewhere")
    for file in ("adapter.py", "__init__.py"):
        (folder / file).write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    env = offer("elsewhere", "acme.elsewhere", folder)
    for words in (("list", "impls"), ("list", "coverage"), ("new", "mine", "--framework", "numpy")):
        assert conform(*words, env=env).status == 0
    assert not (tmp_path / "executed").exists()


BROKEN_OFFERS = [
    ("lost", "nowhere.at.all", "there is no folder 'nowhere.at.all'"),
    ("lost", "acme:Adapter", "there is no folder 'acme:Adapter'"),
    ("lost", "acme.other", "the folder is called 'other'"),
    ("empty", "acme.empty", "holds no impl.yaml"),
    ("broken", "acme.broken", "key framework is missing"),
    ("pytorch", "acme.other", "another implementation has this name"),
]


@pytest.mark.release
@pytest.mark.parametrize(("name", "value", "said"), daily(BROKEN_OFFERS[:1], BROKEN_OFFERS))
def test_a_broken_offer_is_one_line_that_names_the_package_and_the_rest_goes_on(
    conform: Callable, fake: Callable, offer: Offer, tmp_path: Path, name: str, value: str, said: str
) -> None:
    for folder in ("other", "empty", "broken"):
        made = fake(folder)
        if folder == "empty":
            (made / "impl.yaml").unlink()
        if folder == "broken":
            text = (made / "impl.yaml").read_text()
            (made / "impl.yaml").write_text("\n".join(line for line in text.splitlines() if "framework:" not in line))
        offer(f"unused_{folder}", f"acme.{folder}", made)
    for extra in (tmp_path / "site").glob("unused_*"):
        shutil.rmtree(extra)
    env = offer(name, value)
    listed = conform("list", "impls", "--json", env=env)
    assert listed.status == 0, listed.stderr
    assert "pytorch" in [row["name"] for row in json.loads(listed.stdout)]
    [line] = listed.stderr.strip().splitlines()
    assert f"{name}-package 1.5 offers {name}, which is left out: " in line
    assert said in line
    if name != "pytorch":
        asked = conform("run", "--impl", name, *CASES, env=env)
        assert asked.status == 2
        assert said in asked.stderr
        assert "Traceback" not in asked.stderr
