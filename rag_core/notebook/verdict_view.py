"""The grades of an answer's sentences."""

from markupsafe import Markup

from rag_core.notebook.view import View
from rag_core.types import Grade, Verdict

SIGNS: dict[Grade, str] = {"supported": "✓", "partial": "~", "unsupported": "✗", "unchecked": "?"}


def show_verdict(text: str, verdict: Verdict) -> View:
    """Shows each sentence of the text with its grade, its score and the reason of the judge."""
    rows = [
        (f"{SIGNS[claim.grade]} {claim.grade}", f"{claim.score:.2f}", text[claim.start : claim.end], claim.reason)
        for claim in verdict.claims
    ]
    cells = Markup("").join(
        Markup('<tr style="text-align:left"><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>').format(*row)
        for row in rows
    )
    head = Markup("<tr>{}</tr>").format(
        Markup("").join(Markup('<th style="text-align:left">{}</th>').format(name) for name in _HEADINGS)
    )
    caption = f"{verdict.grade}, judged by {verdict.method}"
    html = Markup("<table><caption>{}</caption>{}{}</table>").format(caption, head, cells)
    return View(html=html, text="\n".join([caption, *("  ".join(filter(None, row)) for row in rows)]))


_HEADINGS = ("grade", "score", "sentence", "reason")
