"""The page on Kubernetes: its values are valid, and its renderer prints what the page shows."""

import re

import pytest
import yaml
from charts import CHART, render_example
from documents import ROOT, Reader, read_blocks

from tools.render_chart import check_values, merge, read_values, render

PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
VALUES = {block.file: block.text for block in read_blocks(PAGE) if block.language == "yaml"}


@pytest.mark.slow
def test_the_renderer_prints_what_the_page_shows() -> None:
    render_example("default")  # skips without Go
    Reader(ROOT).follow(PAGE)


@pytest.mark.parametrize("file", VALUES)
def test_the_values_of_the_page_render(file: str) -> None:
    render_example("default")
    examples = [CHART / "examples" / "gpu.yaml"] if file == "gpu-values.yaml" else []
    values = merge(read_values(examples), yaml.safe_load(VALUES[file]))
    check_values(values)
    assert "kind: RayService" in render(values)


def test_every_value_that_the_page_names_exists() -> None:
    values = read_values()
    names = re.findall(
        r"`((?:serve|jobs|networkPolicy|disruptionBudget|monitoring|migrate|sources|image)\.[\w.]+)`", PAGE
    )
    assert len(set(names)) > 15
    for name in names:
        section = values
        for key in name.split("."):
            assert key in section, name
            section = section[key]
