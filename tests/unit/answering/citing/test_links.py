"""The filter of an answer's Markdown: what a generator that obeys its documents cannot make it show."""

import re
from collections.abc import Iterator

import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rag_core.answering.citing.links import is_allowed_link_target, is_allowed_url, url_host
from rag_core.answering.citing.marker_scan import MarkerScanner
from rag_core.answering.citing.marker_tokens import MAX_TOKEN_LENGTH

HOSTS = frozenset({"good.example"})
GOOD, EVIL = "https://good.example/a?b=c", "https://evil.example/?q=secret"
calmly = settings(deadline=None, max_examples=scale_examples(200), suppress_health_check=[HealthCheck.too_slow])


def scan_text(text: str) -> str:
    scanner = MarkerScanner(dict.fromkeys((1, 2, 3), ""), HOSTS)
    return "".join(piece.text for piece in [*scanner.feed(text), *scanner.finish()])


@pytest.mark.parametrize(
    "text",
    ["", "Plain.", "a < b and c > d", f"See {GOOD}.", f"[the page]({GOOD}), of course", "x! y", "a * b_c ~ d", "# H"],
)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert scan_text(text) == text


@pytest.mark.parametrize(
    "image",
    [
        f"![]({EVIL})",
        f"![a [b] c]({EVIL} 'title')",
        f"![a]({GOOD})",
        f"![a](<{EVIL}>)",
        "![a](//evil.example/(x))",
        f'<img src="{EVIL}">',
        f"<IMG\nSRC={EVIL}\n/>",
    ],
)
def test_images_are_left_out_with_the_white_space_before_them(image: str) -> None:
    assert scan_text(f"A {image}, b") == "A, b"


def test_an_image_that_is_not_inline_is_not_an_image() -> None:
    assert scan_text("![a][r] ![r]") == "! [a][r] ! [r]"
    assert scan_text(f"{EVIL}![r]") == "(link removed)[r]"
    assert scan_text(f"!<a href={GOOD}>b</a>") == f"! [b]({GOOD})"
    assert scan_text(f"![a\nb]({EVIL})") == "! [a\nb] ((link removed))"


def test_a_link_keeps_its_text_and_loses_its_target() -> None:
    assert scan_text(f"See **[the page]({EVIL})**, or ([it]({EVIL}))") == "See **the page**, or (it)"
    assert scan_text(f"[a [b] c](<{EVIL}> 'title').") == "a [b] c."
    assert scan_text("[a](/b) [c](javascript:alert(1)) [d](data:text/html,x)") == "a c d"


def test_the_text_of_a_link_is_filtered_too() -> None:
    assert scan_text(f"[![a]({EVIL})]({EVIL}) x") == "x"
    assert scan_text(f"[{EVIL}]({GOOD})") == f"[(link removed)]({GOOD})"
    assert scan_text(f"[{EVIL}]({EVIL})") == "(link removed)"


def test_a_link_to_an_allowed_host_loses_its_title_only() -> None:
    assert scan_text(f'[a]({GOOD} "b")') == f"[a]({GOOD})"
    assert scan_text(f"[a](<{GOOD}>)") == f"[a]({GOOD})"


def test_a_link_whose_text_is_a_number_is_not_a_marker() -> None:
    assert scan_text(f"A [1]({EVIL}).") == "A (1)."
    assert scan_text(f"A [1]({GOOD}).") == f"A [(1)]({GOOD})."
    assert scan_text("A [1](p. 3) or [1](p.3).") == "A [1] (p. 3) or [1] (p.3)."


def test_an_address_that_is_not_allowed_is_replaced() -> None:
    assert scan_text(f"({EVIL}), <{EVIL}> www.evil.example.") == "((link removed)), (link removed) (link removed)."
    assert scan_text("HTTPS://EVIL.example/a! ftp://evil.example") == "(link removed)! (link removed)"
    assert scan_text(f"xhttps://evil.example <{GOOD}>") == f"x(link removed) {GOOD}"


def test_a_definition_is_kept_only_if_its_host_is_allowed() -> None:
    assert scan_text(f"[r]: {GOOD}\n[s]: {EVIL}\n[t]: //evil.example\n[1]: /x") == (
        f"[r]: {GOOD}\n[s] : (link removed)\n[t] : //evil.example\n[1] : /x"
    )


