"""Code in an answer: it passes the filter byte for byte, at once or soon, and in linear time."""

from itertools import cycle, islice
from typing import Any

import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rag_core.answering.citing.markdown_code import Code, find_code, read_markdown
from rag_core.answering.citing.marker_scan import MAX_HELD_LENGTH, MarkerScanner

HOSTS = frozenset({"good.example"})
GOOD, EVIL = "https://good.example/a?b=c", "https://evil.example/?q=secret"
calmly = settings(deadline=None, max_examples=scale_examples(200), suppress_health_check=[HealthCheck.too_slow])


def scanner() -> MarkerScanner:
    return MarkerScanner(dict.fromkeys((1, 2, 3), ""), HOSTS)


def scan_text(text: str) -> str:
    scan = scanner()
    return "".join(piece.text for piece in [*scan.feed(text), *scan.finish()])


@pytest.mark.parametrize(
    "code", ["`x[9] https://evil.example`", "`` a`[1] ``", "~~~\n![a](b)\n~~~", "```py\nx[9]\n\n<img>\n```"]
)
def test_code_is_untouched(code: str) -> None:
    assert scan_text(f"A\n\n{code}\n\nB [9]") == f"A\n\n{code}\n\nB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"`a {EVIL}", "`a (link removed)"),
        (f"`a\nb` {EVIL} `c`", "`a\nb` (link removed) `c`"),
        (f"\\`a {EVIL} \\`", "\\`a (link removed) \\`"),
        (f"`a | b` `{EVIL}`", f"`a | b` `{EVIL}`"),
        (f"`a | b` `{EVIL}`\n-|-", "`a | b` `(link removed)`\n-|-"),
        (f"{GOOD}` {EVIL} `", f"{GOOD} ` {EVIL} `"),
        (f"> ```\n> {EVIL}\n> ```", f"> ```\n> {EVIL}\n> ```"),
        (f"- a\n  ```\n  b\n{EVIL}", "- a\n  ```\n  b\n(link removed)"),
        (f"- a\n\n      ```\n      b\n      ```\n{EVIL}", "- a\n\n      ```\n      b\n      ```\n(link removed)"),
        (f"```\na\n~~~\n``` b\n  ````  \n{EVIL}", "```\na\n~~~\n``` b\n  ````  \n(link removed)"),
        (f"- ```\n  a\n  ```\n{EVIL}", "- ```\n  a\n  ```\n(link removed)"),
        (f"```a|b\n-|-\n{EVIL}\n```", "```a|b\n-|-\n(link removed)\n```"),
        (f"`{EVIL}\n~~~~` b", "`(link removed)\n~~~~` b"),  # the second line begins a block of code
    ],
)
def test_code_is_only_what_every_reader_takes_for_code(text: str, expected: str) -> None:
    assert scan_text(text) == expected


ACTIVE = st.lists(
    st.sampled_from(["a", "x[9]", "[1]", EVIL, "<img src=x>", "](//e)", "![i](//e)", "~~", "'", " "]),
    min_size=1,
    max_size=5,
).map("".join)
INLINE = st.builds(
    lambda marks, code: f"{marks}{code}{marks}", st.sampled_from(["`", "``"]), ACTIVE.filter(lambda code: code.strip())
)
LINES = st.lists(ACTIVE.map(lambda line: f"x {line}"), max_size=4)
FENCES = st.builds(
    lambda indent, marks, lines: "\n".join(f"{indent}{line}".rstrip() for line in [marks, *lines, marks[:3]]),
    st.sampled_from(["", "  "]),
    st.sampled_from(["```py", "~~~", "```"]),
    LINES,
)
BLOCKS = st.one_of(
    st.lists(INLINE, min_size=1, max_size=4).map(lambda codes: f"Run {', then '.join(codes)} now."),
    FENCES,
    FENCES.map(lambda fence: "- item\n\n" + "\n".join(f"  {line}".rstrip() for line in fence.split("\n"))),
    INLINE.map(lambda code: f"1. First {code}\n2. Second {code}"),
    st.just("A lone ` and a ~~~ in a line."),
)


