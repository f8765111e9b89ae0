"""The HTML view of a value, with its plain text."""

from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

Span: TypeAlias = tuple[int, int]
"""A half-open range of code points of a text."""

MARK = "background:#ffe9a8;color:#222;padding:0 .1em"
"""The style of marked words. It has its own text colour, because a notebook's page can be dark."""


@dataclass(frozen=True, slots=True, repr=False)
class View:
    """A value as a notebook shows it. Styles are inline: some viewers of notebooks remove style sheets."""

    html: Markup
    text: str

    def _repr_html_(self) -> str:
        return str(self.html)

    def __repr__(self) -> str:
        return self.text


def mark_spans(text: str, spans: list[Span]) -> Markup:
    """The escaped text with the spans marked. Spans that overlap become one."""
    parts, position = [Markup("")], 0
    for start, end in sorted(spans):
        start = max(start, position)
        if start < end:
            marked = Markup('<mark style="{}">{}</mark>').format(MARK, text[start:end])
            parts += [Markup.escape(text[position:start]), marked]
            position = end
    return Markup("").join([*parts, Markup.escape(text[position:])])
