"""What a reader of Markdown sees of an answer."""

from markdown_it import MarkdownIt

_READER = MarkdownIt("commonmark").enable("table")
_CODE = ("code_inline", "fence", "code_block")


def visible_text(text: str) -> str:
    """The text outside code, for a reader of CommonMark with tables."""
    tokens = [child for block in _READER.parse(text) for child in block.children or [block]]
    return " ".join(token.content for token in tokens if token.type not in _CODE)