@calmly
@given(st.lists(BLOCKS, min_size=1, max_size=5).map("\n\n".join))
def test_a_models_code_passes_byte_for_byte(text: str) -> None:
    assert scan_text(f"Code:\n\n{text}") == f"Code:\n\n{text}"


def format_list(count: int) -> str:
    return "\n".join(f"- Use `items[{i}]` in the `<div>` of page {i}." for i in range(count))


@pytest.mark.parametrize(
    "text",
    [
        format_list(60),
        ", ".join(f"`a[{i}]`" for i in range(300)),
        "| a | b |\n|---|---|\n| `x` | `<div>` |",
        "| a | b |\n|---|---|\n| `x[7] \\| <div>` | y |",
        "```py title=a|b\nx[7] <div>\n```",
        "```py title=a|b\n\nx[7] <div>\n\ny[8]\n```\n\nb",
        "Use `a[7]\nb[8] <div>` and.",
        "A:\n\n    x[7]\n    <div>\n\n\ty[8]\n\nb",
        "-     x[7]\n\n      y[8]\n- b",
        "> A `x[7]` and\n> `<div>`\n>\n>     y[8]\n>\n> ```\n> z[9]\n> ```",
        "1. A:\n\n   ```py\n   x[7]\n\n   <div>\n   ```\n\n2. B `y[8]`",
        "1. A `y[8]`\n   - c\n     ```\n     - z[9]\n     ```\n   - d",
        "A\n  ```\n  x[7]\n\nb[8]\n  ```\nc",
        "# The `x[7]` and `<div>`\n\n`y[8]`\n====",
        f"[the `x[7]`]({GOOD}) and *`y[8]`*",
        "A \\` `x[7]` and ``a`[8]``",
        "    x[7]\n\nA",
    ],
)
def test_code_that_used_to_be_rewritten_is_untouched(text: str) -> None:
    assert scan_text(text) == text
    assert scan_text(f"A\n\n{text}") == f"A\n\n{text}"


CODES = st.lists(ACTIVE.filter(lambda code: code.strip()).map(lambda code: f"`{code}`"), min_size=1, max_size=4)
MANY = st.builds(lambda codes, count: list(islice(cycle(codes), count)), CODES, st.integers(1, 200))
BESIDE = st.sampled_from(["", " a", " is so [1]", f" {GOOD}", ", and"])
FULL = st.one_of(
    st.builds(lambda codes, word: f"{word} and ".join(codes), MANY, BESIDE),
    st.builds(lambda codes, word: f"{word} and\n".join(codes), MANY, BESIDE),
    st.builds(lambda codes, word: "\n".join(f"- a {code}{word}" for code in codes), MANY, BESIDE),
    st.builds(lambda codes, word: "\n".join(f"{n}. **A** {code}{word}" for n, code in enumerate(codes)), MANY, BESIDE),
    st.builds(lambda codes: "- a\n" + "\n".join(f"    - {code}: {code}" for code in codes), MANY),
    st.builds(lambda codes, word: "\n".join(f"> {code}{word}" for code in codes), MANY, BESIDE),
    st.builds(lambda codes: "| a | b |\n|---|---|\n" + "\n".join(f"| {code} | {code} |" for code in codes), MANY),
    st.builds(lambda codes: "A\n\n" + "\n".join(f"    {code}" for code in codes), MANY),
    st.builds(lambda codes: "> ```a|b\n" + "\n".join(f"> {code}" for code in codes) + "\n> ```", MANY),
    st.builds(lambda codes: "1. a\n   ~~~\n" + "\n".join(f"   {code}" for code in codes) + "\n   ~~~\n2. b", MANY),
    st.builds(lambda codes: "```a|b\n" + "\n\n".join(codes) + "\n```", MANY),
    st.builds(
        lambda codes: " ".join(code.replace(" ", "\n") for code in codes) + " b",
        CODES.filter(lambda codes: not any("  " in code or " ~~~" in code for code in codes)),
    ),
)


