"""Text of documents as a language model is to read it: fenced off, and without what could end the fence.

A fence's name has a nonce in it that no document can guess. Nothing here makes a model obey: what it writes is checked.
"""

import re
from secrets import token_hex

_TITLE_LENGTH = 200
_NONCE_BYTES = 4

# Read by a model, unseen by people: Unicode's tag characters and signs of no width. Those that join or direct letters
# of other scripts stay between such.
_FORMAT = "[\u00ad\u061c\u200c-\u200f\u202a-\u202e\u2066-\u206f]"
_UNSEEN = re.compile(
    rf"[\u200b\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
    rf"|{_FORMAT}{{8,}}+|(?<=[\0-\x7f]){_FORMAT}+|{_FORMAT}+(?=[\0-\x7f])"
)
_ANGLE, _SQUARE, _BAR = "[<\uff1c\u2039\u2329\u27e8\u3008]", "[\\[\uff3b]", "[|\uff5c]"
_TAGS = (
    *("passages?", "unsupported", "documents?", "context", "system", "user", "assistant", "developer"),
    *("bos", "eos", "pad", "unk", "start_of_turn", "end_of_turn", "turn", "think", "tool_call", "tool_response"),
)
_TEMPLATES = re.compile(
    rf"{_ANGLE}(?=\s*+[/\uff0f]?\s*+(?:{'|'.join(_TAGS)})(?![a-z])|{_BAR}|/?s>|<\s*+/?\s*+SYS>>)"
    rf"|{_SQUARE}(?=\s*+/?\s*+(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\s*[\]\uff3d])",
    re.IGNORECASE,
)


def fresh_nonce() -> str:
    return token_hex(_NONCE_BYTES)


def fenced(kind: str, nonce: str, text: str, **attributes: str) -> str:
    """`<kind-nonce attribute="...">`, the text, and `</kind-nonce>`, each on lines of their own."""
    told = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{kind}-{nonce}{told}>\n{defused(text)}\n</{kind}-{nonce}>"


def defused(text: str) -> str:
    """Without characters that nobody sees; fences and tokens of chat templates begin with a round bracket instead."""
    return _TEMPLATES.sub("(", _UNSEEN.sub("", text))


def _attribute(value: str) -> str:
    """On one line, and without what could end it."""
    plain = defused(" ".join(value.split()))
    return plain.replace('"', "'").replace("<", "(").replace(">", ")")[:_TITLE_LENGTH]
