from dataclasses import replace

import pytest

from rag_core.parsing.pdf.columns import Cell
from rag_core.parsing.pdf.layout import build_paragraphs
from rag_core.parsing.pdf.lines import WORD_CUT, Line


def line(text: str, y: float, **facts: object) -> Line:
    """A line in a column that begins at 72, with letters half as wide as high."""
    fields = {"page": 0, "left": 72.0, "size": 10.0} | facts
    right = fields["left"] + 0.5 * fields["size"] * len(text)  # type: ignore[operator]
    return Line(**({"text": text, "baseline": y, "right": right} | fields))  # type: ignore[arg-type]


def texts(*lines: Line) -> list[str]:
    numbers = sorted({line.page for line in lines})
    pages = [[line for line in lines if line.page == number] for number in numbers]
    return [paragraph.text for paragraph in build_paragraphs(pages)]


def test_lines_are_joined_to_a_paragraph_and_a_wider_gap_separates_two() -> None:
    paragraphs = texts(
        line("The first line of a paragraph", 700),
        line("goes on in its second, without", 688),
        line("end.", 676),
        line("Then there is another paragraph", 652),
        line("of two lines of the same width.", 640),
    )
    assert paragraphs == [
        "The first line of a paragraph goes on in its second, without end.",
        "Then there is another paragraph of two lines of the same width.",
    ]


def test_a_line_that_ends_before_the_margin_keeps_its_line_break() -> None:
    paragraphs = texts(
        line("A long line that fills its whole column", 700), line("Mill Lane 7", 688), line("Exeter 1", 676)
    )
    assert paragraphs == ["A long line that fills its whole column Mill Lane 7\nExeter 1"]


def test_a_word_cut_at_a_line_end_is_joined_and_keeps_a_hyphen_that_it_has_elsewhere() -> None:
    paragraphs = texts(
        line("self-locking nuts have an appoint-", 700),
        line("ment with another kind of self-", 688),
        line(f"locking nut, and are replace{WORD_CUT}able by", 676),
    )
    assert paragraphs == [
        "self-locking nuts have an appointment with another kind of self-locking nut, and are replaceable by"
    ]


def test_a_word_with_a_hyphen_already_keeps_the_one_at_the_line_end() -> None:
    paragraphs = texts(
        line("a description of the state-of-the-", 700), line(f"art in self-replace{WORD_CUT}able nuts", 688)
    )
    assert paragraphs == ["a description of the state-of-the-art in self-replace-able nuts"]


def test_items_of_a_list_are_paragraphs_with_any_bullet() -> None:
    paragraphs = texts(
        line("\u2022 one", 700), line("\x84 two and", 688), line("three", 676, left=80.0), line("\uf0b7 four", 664)
    )
    assert paragraphs == ["- one", "- two and three", "- four"]


def test_a_paragraph_continues_in_the_next_column_and_on_the_next_page() -> None:
    paragraphs = texts(
        line("it began in the first column and", 100),
        line("ended in the second one, where it", 700, left=320.0),
        line("was cut by the end of the page", 688, left=320.0),
        line("before it was complete.", 700, page=1),
        line("New page, new paragraph.", 676, page=1),
    )
    assert paragraphs == [
        "it began in the first column and ended in the second one, where it was cut by the end of the page before it "
        "was complete.",
        "New page, new paragraph.",
    ]


def test_a_line_in_the_margin_of_three_neighbouring_pages_is_left_out() -> None:
    pages = [
        [
            line("Annual report", 780, page=page, in_margin=True),
            line(f"Only on page {'abcd'[page]}.", 500, page=page),
            line(f"Page {page + 7} of 12", 20, page=page, in_margin=True),
        ]
        for page in range(4)
    ]
    assert [paragraph.text for paragraph in build_paragraphs(pages)] == [f"Only on page {letter}." for letter in "abcd"]
    two_pages = ["Annual report", "Only on page a.", "Only on page b."]
    assert [paragraph.text for paragraph in build_paragraphs(pages[:2])] == two_pages


def margins(*texts: str, **facts: object) -> list[str]:
    """The lines of the margin that remain. Each page has a line in its margin and a text."""
    pages = [
        [
            line(text, 780, page=page, in_margin=True, **facts),
            line(f"Only on page {'abcdefghij'[page]}, with words enough to define the usual size.", 500, page=page),
        ]
        for page, text in enumerate(texts)
    ]
    return [paragraph.text for paragraph in build_paragraphs(pages) if not paragraph.text.startswith("Only on")]


