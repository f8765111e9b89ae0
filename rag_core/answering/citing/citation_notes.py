"""The list that ends an answer in footnote and endnote style."""

from collections.abc import Collection, Sequence

from rag_core.answering.citing.marker_scan import MarkerScanner
from rag_core.answering.citing.markers import neutralised
from rag_core.types import Citation, CitationStyle


def noted(citations: Sequence[Citation], style: CitationStyle, hosts: Collection[str]) -> str:
    """Each number that is cited once, ascending, with what its first citation tells; empty for the inline style."""
    first = {citation.n: citation for citation in reversed(citations)}
    cited = [first[n] for n in sorted(first)]
    if not cited or style == "inline":
        return ""
    if style == "footnote":
        return "\n\n" + "\n".join(f"[^{each.n}]: {plain(_placed(each), hosts)}" for each in cited)
    return "\n\nSources\n" + "\n".join(f"{each.n}. {plain(_titled(each), hosts)}" for each in cited)


def _placed(citation: Citation) -> str:
    title = citation.title or citation.uri
    return title if citation.page is None else f"{title}, page {citation.page}"


def _titled(citation: Citation) -> str:
    return f"{citation.title} - {citation.uri}" if citation.title else citation.uri


def plain(title: str, hosts: Collection[str]) -> str:
    """One line; a document writes its title itself, so it is filtered like an answer."""
    scanner = MarkerScanner({}, hosts)
    line = neutralised(" ".join(title.split()))
    return "".join(piece.text for piece in [*scanner.feed(f"- {line}"), *scanner.finish()]).removeprefix("-").lstrip()
