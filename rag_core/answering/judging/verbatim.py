"""Answers that only quote are checked, not judged."""

import re
from collections.abc import Sequence
from unicodedata import category

from rag_core.answering.judging.statements import Statement, bare, statements
from rag_core.answering.judging.verdicts import claim, verdict
from rag_core.types import Answer, Citation, Claim, Passage, Verdict

METHOD = "verbatim"

_ROUND = {"Ps": "(", "Pe": ")"}
_WORD = re.compile(r"\w")
_LINK = re.compile(r"\[([^\[\]\n]*)\]\([^()\s]*\)")


class VerbatimJudge:
    """A claim is supported if all its words are in its quotes, and these stand in the passages where the citations say.
    White space and list marks do not count, nor where links lead, nor what became of brackets and backticks: a marker
    of the document's own has round ones, and a backtick that closes nothing is an apostrophe.
    """

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        return verdict([_checked(statement) for statement in statements(answer, passages)], METHOD)


def _checked(statement: Statement) -> Claim:
    quotes = {_plain(bare(each.quote)) for each in statement.citations if _stands(each, statement.passages)}
    rest = _plain(statement.text)
    for quote in sorted(quotes, key=len, reverse=True):
        rest = "" if rest in quote else rest.replace(quote, "", 1)
    if _WORD.search(rest):
        return claim(statement, "unsupported", 0.0, "no passage that it cites holds it word for word")
    return claim(statement, "supported", 1.0)


def _stands(citation: Citation, passages: Sequence[Passage]) -> bool:
    cited = [passage for passage in passages if passage.n == citation.n and passage.start <= citation.start]
    return any(
        passage.text[citation.start - passage.start : citation.end - passage.start] == citation.quote
        for passage in cited
    )


def _plain(text: str) -> str:
    """Links are their texts, all brackets round, and backticks apostrophes."""
    told = _LINK.sub(r"\1", text).replace("`", "'")
    return "".join(_ROUND.get(category(character), character) for character in told)
