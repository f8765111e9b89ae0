"""A reply as a page shows it: the answer with its markers, and the words that each marker cites."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from rag_core.notebook.view import Span, View, mark_spans
from rag_core.types import Citation, Passage, Reply

CONTEXT_CHARS = 160
"""The characters of a passage that are shown before and after its cited words."""
ELLIPSIS = "…"


def show_reply(reply: Reply) -> View:
    """Shows the question, the answer, its confidence and verdict, and each cited passage with its cited words marked.

    Passages that no sentence cites are only counted.
    """
    cited = list(_find_citations(reply))
    uncited = len(reply.passages) - len(cited)
    return View(html=_render_html(reply, cited, uncited), text=_render_text(reply, cited, uncited))


def _find_citations(reply: Reply) -> Iterator[tuple[Passage, list[Citation]]]:
    for passage in reply.passages:
        if citations := [citation for citation in reply.answer.citations if citation.n == passage.n]:
            yield passage, citations


def _render_html(reply: Reply, cited: Sequence[tuple[Passage, Sequence[Citation]]], uncited: int) -> Markup:
    return Markup(
        '<div style="max-width:52em;line-height:1.5"><p><b>{question}</b>{searched}</p>'
        '<blockquote style="white-space:pre-line">{answer}</blockquote><p><small>{facts}</small></p>'
        "<ol>{passages}</ol>{uncited}</div>"
    ).format(
        question=reply.query.text,
        searched=Markup("<br><small>searched as: {}</small>").format(reply.standalone) if _is_rewritten(reply) else "",
        answer=_raise_markers(reply.answer.text, reply.answer.citations),
        facts=_describe_answer(reply),
        passages=Markup("").join(_render_passage(passage, citations) for passage, citations in cited),
        uncited=Markup("<p><small>{}</small></p>").format(_count_uncited(uncited)) if uncited else "",
    )


def _render_passage(passage: Passage, citations: Sequence[Citation]) -> Markup:
    text, spans = _excerpt(passage, citations)
    return Markup(
        '<li value="{n}"><b>{title}</b>{section} <small>{uri}</small>'
        '<div style="white-space:pre-line">{text}</div></li>'
    ).format(
        n=passage.n,
        title=passage.hit.origin.title,
        section=_name_section(citations[0]),
        uri=passage.hit.origin.uri,
        text=mark_spans(text, spans),
    )


def _name_section(citation: Citation) -> str:
    """The headings of the cited words without the document's title."""
    headings = citation.section.removeprefix(citation.title).removeprefix(" > ")
    return f" · {headings}" if headings else ""


def _render_text(reply: Reply, cited: Sequence[tuple[Passage, Sequence[Citation]]], uncited: int) -> str:
    searched = [f"searched as: {reply.standalone}"] if _is_rewritten(reply) else []
    sources = [
        f"[{passage.n}] {passage.hit.origin.title}: {' … '.join(f'“{citation.quote}”' for citation in citations)}"
        for passage, citations in cited
    ]
    lines = [f"Q: {reply.query.text}", *searched, f"A: {reply.answer.text}", _describe_answer(reply), *sources]
    return "\n".join([*lines, *([_count_uncited(uncited)] if uncited else [])])


def _is_rewritten(reply: Reply) -> bool:
    return reply.standalone not in ("", reply.query.text)


def _raise_markers(text: str, citations: Sequence[Citation]) -> Markup:
    """The escaped text with each marker as a superscript, whose title is the cited words."""
    quotes: Mapping[Span, str] = {span: citation.quote for citation in citations for span in citation.spans}
    parts, position = [Markup("")], 0
    for start, end in sorted(quotes):
        marker = Markup('<sup title="{}">{}</sup>').format(quotes[start, end], text[start:end])
        parts += [Markup.escape(text[position:start]), marker]
        position = end
    return Markup("").join([*parts, Markup.escape(text[position:])])


def _describe_answer(reply: Reply) -> str:
    answer = reply.answer
    confidence = "" if answer.confidence is None else f" · confidence {answer.confidence:.2f}"
    method = f" by {answer.verdict.method}" if answer.verdict.method else ""
    return f"{answer.finish}{confidence} · {answer.verdict.grade}{method}"


def _count_uncited(count: int) -> str:
    return f"{count} more {'passage was' if count == 1 else 'passages were'} read and not cited"


def _excerpt(passage: Passage, citations: Sequence[Citation]) -> tuple[str, list[Span]]:
    """The cited part of the passage with some context, and the cited spans in it."""
    spans = [
        (max(citation.start - passage.start, 0), min(citation.end - passage.start, len(passage.text)))
        for citation in citations
    ]
    start = max(min(begin for begin, _ in spans) - CONTEXT_CHARS, 0)
    end = min(max(stop for _, stop in spans) + CONTEXT_CHARS, len(passage.text))
    before, after = ELLIPSIS if start else "", ELLIPSIS if end < len(passage.text) else ""
    moved = [(begin - start + len(before), stop - start + len(before)) for begin, stop in spans]
    return f"{before}{passage.text[start:end]}{after}", moved
