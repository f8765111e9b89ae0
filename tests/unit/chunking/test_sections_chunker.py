from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from rag_core.chunking.sections import SectionsChunker
from rag_core.models.encoders.tokens import WordTokenizer
from rag_core.types import Chunk, Document, Section

DOCUMENT = UUID("00000000-0000-0000-0000-000000000001")


class CountingTokenizer(WordTokenizer):
    calls = 0

    def lengths(self, texts: Sequence[str]) -> list[int]:
        self.calls += 1
        return super().lengths(texts)


def markdown(text: str, title: str = "") -> Document:
    """A document with the sections that the parser would find."""
    sections, path, start = [], {}, 0
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            path = {at: heading for at, heading in path.items() if at < level} | {level: line.strip("# \n")}
            sections.append(Section(path=tuple(path.values()), start=start))
        start += len(line)
    return Document(uri="file:///a.md", text=text, title=title, sections=tuple(sections))


def split(document: Document, tokens: int = 16, overlap: int = 0, prefix_tokens: int = 12) -> tuple[Chunk, ...]:
    return SectionsChunker(WordTokenizer(), tokens, overlap, prefix_tokens).split(DOCUMENT, document)


def words(name: str, count: int) -> str:
    """A sentence of `count` tokens, including its full stop."""
    return " ".join(f"{name.capitalize()}{i}" for i in range(count - 1)) + "."


def test_white_space_gives_no_chunk() -> None:
    assert split(markdown(" \n\n\t ")) == ()


def test_whole_sentences_are_packed_up_to_the_size() -> None:
    text = f"  {words('a', 8)} {words('b', 8)}\n\n{words('c', 9)} {words('d', 8)} "
    chunks = split(markdown(text))
    assert [(chunk.text, chunk.ordinal) for chunk in chunks] == [
        (f"{words('a', 8)} {words('b', 8)}", 0),
        (words("c", 9), 1),
        (words("d", 8), 2),
    ]
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(2, 45), (47, 71), (72, 93)]


def test_the_last_whole_sentences_are_repeated_as_far_as_the_overlap_allows() -> None:
    a, b, c, d = words("a", 10), words("b", 3), words("c", 3), words("d", 10)
    texts = [chunk.text for chunk in split(markdown(f"{a} {b} {c} {d}"), overlap=6)]
    assert texts == [f"{a} {b} {c}", f"{b} {c} {d}"]
    assert [chunk.text for chunk in split(markdown(f"{a} {b} {c} {d}"), overlap=5)] == [f"{a} {b} {c}", f"{c} {d}"]


def test_a_sentence_that_is_too_long_is_cut_at_white_space() -> None:
    text = " ".join(f"word{i}" for i in range(40))
    texts = [chunk.text for chunk in split(markdown(text))]
    assert [len(text.split()) for text in texts] == [16, 16, 8]
    assert " ".join(texts) == text


def test_a_word_that_is_too_long_is_cut_too() -> None:
    chunks = split(markdown("x" * 1000))
    assert "".join(chunk.text for chunk in chunks) == "x" * 1000
    assert [len(chunk.text) for chunk in chunks] == [256, 256, 256, 232]


def test_a_chunk_never_crosses_a_section() -> None:
    text = f"# A\n{words('a', 5)}\n# B\n{words('b', 14)}\n"
    chunks = split(markdown(text), overlap=8)
    assert [chunk.text for chunk in chunks] == [f"# A\n{words('a', 5)}", f"# B\n{words('b', 14)}"]
    assert [chunk.metadata for chunk in chunks] == [{"section": "A"}, {"section": "B"}]


def test_small_sections_of_one_parent_are_merged_while_they_fit() -> None:
    text = "# Top\nText of it that is long enough to stand.\n## A\nx.\n## B\ny.\n## C\n" + words("z", 33)
    chunks = split(markdown(text), tokens=40)
    assert [chunk.text.count("##") for chunk in chunks] == [0, 2, 1]
    assert [chunk.metadata["section"] for chunk in chunks] == ["Top", "Top", "Top > C"]


def test_small_sections_of_other_parents_stay_apart() -> None:
    chunks = split(markdown("# A\n## B\nx.\n# C\ny.\n"), tokens=32)
    assert [chunk.text for chunk in chunks] == ["# A\n## B\nx.", "# C\ny."]


def test_a_heading_without_text_joins_the_next_section_of_any_length() -> None:
    chunks = split(markdown(f"# Top\n## Keys\n{words('a', 12)} {words('b', 12)}"), tokens=20)
    assert [chunk.text for chunk in chunks] == [f"# Top\n## Keys\n{words('a', 12)}", words("b", 12)]
    assert [chunk.metadata["section"] for chunk in chunks] == ["Top > Keys", "Top > Keys"]


def test_the_prefix_is_title_and_headings_that_the_text_does_not_begin_with() -> None:
    text = f"# Operations\n{words('o', 10)}\n## Keys\n{words('a', 12)} {words('b', 12)}"
    chunks = split(markdown(text, title="Manual"))
    assert [chunk.prefix for chunk in chunks] == ["Manual", "Manual\nOperations", "Manual\nOperations > Keys"]
    assert chunks[2].embedded_text == f"Manual\nOperations > Keys\n{words('b', 12)}"


def test_the_title_is_not_repeated() -> None:
    text = f"# Manual\n{words('a', 12)} {words('b', 12)}"
    assert [chunk.prefix for chunk in split(markdown(text, title="Manual"))] == ["", "Manual"]
    assert [chunk.prefix for chunk in split(markdown("Manual of keys.", title="Manual"))] == [""]