SMUGGLED = "![i](//evil.example/a)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"[x](<https://good.example/){SMUGGLED}>)", "x"),
        (f"<https://good.example/{SMUGGLED}>", "(link removed)"),
        (f'<a href="https://good.example/){SMUGGLED}">x</a>', "x"),
        (f"Foo\n[lab]: https://good.example/{SMUGGLED}", "Foo\n[lab] : https://good.example/! i"),
        ("<https://good.example/[i](//evil.example/a)>", "(link removed)"),
        ("[x](<https://good.example/)//evil.example>)", "x"),
        ("<https://good.example/)www.evil.example/>", "(link removed)"),
        ("<https://good.example/|www.evil.example/>", "(link removed)"),
    ],
)
def test_a_target_that_is_kept_has_nothing_that_a_reader_would_parse_again(text: str, expected: str) -> None:
    assert scan_text(text) == expected
    assert not list(live(scan_text(text)))


def test_the_parentheses_of_a_target_are_paired() -> None:
    assert is_allowed_link_target("https://good.example/a_(b)", HOSTS)
    for target in ("https://good.example/a)", "https://good.example/a(", "https://good.example/)(", "good.example/a"):
        assert not is_allowed_link_target(target, HOSTS)


def test_a_link_can_lead_to_the_source_of_a_passage_after_its_marker() -> None:
    scanner = MarkerScanner({1: "one.example", 2: ""}, HOSTS)
    text = "https://one.example/a [9][2] [b](https://one.example) [1] https://one.example/a [b](https://one.example)"
    output = "".join(piece.text for piece in [*scanner.feed(text), *scanner.finish()])
    assert output == "(link removed) [2] b [1] https://one.example/a [b](https://one.example)"
    assert scanner.hosts == HOSTS | {"one.example"}


def test_control_sequences_of_terminals_are_removed_first() -> None:
    assert scan_text("A\x1b]0;b\x07 \x9b2Jc\x00\r\n\td\x7f") == "A]0;b 2Jc\n\td"
    assert scan_text("htt\x00ps://evil.example") == "(link removed)"
    assert scan_text("```\n\x1b[2J\n```") == "```\n[2J\n```"


def test_html_is_taken_apart() -> None:
    assert scan_text(f"<a href='{EVIL}' onclick=x>b</a> <A HREF={GOOD}>c</A>") == f"b [c]({GOOD})"
    assert scan_text("<div style=x>y</div> <script>z</script> <!-- c --> <?p?>") == (
        "< div style=x>y< /div> < script>z< /script> < !-- c --> < ?p?>"
    )
    assert scan_text("H<sub>2</sub>O<br>x\n<br>") == "H<sub>2</sub>O<br>x\n< br>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<[9]img src={EVIL}>", "< img src=(link removed)>"),
        (f"<![a]({EVIL})img src=x>", "< img src=x>"),
        ("htt[9]ps://evil.example", "htt ps://evil.example"),
        ("www[9].evil.example", "www .evil.example"),
        (f"[a][x[9]]({EVIL})", "[a] x"),
        ("[a][9](//evil.example)", "[a] (9)"),
        ("[[9]1]", "[ 1]"),
        ("[1, [9]2]", "[1, 2)"),
        (f"!![a]({EVIL})[x]({GOOD})", f"! [x]({GOOD})"),
        (f"[!]({EVIL})[x]({GOOD})", f"! [x]({GOOD})"),
        ("[1](//evil.example)[9](x)", "(1) (x)"),
    ],
)
def test_leaving_something_out_joins_nothing(text: str, expected: str) -> None:
    assert scan_text(text) == expected


def test_more_than_the_limit_is_not_held_back() -> None:
    scanner = MarkerScanner({1: ""}, HOSTS)
    assert not scanner.feed("[" + "a" * (MAX_TOKEN_LENGTH - 2))
    assert "".join(piece.text for piece in scanner.feed("aa")) == "[" + "a" * MAX_TOKEN_LENGTH


@pytest.mark.parametrize(
    "url",
    [
        "https://good.example@evil.example/",
        "https://good.example:x@evil.example/",
        "https://evil.example\\@good.example/",
        "https://good.example\\.evil.example/",
        "https://good.example.evil.example/",
        "https://evil.example/good.example",
        "https://good.example.",
        "https://gооd.example/",  # noqa: RUF001
        "https://good。example/",
        "https:good.example",
        "//good.example",
        "javascript://good.example/%0aalert(1)",
        "data:text/html,good.example",
        "ftp://good.example/",
        "https://good.example/a`b",
        "https://good.example/?to=https://evil.example",
        "https://good.example/?to=www.evil.example",
        "https://good.example/_www.evil.example",
        "https://good.example/![a",
        "https://good.example/]",
        "https://good.example/a|b",
        "https://sub.good.example/",
        "https://",
    ],
)
def test_a_host_that_only_looks_like_an_allowed_one_is_not_allowed(url: str) -> None:
    assert not is_allowed_url(url, HOSTS)