@settings(calmly, max_examples=scale_examples(15))
@given(st.lists(FULL, min_size=1, max_size=3).map("\n\n".join), st.integers(1, 50))
def test_hundreds_of_codes_pass_byte_for_byte_in_any_pieces(text: str, size: int) -> None:
    text = f"Code:\n\n{text}"
    scan = scanner()
    pieces = [piece for start in range(0, len(text), size) for piece in scan.feed(text[start : start + size])]
    assert "".join(piece.text for piece in [*pieces, *scan.finish()]) == text


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 400, 800])
def test_a_long_list_is_parsed_in_linear_time(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parse = [0], MarkdownIt.parse

    def count_parsed(self: MarkdownIt, source: str, *arguments: Any) -> Any:
        parsed[0] += len(source)
        return parse(self, source, *arguments)

    monkeypatch.setattr(MarkdownIt, "parse", count_parsed)
    text = format_list(count)
    assert scan_text(text) == text
    assert parsed[0] < 22 * len(text)


def test_a_long_list_is_shown_while_it_is_written() -> None:
    text, scan, length = format_list(200), scanner(), 0
    for number, character in enumerate(text, 1):
        length += sum(len(piece.text) for piece in scan.feed(character))
        assert number - length <= number / 8 + 120


def test_text_before_code_and_lines_of_a_fence_are_shown_at_once() -> None:
    scan = scanner()
    outputs = ["".join(piece.text for piece in scan.feed(part)) for part in ["So a", " `b` c", "\n\n", "d"]]
    assert outputs == ["So a", "", "", " `b` c\n\nd"]
    outputs = [
        "".join(piece.text for piece in scan.feed(part)) for part in ["\n```py", "\n", "x[9]", " <b>\n``", "`\n", "y"]
    ]
    assert outputs == ["", "\n```py", "\nx[9]", " <b>", "\n```", "\ny"]


@pytest.mark.slow
def test_a_block_that_is_too_long_to_be_held_has_no_code() -> None:
    text = f"`{'a ' * (MAX_HELD_LENGTH // 2)}` `x[9]`"
    assert scan_text(text) == text.replace("[9]", " ")
    assert scan_text(f"`x[9]`\n\n{text}").startswith("`x[9]`\n\n`a a")


@pytest.mark.parametrize("removed", ["[9]", f"![a]({EVIL})", f"[]({EVIL})"])
def test_text_removed_before_marks_does_not_make_them_a_fence(removed: str) -> None:
    assert scan_text(f"{removed}```py\n[1] <b>") == "…```py\n[1] < b>"
    assert scan_text(f"- {removed}~~~\n[1] <b>") == "- …~~~\n[1] < b>"


def test_code_is_what_all_readers_find_and_where_they_find_it() -> None:
    text = "> # `a` #\n> \t``b\n>   `c``\n\n| \\`d | `e\\|f` |\n|-|-|\n| `i` | `g|h` |\n\n- ```\n  j\n-\t`k` `l"
    reading = read_markdown(text, "\nx")
    code = sorted(reading.code, key=lambda code: code.start)
    assert [text[code.start : code.end] for code in code] == [code.text for code in code]
    assert [code.text for code in code] == ["`a`", "``b\n>   `c``", "`e\\|f`", "`i`", "- ```\n  j", "`k`"]
    assert find_code("`g|h` <`") == [Code(0, "`g|h`", is_block=False)]


@pytest.mark.parametrize(
    ("text", "next_line", "open_fence"),
    [
        ("a", "\nx", ""),
        ("  ~~~~ py\na\n~~~", "\nx", "~~~~"),
        ("- ```", "\nx", ""),
        ("- ```\n  - a", "  - x", None),
        ("- a", "- x", ""),
        ("a", "2. x", None),
        ("```a|b\n-|-", "\nx", None),
    ],
)
def test_readers_know_which_fence_is_open(text: str, next_line: str, open_fence: str | None) -> None:
    assert read_markdown(text, next_line).open_fence == open_fence