def test_the_prefix_has_the_words_of_the_files_name_after_the_title() -> None:
    text = f"# Manual\n{words('a', 12)} {words('b', 12)}"
    document = replace(markdown(text, title="Manual"), uri="file:///tide_gates-2023.md")
    assert [chunk.prefix for chunk in split(document)] == ["tide gates 2023", "Manual\ntide gates 2023"]
    assert [chunk.prefix for chunk in split(document, prefix_tokens=3)] == ["tide gates 2023", "Manual"]


def test_a_long_prefix_loses_its_outermost_headings_then_its_first_words() -> None:
    sections = (Section(path=("one two three", "four five six"), start=0),)
    document = Document(uri="x", text="Text.", title="seven eight nine", sections=sections)
    prefixes = {size: split(document, prefix_tokens=size)[0].prefix for size in (10, 9, 6, 5, 4, 1, 0)}
    assert prefixes == {
        10: "seven eight nine\none two three > four five six",
        9: "seven eight nine\nfour five six",
        6: "seven eight nine\nfour five six",
        5: "… nine\nfour five six",
        4: "… four five six",
        1: "",
        0: "",
    }


def test_a_cut_table_repeats_its_header_row_and_no_row_is_cut() -> None:
    rows = "".join(f"| k{i} | v{i} |\n" for i in range(6))
    chunks = split(markdown(f"| key | value |\n|---|---|\n{rows}\n\nAfter it.", title="Keys"), tokens=16)
    assert [chunk.prefix for chunk in chunks] == ["Keys", *["Keys\n| key | value |"] * 2, "Keys"][: len(chunks)]
    assert all(chunk.text.endswith(("|", "it.")) for chunk in chunks)
    assert "".join(f"{chunk.text}\n" for chunk in chunks).count("| k") == 7


def test_a_header_longer_than_a_prefix_is_repeated_whole_in_smaller_chunks() -> None:
    header = "| one two three | four five six | seven eight |"
    rows = "".join(f"| k{i} | v{i} | w{i} |\n" for i in range(6))
    chunks = split(markdown(f"{header}\n|---|---|---|\n{rows}"), tokens=24, prefix_tokens=8)
    assert len(chunks) > 2
    assert {chunk.prefix for chunk in chunks[1:]} == {header}
    tokenizer = WordTokenizer()
    assert all(sum(tokenizer.lengths([chunk.prefix, chunk.text])) <= 24 + 8 for chunk in chunks)


def test_a_table_within_a_quotation_is_cut_between_its_rows_too() -> None:
    rows = "".join(f"> | k{i} | v{i} |\n" for i in range(6))
    chunks = split(markdown(f"> | key | value |\n> |---|---|\n{rows}", title="Keys"), tokens=16)
    assert {chunk.prefix for chunk in chunks[1:]} == {"Keys\n| key | value |"}
    assert all(chunk.text.startswith("> |") and chunk.text.endswith("|") for chunk in chunks)


def test_a_second_table_has_its_own_header() -> None:
    table = "| {0} | x |\n|---|---|\n| 1111 | 2222 |\n| 3333 | 4444 |\n"
    chunks = split(markdown(table.format("one") + "\n" + table.format("two")), tokens=16)
    assert [chunk.prefix for chunk in chunks] == ["", "| one | x |", "| two | x |", "| two | x |"]


def test_equal_texts_of_a_document_have_ids_of_their_own() -> None:
    chunks = split(markdown(f"# A\n{words('a', 14)}\n# A\n{words('a', 14)}\n"))
    assert chunks[0].text == chunks[1].text
    assert chunks[0].id != chunks[1].id


def test_a_paragraph_at_the_start_changes_no_chunk_of_later_sections() -> None:
    later = "".join(f"# H{i}\n{words(f'a{i}x', 12)} {words(f'b{i}x', 12)}\n" for i in range(5))
    before = split(markdown(f"# Start\n{words('s', 10)}\n{later}"))
    after = split(markdown(f"# Start\nA new one.\n\n{words('s', 10)}\n{later}"))
    assert (len(before), len(after)) == (11, 11)
    assert [chunk.id for chunk in after[1:]] == [chunk.id for chunk in before[1:]]
    assert after[1].start == before[1].start + len("A new one.\n\n")


def test_a_document_needs_one_call_of_the_tokenizer() -> None:
    tokenizer = CountingTokenizer()
    text = "".join(f"# H{i}\n{words('a', 12)} {words('b', 12)}\n" for i in range(5))
    chunks = SectionsChunker(tokenizer, 16, 4, 48).split(DOCUMENT, markdown(text, title="T"))
    assert (len(chunks), tokenizer.calls) == (10, 1)


@pytest.mark.timeout(60)  # in proportion a second, squared many minutes
def test_one_long_line_takes_time_in_proportion() -> None:
    assert len(split(markdown("word " * 200_000), tokens=200)) == 1000


def test_the_prefix_of_a_very_wide_table_costs_no_more_than_that_of_a_wide_one() -> None:
    lengths = list[int]()

    class Recording(WordTokenizer):
        def lengths(self, texts: Sequence[str]) -> list[int]:
            lengths.extend(map(len, texts))
            return super().lengths(texts)

    header = "| " + " | ".join(f"column{i}" for i in range(2_000)) + " |"
    rows = "| " + " | ".join("v" for i in range(2_000)) + " |\n"
    document = markdown(f"{header}\n|---|\n{rows * 3}")
    chunks = SectionsChunker(Recording(), 16, 0, 12).split(DOCUMENT, document)
    assert max(lengths) <= 1_000
    assert all(WordTokenizer().lengths([chunk.prefix])[0] <= 12 for chunk in chunks)
