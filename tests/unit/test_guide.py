"""The guide shows what its programs do: a page for each, and code that is really in them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "local")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_of(example: Path) -> Path:
    return GUIDE / f"{example.stem.replace('_', '-')}.md"


def test_every_example_has_its_page_and_every_page_its_example() -> None:
    assert len(EXAMPLES) > 7
    assert {page_of(example) for example in EXAMPLES} == {*GUIDE.glob("*.md")} - {GUIDE / "README.md"}
    index = (GUIDE / "README.md").read_text()
    assert [example.stem for example in EXAMPLES if f"({page_of(example).name})" not in index] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_pages_code_is_that_of_its_example(example: Path) -> None:
    page, program = page_of(example).read_text(), _without_empty_lines(example.read_text())
    assert f"python examples/{example.name}" in page
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        shifted = [textwrap.indent(_without_empty_lines(block), " " * indent) for indent in range(0, 24, 4)]
        assert any(text in program for text in shifted), f"not in {example.name}:\n{block}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        found = (document.parent / name).resolve() if name else document
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, target


def _without_empty_lines(text: str) -> str:
    """At the top level functions are two lines apart, inside of one it is one."""
    return re.sub(r"\n{2,}", "\n", text)


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