@pytest.mark.parametrize(
    "texts",
    [
        ["iii", "iv", "v", "1", "2", "3"],
        ["Page 7 of 12", "Page 8 of 12", "Page 9 of 12"],
        ["Mills 2024, page 2", "3 Wheels", "Mills 2024, page 4", "5 Wheels", "Mills 2024, page 6", "7 Wheels"],
    ],
)
def test_a_number_that_increases_with_the_pages_is_a_page_number(texts: list[str]) -> None:
    assert margins(*texts) == []


@pytest.mark.parametrize(
    "texts",
    [
        ["Item 1001 was sold", "Item 1051 was sold", "Item 1101 was sold", "Item 1151 was sold"],
        ["Of 2019-01-05", "Of 2018-03-01", "Of 2021-07-09", "Of 2020-11-30"],
        ["Total: 12", "Total: 14", "Total: 11", "Total: 13"],
    ],
)
def test_a_line_with_other_numbers_on_each_page_stays(texts: list[str]) -> None:
    assert margins(*texts) == texts


def test_a_number_apart_from_words_that_repeat_is_a_page_number_even_if_pages_are_missing() -> None:
    def footer(number: str, page: int) -> Line:
        cells = (Cell(number, 72.0, 90.0), Cell("Mill report", 120.0, 175.0))
        return line(f"{number} Mill report", 20, page=page, in_margin=True, cells=cells)

    def count_other_paragraphs(*numbers: str) -> int:
        pages = [[footer(number, page), line("Words.", 500, page=page)] for page, number in enumerate(numbers)]
        return len(build_paragraphs(pages)) - len(numbers)

    assert count_other_paragraphs("iv", "2", "8", "77") == 0
    assert count_other_paragraphs("8", "77", "2", "5") == 4


def test_headings_at_the_top_of_pages_stay_but_not_a_large_line_that_most_pages_repeat() -> None:
    chapters = [f"Chapter {number}" for number in range(1, 6)]
    assert margins(*chapters, size=16.0) == chapters
    assert margins(*chapters, bold=True) == chapters
    assert (
        margins("Results", "Results", "Results", "More", "Still more", "Done", "End", size=16.0)[:3] == ["Results"] * 3
    )
    assert margins(*["The Mill Company"] * 5, size=16.0) == []
    assert margins("Page 1", "Page 2", "Page 3", bold=True) == []


def test_a_line_that_repeats_at_another_height_stays() -> None:
    pages = [[line("Mill report", 730 + 12 * page, page=page, in_margin=True)] for page in range(4)]
    assert len(build_paragraphs(pages)) == 4


def test_the_first_and_last_rows_of_a_table_that_fills_the_page_stay() -> None:
    def row(page: int, y: float, label: str, value: str, margin: bool) -> Line:
        cells = (Cell(label, 72.0, 72.0 + 5 * len(label)), Cell(value, 200.0, 200.0 + 5 * len(value)))
        return line(f"{label} {value}", y, page=page, cells=cells, in_margin=margin)

    pages = [
        [row(page, 780, "Year", "Ducks", True), row(page, 768, f"20{page}4", f"{page}20", False)] for page in range(4)
    ]
    [table] = build_paragraphs(pages)
    assert table.table == (("Year", "Ducks"), *((f"20{page}4", f"{page}20") for page in range(4)))
    assert table.page_starts == (2, 3, 4)


def test_a_repeated_line_within_the_page_stays() -> None:
    assert texts(*(line("Repeated.", 400, page=page) for page in range(5))) == ["Repeated."] * 5


def test_larger_letters_make_headings_by_size_and_bold_ones_below_them() -> None:
    body = [line(f"Some words of the text of paragraph {n}, in usual letters.", 600 - 30 * n) for n in range(3)]
    paragraphs = build_paragraphs(
        [
            [
                line("The title", 760, size=20.0),
                line("A chapter", 700, size=14.0),
                body[0],
                line("A chapter more", 590, size=14.0),
                body[1],
                line("In bold", 550, bold=True),
                body[2],
                line("Contents ... 7", 300, size=14.0),
            ]
        ]
    )
    assert [(paragraph.level, paragraph.text) for paragraph in paragraphs if paragraph.level] == [
        (1, "The title"),
        (2, "A chapter"),
        (2, "A chapter more"),
        (3, "In bold"),
    ]


