"""The list of sources that ends an answer in footnote and endnote style."""

from collections.abc import Collection, Sequence

from rag_core.answering.citing.marker_tokens import remove_controls
from rag_core.answering.citing.markers import neutralize_markers
from rag_core.answering.citing.token_filter import TokenFilter
from rag_core.types import Citation, CitationStyle


def source_list(citations: Sequence[Citation], style: CitationStyle, hosts: Collection[str]) -> str:
    """Each cited number once, ascending, with the source of its first citation.

    Empty in the inline style, and if nothing is cited.
    """
    if not citations or style == "inline":
        return ""
    first = {citation.n: citation for citation in reversed(citations)}
    lines = []
    for n, citation in sorted(first.items()):
        if style == "footnote":
            page = "" if citation.page is None else f", page {citation.page}"
            lines.append(f"[^{n}]: {sanitize_title((citation.title or citation.uri) + page, hosts)}")
        else:
            source = f"{citation.title} - {citation.uri}" if citation.title else citation.uri
            lines.append(f"{n}. {sanitize_title(source, hosts)}")
    return ("\n\n" if style == "footnote" else "\n\nSources\n") + "\n".join(lines)


def sanitize_title(title: str, hosts: Collection[str]) -> str:
    """Puts a title on one line and filters it like an answer, because documents choose their titles themselves.

    Nothing in it counts as code: what is code depends on the text before the title.
    """
    title_filter = TokenFilter({}, hosts)
    line = neutralize_markers(remove_controls(" ".join(title.split())))
    # A list item, so that the title is not at the beginning of a line.
    title_filter.finish_block(f"- {line}", is_last=True)
    return "".join(piece.text for piece in title_filter.output.take_pieces()).removeprefix("-").lstrip()
