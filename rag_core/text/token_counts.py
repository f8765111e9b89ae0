"""How long a text is for the model that writes the answer."""

import re
from collections.abc import Sequence
from pathlib import Path

from rag_core.errors import ModelError

_DIGIT = re.compile(r"\d")
_BYTES = 3


class EstimatedTokens:
    """Each digit is a token, and so are three bytes of the rest in UTF-8: about 1.6 times what Qwen's vocabulary makes
    of English prose or Chinese, 1.3 of German or Python. Better a budget that is not used up."""

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [_estimate(text) for text in texts]


def _estimate(text: str) -> int:
    digits = len(_DIGIT.findall(text))
    return digits + -(-(len(text.encode()) - digits) // _BYTES)


def tokenizer_folder(name: str) -> Path:
    """A folder as it is, else one of the model hub or its cache: with the tokenizer only, not with the weights."""
    if Path(name).is_dir():
        return Path(name)
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "tokenizer.json")).parent
    except Exception as error:  # its errors, its HTTP client's and the disk's have no common root
        reason = str(error).partition("\n")[0]
        raise ModelError(f"tokenizer {name} is no folder, and the model hub does not give it ({reason})") from error