def test_raised_letters_at_the_same_height_are_one_line() -> None:
    assert texts(line("sizes up to 1", 700), line("/4 inch", 702, left=137.0)) == ["sizes up to 1/4 inch"]


@pytest.mark.parametrize("lines", [[], [line("a", 1.0)], [line("-", 1.0), line("b", 1.0)], [line(WORD_CUT, 1.0)]])
def test_single_lines_and_single_characters_are_accepted(lines: list[Line]) -> None:
    assert len(build_paragraphs([lines])) <= len(lines)


def test_a_table_is_a_paragraph_between_the_paragraphs_around_it() -> None:
    def row(y: float, label: str, value: str) -> Line:
        cells = (Cell(label, 72.0, 72.0 + 5 * len(label)), Cell(value, 200.0, 200.0 + 5 * len(value)))
        return line(f"{label} {value}", y, cells=cells)

    paragraphs = build_paragraphs(
        [[line("Before it.", 720), row(700, "Year", "Ducks"), row(688, "2019", "120"), line("After.", 660)]]
    )
    assert [paragraph.text for paragraph in paragraphs] == ["Before it.", "Year Ducks\n2019 120", "After."]
    assert [paragraph.table for paragraph in paragraphs] == [(), (("Year", "Ducks"), ("2019", "120")), ()]


def test_a_table_of_contents_is_marked_and_a_table_of_figures_with_leaders_stays() -> None:
    entries = [line(f"{n} Chapter ... {page}", 700 - 12 * n) for n, page in enumerate((1, 4, 4, 9, 12))]
    paragraphs = build_paragraphs([[line("Contents", 740), *entries, line("The text begins here.", 500)]])
    assert [(paragraph.is_contents, len(paragraph.lines)) for paragraph in paragraphs] == [(True, 6), (False, 1)]
    prices = [line(f"Item {n} ... {price}", 700 - 12 * n) for n, price in enumerate((30, 4, 17, 2, 12))]
    assert not any(paragraph.is_contents for paragraph in build_paragraphs([[*prices, line("Text.", 500)]]))
    assert not any(paragraph.is_contents for paragraph in build_paragraphs([entries]))
    late = [replace(entry, page=20) for entry in entries]
    pages = [[line("Text.", 500, page=page)] for page in range(20)]
    assert not any(paragraph.is_contents for paragraph in build_paragraphs([*pages, late]))


def test_a_footer_does_not_cut_a_sentence_and_comes_before_it_on_its_page() -> None:
    paragraphs = texts(
        line("The mill was sold in the year of the flood, and its new own-", 100),
        line("\u00a9 2023 The Mill Company. All rights reserved.", 60, size=7.0),
        line("ers have kept it since.", 700, page=1),
        line("Another paragraph begins.", 670, page=1),
    )
    assert paragraphs == [
        "\u00a9 2023 The Mill Company. All rights reserved.",
        "The mill was sold in the year of the flood, and its new owners have kept it since.",
        "Another paragraph begins.",
    ]


def test_a_heading_between_two_pages_is_not_an_interruption() -> None:
    paragraphs = texts(
        line("The mill was sold in the year of the flood, without end", 100),
        line("A heading", 740, page=1, size=14.0),
        line("the text below it begins with a small letter.", 700, page=1),
    )
    assert len(paragraphs) == 3


def test_a_row_that_was_printed_cell_by_cell_is_read_line_by_line() -> None:
    def cell(text: str, x: float, y: float) -> Line:
        return line(text, y, left=x)

    def row(y: float, *cells: str) -> Line:
        parts = tuple(Cell(text, 72.0 + 100 * n, 72.0 + 100 * n + 5 * len(text)) for n, text in enumerate(cells))
        return line(" ".join(cells), y, right=parts[-1].right, cells=parts)

    head = [cell("Mill", 72, 700), cell("Net", 172, 712), cell("income", 172, 700), cell("Old", 272, 712)]
    body = [row(680, "Weir", "1,234", "55"), row(660, "Ferry", "2,345", "66")]
    [table] = build_paragraphs([[*head, cell("debt", 272, 700), *body]])
    assert table.table[0] == ("Mill", "Net income", "Old debt")
