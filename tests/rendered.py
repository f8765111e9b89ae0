"""What readers of Markdown see of an answer."""

from markdown_it import MarkdownIt
from markdown_it.token import Token

_READERS = [MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table")]
_CODE = ("code_inline", "fence", "code_block")


def visible_text(text: str) -> str:
    """The text outside code, for a reader of CommonMark and for one with tables."""
    readings = [_read(reader, text) for reader in _READERS]
    return " ".join(token.content for tokens in readings for token in tokens if token.type not in _CODE)


def is_same_code(text: str) -> bool:
    """True if both readers find the same code."""
    plain, tables = ([token.content for token in _read(reader, text) if token.type in _CODE] for reader in _READERS)
    return plain == tables


def _read(reader: MarkdownIt, text: str) -> list[Token]:
    return [child for block in reader.parse(text) for child in block.children or [block]]
