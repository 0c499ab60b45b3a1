"""docs/scale.md is what its figures say; docs/pictures/sigma.svg is of today's numbers."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has neither benchmarks nor pages."""


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_figures_say() -> None:
    figures = json.loads((ROOT / "docs" / "scale.json").read_text(encoding="utf-8"))
    scale = loaded(ROOT / "benchmarks" / "scale.py")
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert len(figures["runs"]) > 1
    assert len(figures["environments"]) > 3
    slower = {**figures, "runs": [row | {"seconds": 100 * row["seconds"]} for row in figures["runs"]]}
    assert scale.page(slower) != page


def test_the_plot_of_right_and_wrong_is_of_these_numbers() -> None:
    sigma = loaded(ROOT / "docs" / "pictures" / "sigma.py")
    right, wrong = sigma.right(), sigma.wrong()
    assert max(right) < 2 < 100 < min(wrong)
    assert min(len(right), len(wrong)) > 100
    picture = (ROOT / "docs" / "pictures" / "sigma.svg").read_text(encoding="utf-8")
    assert sigma.caption(right, wrong) in picture, "python docs/pictures/sigma.py"
