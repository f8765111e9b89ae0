import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.ingestion.parsing.markdown import MarkdownParser
from rag_core.types import Document, Section


def parsed(text: str) -> Document:
    return MarkdownParser().parse("file:///a.md", text.encode())


def paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in parsed(text).sections]


def test_headings_become_paths_with_the_offset_of_their_line() -> None:
    document = parsed("intro\n\n# A\n\ntext\n\n### B ###\n\n## C\n")
    assert document.sections == (
        Section(path=("A",), start=7),
        Section(path=("A", "B"), start=18),
        Section(path=("A", "C"), start=29),
    )


def test_setext_headings_open_sections() -> None:
    assert paths("One\n===\n\nTwo\n---\n\ntext of\ntwo lines\n---\n\n- item\n---\n") == [("One",), ("One", "Two")]


@pytest.mark.parametrize("fence", ["```", "~~~~", "```python"])
def test_what_stands_in_a_code_block_is_no_heading(fence: str) -> None:
    close = fence.rstrip("python")
    assert paths(f"# A\n\n{fence}\n# no\n{close} x\n# no\n{close}\n# B\n") == [("A",), ("B",)]


def test_an_open_code_block_hides_the_rest() -> None:
    assert paths("# A\n```\n# no\n~~~\n# no") == [("A",)]


def test_a_heading_is_told_without_its_markup() -> None:
    heading = '# **Bold** `code` [link](http://x) ![alt](y.png) snake_case _it_ \\# <a name="x"></a> {#id}\n'
    assert paths(heading) == [("Bold code link alt snake_case it #",)]


def test_front_matter_becomes_metadata_and_leaves_the_text() -> None:
    document = parsed(
        "---\ntitle: T\nlang: de\ndate: 2024-02-03\nn: 3\nok: true\ntags: [a, 1]\nnone:\nmap: {a: b}\n---\n# H\n"
    )
    assert (document.title, document.language, document.text) == ("T", "de", "# H\n")
    assert document.metadata == {"date": "2024-02-03", "n": 3, "ok": True, "tags": ["a", "1"]}
    assert document.sections == (Section(path=("H",), start=0),)


@pytest.mark.parametrize(
    "matter",
    [
        "a: [",
        "just words",
        "a: 2024-13-45",
        "a: &x {b: 1}\nc: {<<: *x}",
        "a: " + "[" * 5000 + "]" * 5000,
        "- " * 5000,
        'a: "\\ud800"',
        "a: !!python/object/apply:os.system [ls]",
        "",
    ],
)
def test_front_matter_that_is_no_plain_mapping_stays_in_the_text(matter: str) -> None:
    document = parsed(f"---\n{matter}\n---\nbody")
    assert document.text == f"---\n{matter}\n---\nbody"
    assert document.metadata == {}


def test_escapes_and_infinities_do_not_come_through() -> None:
    assert parsed('---\na: "x\\0y"\nb: .inf\nc: .nan\n---\nbody').metadata == {"a": "xy"}


@pytest.mark.parametrize(
    ("text", "title"),
    [("## B\n\n# A\n", "A"), ("## B\n\n### C\n", "B"), ("words\n", ""), ("---\ntitle: 2024\n---\n# A\n", "2024")],
)
def test_the_title_is_the_front_matters_else_the_first_heading(text: str, title: str) -> None:
    assert parsed(text).title == title


LINES = st.lists(
    st.one_of(
        st.sampled_from(["# A", "## B ##", "Title", "===", "---", "```", "~~~", "", "    # code", "- x", "\0", "a: b"]),
        st.text(max_size=8),
    ),
    max_size=20,
)


@given(LINES)
def test_every_section_starts_at_its_heading(lines: list[str]) -> None:
    document = parsed("\n".join(lines).encode("utf-8", "replace").decode())
    starts = [section.start for section in document.sections]
    assert "\0" not in document.text
    assert starts == sorted(set(starts))
    for start in starts:
        assert start == 0 or document.text[start - 1] == "\n"
        assert re.match(r" {0,3}#{1,6}[ \t]|[^\n]+\n {0,3}(==+|--+)[ \t]*(\n|$)", document.text[start:])
