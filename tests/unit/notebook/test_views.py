"""The HTML and the text of replies, chunks and verdicts in notebooks."""

from dataclasses import replace
from uuid import UUID

from rag_core.notebook.chunk_view import COLOURS, SHARED_COLOUR, show_chunks
from rag_core.notebook.reply_view import CONTEXT_CHARS, show_reply
from rag_core.notebook.verdict_view import show_verdict
from rag_core.notebook.view import mark_spans
from rag_core.types import Answer, Chunk, Citation, Claim, Hit, Origin, Passage, Query, Reply, Verdict

ID = UUID(int=1)
SOURCE = "Pay <b>in cash</b>. Keys are rotated every 90 days. Ask the desk."
QUOTE = "Keys are rotated every 90 days."
ANSWER = f"{QUOTE} [2]"


def make_chunk(ordinal: int, start: int, end: int, text: str = SOURCE) -> Chunk:
    return Chunk(id=ID, document_id=ID, ordinal=ordinal, text=text[start:end], start=start, end=end)


def make_passage(n: int, text: str, start: int, title: str) -> Passage:
    chunk = make_chunk(0, 0, len(text), text)
    hit = Hit(chunk=chunk, origin=Origin(uri=f"file:///{n}.md", title=title), score=1.0)
    return Passage(n=n, hit=hit, text=text, start=start, chunks=(chunk,))


def make_citation(start: int, section: str = "") -> Citation:
    return Citation(
        n=2,
        chunk_id=ID,
        document_id=ID,
        collection="default",
        title="Keys & <locks>",
        uri="file:///2.md",
        quote=QUOTE,
        start=start,
        end=start + len(QUOTE),
        spans=((32, 35),),
        claim=(0, 31),
        score=1.0,
        section=section,
    )


def make_reply(text: str = SOURCE, start: int = 1_000, section: str = "") -> Reply:
    quote_start = start + text.index(QUOTE)
    return Reply(
        query=Query(text="How <often>?"),
        standalone="How <often>? (Keys)",
        answer=Answer(
            text=ANSWER,
            citations=(make_citation(quote_start, section),),
            confidence=0.875,
            verdict=Verdict(grade="supported", method="verbatim"),
        ),
        passages=(make_passage(1, "Other words.", 0, "Other"), make_passage(2, text, start, "Keys & <locks>")),
    )


def test_a_reply_marks_the_cited_words_in_their_passage() -> None:
    html = show_reply(make_reply())._repr_html_()
    assert f">{QUOTE}</mark> Ask the desk." in html
    assert f'<sup title="{QUOTE}">[2]</sup>' in html
    assert '<li value="2"><b>Keys &amp; &lt;locks&gt;</b>' in html
    assert '<li value="1">' not in html
    assert "1 more passage was read and not cited" in html


def test_a_reply_runs_no_html_of_the_question_or_of_a_document() -> None:
    html = show_reply(make_reply())._repr_html_()
    assert "How &lt;often&gt;?" in html
    assert "Pay &lt;b&gt;in cash&lt;/b&gt;." in html
    assert not {"<often>", "<b>in", "<locks>"} & set(html.split())


def test_a_long_passage_is_cut_around_its_cited_words() -> None:
    text = f"{'before ' * 100}{QUOTE}{' after' * 100}"
    html = show_reply(make_reply(text))._repr_html_()
    passage = html.partition("pre-line")[2].partition('white-space:pre-line">')[2].partition("</div>")[0]
    plain = passage.replace("</mark>", "").partition("<mark")[0], passage.partition("</mark>")[2]
    assert plain[0].startswith("…")
    assert plain[1].endswith("…")
    assert [len(part) for part in plain] == [CONTEXT_CHARS + 1, CONTEXT_CHARS + 1]
    assert f">{QUOTE}</mark>" in passage


def test_the_headings_of_a_citation_do_not_repeat_its_title() -> None:
    assert " · Interval <small>" in show_reply(make_reply(section="Keys & <locks> > Interval"))._repr_html_()
    assert "</b> <small>" in show_reply(make_reply(section="Keys & <locks>"))._repr_html_()


def test_the_text_of_a_reply_has_the_same_facts() -> None:
    assert repr(show_reply(make_reply())).splitlines() == [
        "Q: How <often>?",
        "searched as: How <often>? (Keys)",
        f"A: {ANSWER}",
        "stop · confidence 0.88 · supported by verbatim",
        f"[2] Keys & <locks>: “{QUOTE}”",
        "1 more passage was read and not cited",
    ]


def test_a_reply_without_citations_has_no_source() -> None:
    reply = replace(make_reply(), answer=Answer(text="The sources do not answer this.", finish="abstained"))
    assert "<ol></ol>" in show_reply(reply)._repr_html_()
    assert "abstained · unchecked" in repr(show_reply(reply))


def test_spans_that_overlap_are_marked_once() -> None:
    assert mark_spans("abcdef", [(3, 5), (1, 4)]).count("<mark") == 2
    assert mark_spans("abcdef", [(1, 4), (1, 4)]).count("<mark") == 1
    assert mark_spans("a<b", []) == "a&lt;b"


def test_chunks_keep_the_whole_text_and_mark_what_they_share() -> None:
    text = "One. Two. Three. Four."
    chunks = [make_chunk(0, 0, 9, text), make_chunk(1, 5, 16, text)]
    html = show_chunks(text, chunks)._repr_html_()
    assert f'background:{COLOURS[0]};color:#222">One. <' in html
    assert f'background:{SHARED_COLOUR};color:#222">Two.<' in html
    assert f'background:{COLOURS[1]};color:#222"> Three.<' in html
    assert html.endswith("> Four.</div>")
    assert html.index("chunk 0, characters 0 to 9") < html.index("chunk 1, characters 5 to 16")


def test_the_text_of_chunks_names_each() -> None:
    assert repr(show_chunks(SOURCE, [make_chunk(3, 0, 3)])) == "chunk 3, characters 0 to 3\nPay"


def test_a_verdict_shows_each_sentence_with_its_grade_and_reason() -> None:
    claims = (
        Claim(start=0, end=4, grade="supported", score=1.0),
        Claim(start=5, end=11, grade="unsupported", score=0.25, reason="<45> is not in the passages"),
    )
    view = show_verdict("Yes. 45 km.", Verdict(grade="partial", claims=claims, method="lexical proxy"))
    assert repr(view).splitlines() == [
        "partial, judged by lexical proxy",
        "✓ supported  1.00  Yes.",
        "✗ unsupported  0.25  45 km.  <45> is not in the passages",
    ]
    assert "<td>&lt;45&gt; is not in the passages</td>" in view._repr_html_()
