import re
from unittest.mock import Mock

import html_to_markdown
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.parsing.markup import embedded_html
from rag_core.parsing.markup.markdown import MarkdownParser
from rag_core.types import Document, Section


def parse(text: str) -> Document:
    return MarkdownParser().parse("file:///a.md", text.encode())


def paths(text: str) -> list[tuple[str, ...]]:
    return [section.path for section in parse(text).sections]


def test_headings_become_paths_with_the_offset_of_their_line() -> None:
    document = parse("intro\n\n# A\n\ntext\n\n### B ###\n\n## C\n")
    assert document.sections == (
        Section(path=("A",), start=7),
        Section(path=("A", "B"), start=18),
        Section(path=("A", "C"), start=29),
    )


def test_setext_headings_open_sections() -> None:
    assert paths("One\n===\n\nTwo\n---\n\ntext of\ntwo lines\n---\n\n- item\n---\n") == [("One",), ("One", "Two")]


@pytest.mark.parametrize("fence", ["```", "~~~~", "```python"])
def test_a_line_in_a_code_block_is_not_a_heading(fence: str) -> None:
    close = fence.rstrip("python")
    assert paths(f"# A\n\n{fence}\n# no\n{close} x\n# no\n{close}\n# B\n") == [("A",), ("B",)]


@pytest.mark.parametrize(
    "block",
    [
        "- ```python\n  # no\n  ```\n",
        "1. ```\n   # no\n   ```\n",
        "- a\n    - ~~~\n      # no\n      ~~~\n",
        "- ```\n  - ```\n# no\n  ```\n",
        "    ```\n# no\n```\n",
        "```\n    ```\n# no\n```\n",
    ],
)
def test_a_code_block_can_begin_after_the_marker_of_a_list(block: str) -> None:
    assert paths(f"# A\n\n{block}\n# B\n") == [("A",), ("B",)]


@pytest.mark.parametrize(
    ("table", "piped"),
    [
        ("Name | Use\n--- | ---\na | b\n\nc | d", "| Name | Use |\n| --- | --- |\n| a | b |\n\nc | d"),
        ("|Name|Use\n|:-|-:\n|a|b\nEnd.", "|Name|Use |\n|:-|-: |\n|a|b |\nEnd."),
        ("A \\| B | C\n-|-\n1 | 2\\|", "| A \\| B | C |\n| -|- |\n| 1 | 2\\| |"),
        ("> A | B\n> -|-\n> 1 | 2\n3 | 4", "> | A | B |\n> | -|- |\n> | 1 | 2 |\n3 | 4"),
        ("A | B\n-|-\n- 1 | 2", "| A | B |\n| -|- |\n- 1 | 2"),
    ],
)
def test_a_table_has_a_pipe_at_both_ends_of_its_rows(table: str, piped: str) -> None:
    assert parse(f"Text.\n\n{table}\n").text == f"Text.\n\n{piped}\n"


@pytest.mark.parametrize(
    "text",
    ["```\na | b\n-|-\n1 | 2\n```\n", "A | B | C\n--- | ---\n", "A\n---\n", "--- | ---\n", "| A | B |\n|---|---|\n"],
)
def test_other_text_and_complete_tables_stay_unchanged(text: str) -> None:
    assert parse(text).text == text


def test_an_open_code_block_hides_the_rest() -> None:
    assert paths("# A\n```\n# no\n~~~\n# no") == [("A",)]


def test_a_heading_has_no_markup() -> None:
    heading = '# **Bold** `code` [link](http://x) ![alt](y.png) snake_case _it_ \\# <a name="x"></a> {#id}\n'
    assert paths(heading) == [("Bold code link alt snake_case it #",)]


def test_front_matter_becomes_metadata_and_is_removed_from_the_text() -> None:
    document = parse(
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
def test_front_matter_that_is_not_a_plain_mapping_stays_in_the_text(matter: str) -> None:
    document = parse(f"---\n{matter}\n---\nbody")
    assert document.text == f"---\n{matter}\n---\nbody"
    assert document.metadata == {}


def test_escapes_and_infinities_are_removed() -> None:
    assert parse('---\na: "x\\0y"\nb: .inf\nc: .nan\n---\nbody').metadata == {"a": "xy"}


@pytest.mark.parametrize(
    ("text", "title"),
    [("## B\n\n# A\n", "A"), ("## B\n\n### C\n", "B"), ("words\n", ""), ("---\ntitle: 2024\n---\n# A\n", "2024")],
)
def test_the_title_is_the_front_matters_else_the_first_heading(text: str, title: str) -> None:
    assert parse(text).title == title


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a\n\n<!-- no\n\n# no -->\nb <!-- no --> c\n", "a\n\nb  c\n"),
        ("<!-- no --> word\n", " word\n"),
        ("<table>\n<tr><th>A</th>\n\n<th>B</th></tr>\n</table>\n\nend", "| A | B |\n| --- | --- |\n\n\nend"),
        ("text\n<ul>\n<li>a</li>\n\n<li>b</li>\n</ul>\n", "text\n\n- a\n- b\n\n"),
        ("<h2>A <b>c</b></h2>\n", "## A **c**\n"),
        ('<div align="center">\n  <img src="x.png" alt="A cat">\n</div>\n', "A cat\n"),
        ("<details>\n<summary>More</summary>\n\n**x** `<b>`\n\n</details>\n", "**More**\n\n**x** `<b>`\n\n"),
        ("<tr>\n<td>a</td>\n<td>b</td>\n</tr>\n", "a b\n"),
        ("<p>List<T> of a < b</p>\n", "List<T> of a < b\n"),
        ("<pre>\nx  <b>y</b>\n\nz\n</pre>\n", "```\nx  y\n\nz\n```\n\n"),
    ],
)
def test_blocks_of_html_become_markdown(html: str, text: str) -> None:
    assert parse(html).text == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("H<sub>2</sub>O, m<sup>2</sup>, <b>bold</b> <span class='x'>s</span>", "H2O, m^2, bold s"),
        ("| a<br>b | <ul><li>c</li><li>d</li></ul> |", "| a b | c d  |"),
        ('# <a name="x"></a>Title', "# Title"),
        ('see <img src="x" alt="the &lt; sign"/>.', "see the < sign ."),
    ],
)
def test_tags_within_a_line_are_removed_but_not_their_content(html: str, text: str) -> None:
    assert parse(html).text == text