def test_a_host_is_compared_without_case_and_port() -> None:
    assert url_host("HTTPS://Good.Example:8443?x") == "good.example"
    assert is_allowed_url("http://good.example", HOSTS)


PARTS = [
    *("![", "[", "]", "](", ")", "(", "<", ">", "img", "<img src=", "<a href=", "</a>", "https", "://", "www.", "]: "),
    *(
        "[9]",
        "[1]",
        "`",
        "``",
        "```",
        "```py\n",
        "\n```\n",
        "~~~",
        "\n",
        "\n\n",
        " ",
        "  ",
        "    ",
        "\t",
        "|",
        "\\",
        "!",
    ),
    *("a", "- ", "1. ", "> ", "a | b", "\n|---|---|\n", "[r]: //e\n", "![r]", "<div>\n", "'", '"', "evil.example"),
    *(EVIL, GOOD, f"![x]({EVIL})", f"[x]({EVIL})", "`<img src=x>`", f"`{EVIL}`", "`a", "b`", "\\|", "[1]"),
    *(
        "\n- ",
        "\n  - ",
        "\n2) ",
        "\n    ",
        "\n-     ",
        "\n> ",
        "\n---\n",
        "\n  ```\n",
        "```a|b\n",
        "[r]: https://good.example\n",
    ),
    *("https://good.example/", "<https://good.example/", "](<", ">)", "![i](//e)", '<a href="https://good.example/'),
]
attacks = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)
READERS = [
    MarkdownIt("commonmark", {"html": True}),
    MarkdownIt("commonmark", {"html": True}).enable("table"),
    MarkdownIt("gfm-like", {"html": True, "linkify": False}),
]
for reader in READERS:
    reader.validateLink = lambda _url: True  # type: ignore[method-assign]


def live(text: str) -> Iterator[str]:
    """What readers of Markdown with HTML would load, follow or run; known hosts and `<br>` apart."""
    for reader in READERS:
        for block in reader.parse(text):
            if block.type == "html_block":
                yield block.content
            for token in block.children or []:
                yield from live_in(token)


def live_in(token: Token) -> Iterator[str]:
    target = str(token.attrs.get("href", ""))
    harmless = re.fullmatch(r"</?(?:br|su[bp])\s?/?>", token.content)
    if token.type == "image" or (token.type == "html_inline" and not harmless):
        yield token.content
    if token.type == "link_open" and not re.match(r"https://good\.example(?:[/?#]|\Z)", target):
        yield target
    address = r"(?:https?://|(?<![^\W_])www\.)(?=\w)(?!good\.example)"
    if token.type == "text" and re.search(address, _remove_good_links(token.content)):
        yield token.content


def _remove_good_links(text: str) -> str:
    """Removes each single address of the known host."""
    return re.sub(r"https://good\.example/(?:(?!://)[^\s<>`|)\[\]])*+", "", text)


@calmly
@given(attacks)
@example(f"```a | ![x]({EVIL})\n|---|---|\n")
@example(f"|a|b|\n|---|---|\n`a | b` x `![i]({EVIL})`")
@example("`a\n<img src=x>\nb`")
@example("  ```\na\n\n```\n<img src=x>")
@example(f"[9]~~~\n\n```\n{EVIL}\n```\n<img src=x>")
@example("```a|b\n-|-\n\n```\n<img src=x>\n```\n<img src=x>\n```")
@example(f"- `a`\n- b\n\n[9]\n\n  {EVIL} `<img src=x>`")
@example(f"[r]: https://good.example\n'a ` b'\n![x]({EVIL}) `x`")
def test_no_reader_of_markdown_finds_anything_live_in_what_is_shown(text: str) -> None:
    assert not list(live(scan_text(text)))


@pytest.mark.parametrize("text", [f"![a]({EVIL})", f"[a]({EVIL})", EVIL, "<img src=x>", "<div>\n`<img src=x>`\n</div>"])
def test_the_reader_does_find_what_is_live(text: str) -> None:
    assert list(live(text))
