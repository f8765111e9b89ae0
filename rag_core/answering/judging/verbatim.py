"""The check of answers that only quote."""

import re
from collections.abc import Iterator, Sequence
from unicodedata import category

from rag_core.answering.citing.table_rows import name_columns
from rag_core.answering.judging.statements import find_statements, strip_layout
from rag_core.answering.judging.verdicts import claim_from_statement, verdict_from_claims
from rag_core.types import Answer, Citation, Passage, Verdict

METHOD = "verbatim"

_PARENTHESES = {"Ps": "(", "Pe": ")"}
_WORD = re.compile(r"\w")
_LINK = re.compile(r"\[([^\[\]\n]*)\]\([^()\s]*\)")


class VerbatimJudge:
    """A Judge that supports a claim if all its words are in its quotes, and these are in the passages where cited.

    A quoted row of a table can have the names of its columns. The judge ignores white space, list marks, the targets of
    links, and the kind of brackets and backticks: in an answer, a marker of the document has parentheses, and a
    backtick that closes nothing is an apostrophe.
    """

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        claims = []
        for statement in find_statements(answer, passages):
            valid = [citation for citation in statement.citations if _is_verbatim(citation, statement.passages)]
            quoted = [strip_layout(citation.quote) for citation in valid]
            quoted += [row for citation in valid for row in _find_rows(citation, statement.passages)]
            quotes = set(map(_normalize_marks, quoted))
            unquoted = _normalize_marks(statement.text)
            for quote in sorted(quotes, key=len, reverse=True):
                unquoted = "" if unquoted in quote else unquoted.replace(quote, "", 1)
            if _WORD.search(unquoted):
                reason = "no cited passage contains it word for word"
                claims.append(claim_from_statement(statement, "unsupported", 0.0, reason))
            else:
                claims.append(claim_from_statement(statement, "supported", 1.0))
        return verdict_from_claims(claims, METHOD)


def _is_verbatim(citation: Citation, passages: Sequence[Passage]) -> bool:
    """True if the cited passage has the quote at the citation's offsets."""
    return any(
        passage.text[citation.start - passage.start : citation.end - passage.start] == citation.quote
        for passage in passages
        if passage.n == citation.n and passage.start <= citation.start
    )


def _find_rows(citation: Citation, passages: Sequence[Passage]) -> Iterator[str]:
    """Yields the cited row with the names of its columns, if the quote is a row of a table."""
    for passage in passages:
        if row := name_columns(passage).get((citation.start - passage.start, citation.end - passage.start)):
            yield row


def _normalize_marks(text: str) -> str:
    """Replaces links by their texts, all brackets by parentheses, and backticks by apostrophes."""
    text = _LINK.sub(r"\1", text).replace("`", "'")
    return "".join(_PARENTHESES.get(category(character), character) for character in text)
