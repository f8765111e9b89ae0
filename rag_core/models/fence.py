"""Fences around the text of documents in prompts, and the removal of characters that could end a fence.

The name of a fence contains a nonce that no document can guess. A fence does not force a model to obey, so the model's
output is checked as well.
"""

import re
from secrets import token_hex

_MAX_ATTRIBUTE_LENGTH = 200
_NONCE_BYTES = 4

# Models read Unicode's tag characters and characters of no width, but people do not see them. Characters that join or
# direct the letters of other scripts are kept between such letters.
_FORMAT = "[\u00ad\u061c\u200c-\u200f\u202a-\u202e\u2066-\u206f]"
_INVISIBLE = re.compile(
    rf"[\u200b\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
    rf"|{_FORMAT}{{8,}}+|(?<=[\0-\x7f]){_FORMAT}+|{_FORMAT}+(?=[\0-\x7f])"
)
_ANGLE, _SQUARE, _BAR = "[<\uff1c\u2039\u2329\u27e8\u3008]", "[\\[\uff3b]", "[|\uff5c]"
_TAGS = (
    *("passages?", "unsupported", "documents?", "context", "system", "user", "assistant", "developer"),
    *("bos", "eos", "pad", "unk", "start_of_turn", "end_of_turn", "turn", "think", "tool_call", "tool_response"),
)
_TEMPLATE_START = re.compile(
    rf"{_ANGLE}(?=\s*+[/\uff0f]?\s*+(?:{'|'.join(_TAGS)})(?![a-z])|{_BAR}|/?s>|<\s*+/?\s*+SYS>>)"
    rf"|{_SQUARE}(?=\s*+/?\s*+(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\s*[\]\uff3d])",
    re.IGNORECASE,
)


def fresh_nonce() -> str:
    return token_hex(_NONCE_BYTES)


def fence_text(kind: str, nonce: str, text: str, **attributes: str) -> str:
    """The text between the lines `<kind-nonce attribute="...">` and `</kind-nonce>`.

    The values of attributes are put on one line, and cut off at 200 characters.
    """
    rendered = ""
    for name, value in attributes.items():
        line = defuse(" ".join(value.split()))
        escaped = line.replace('"', "'").replace("<", "(").replace(">", ")")[:_MAX_ATTRIBUTE_LENGTH]
        rendered += f' {name}="{escaped}"'
    return f"<{kind}-{nonce}{rendered}>\n{defuse(text)}\n</{kind}-{nonce}>"


def defuse(text: str) -> str:
    """Removes invisible characters, and replaces the first bracket of fences and chat template tokens by `(`."""
    return _TEMPLATE_START.sub("(", _INVISIBLE.sub("", text))