@pytest.mark.parametrize(
    "text",
    [
        "see <https://a.b/c> or <me@a.b>, a < b and b > a, a <b and c> d",
        "List<T>, Map<String, List<B>>, `<b>x</b>`, ``a ` <i>x</i>``, \\<b>",
        "run cp <source> <output> or <Component prop={1} />",
        "```html\n<div>\n\n<!-- kept -->\n```\n",
        "- item\n\n    ~~~\n    <p>x</p>\n    ~~~\n",
        "text:\n\n    <div>\n      <b>code</b>\n\n    </div>\n",
        "<!-- without an end\n\n# A",
    ],
)
def test_code_and_text_that_is_not_html_stay_unchanged(text: str) -> None:
    assert parse(text).text == text


def test_code_between_the_tags_of_a_cell_stays_code() -> None:
    code = "```ts\nconst a: List<T> = b\n```\n"
    assert parse(f"<table><tr><td>\n\n{code}\n</td></tr></table>\n").text == f"\n{code}\n"


def test_html_within_a_list_is_not_code() -> None:
    assert parse("- item\n\n    <p>more</p>\n").text == "- item\n\nmore\n"


def test_html_nested_too_deep_stays_as_it_is() -> None:
    deep = "<div>" * 2000 + "x\n"
    assert parse(deep).text == deep


PARAGRAPHS = st.builds(
    "<{0}{1}>{2}</{0}>{3}".format,
    st.sampled_from(["p", "h2", "P"]),
    st.sampled_from(["", " class='x'", ' hidden role="navigation"']),
    st.lists(
        st.one_of(
            st.sampled_from(
                ["---", "# ", "- ", "&lt;", "&#xF0A7D;", "&nbsp;", "\n", "<b>x</b>", "<br>", "<b>", "</p>\n<p>"]
            ),
            st.text(max_size=6),
        ),
        max_size=5,
    ).map("".join),
    st.sampled_from(["", " ", "\n"]),
)


@given(st.lists(PARAGRAPHS, min_size=2, max_size=4))
def test_paragraphs_that_are_converted_together_become_what_each_would(blocks: list[str]) -> None:
    plain = [block for block in blocks if embedded_html._CLOSED_PARAGRAPHS.fullmatch(block)]
    assert embedded_html._convert_paragraphs(plain) == {block: embedded_html._convert_block(block) for block in plain}


def test_many_paragraphs_of_html_are_converted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = Mock(wraps=html_to_markdown.convert)
    monkeypatch.setattr("rag_core.parsing.markup.html.convert", convert)
    document = parse("".join(f"<p>Gate <b>{number}</b></p>\n\n" for number in range(2_000)))
    assert document.text.startswith("Gate **0**\n\nGate **1**\n\n")
    assert document.text.endswith("Gate **1999**\n\n")
    assert convert.call_count == 1


@pytest.mark.slow
@pytest.mark.timeout(60)  # in proportion seconds, squared many minutes
@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "<!--",
        "<!-- -",
        "<b ",
        "<b a=",
        "</",
        "<table\n",
        "<ul>\n",
        "<b>`",
        "\n<!--",
        "> - ",
        "<td>\n\n",
        "`<b>\n",
        "<p>a<b>",
        "<p a='",
    ],
)
def test_no_repetition_takes_long(unit: str) -> None:
    assert "\0" not in parse(unit * 100_000 + "<b>-->").text


LINES = st.lists(
    st.one_of(
        st.sampled_from(["# A", "## B ##", "Title", "===", "---", "```", "~~~", "", "    # code", "- x", "\0", "a: b"]),
        st.text(max_size=8),
    ),
    max_size=20,
)


@given(LINES)
def test_every_section_starts_at_its_heading(lines: list[str]) -> None:
    document = parse("\n".join(lines).encode("utf-8", "replace").decode())
    starts = [section.start for section in document.sections]
    assert "\0" not in document.text
    assert starts == sorted(set(starts))
    for start in starts:
        assert start == 0 or document.text[start - 1] == "\n"
        assert re.match(r" {0,3}#{1,6}[ \t]|[^\n]+\n {0,3}(==+|--+)[ \t]*(\n|$)", document.text[start:])


def test_headings_keep_paths_and_types() -> None:
    text = "# API\n\n## GET /users/{id}\n\n## Vec<T>\n\n## <https://x.org/a>\n\n## Anchored {#a}\n\n## Classed {.b}\n"
    document = MarkdownParser().parse("file:///a.md", text.encode())
    names = ["GET /users/{id}", "Vec<T>", "https://x.org/a", "Anchored", "Classed"]
    assert [section.path[-1] for section in document.sections] == ["API", *names]
