"""How long a text is, in the embedder's own tokens."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rag_core.errors import ModelError

_REASON_LENGTH = 200
_WORDS = re.compile(r"\w+|[^\w\s]")
_SPACES = str.maketrans("\t\n\r", "   ")
_MOST_WORDS, _LONGEST_WORD = 100_000, 64


def load_tokenizer(folder: Path) -> Tokenizer:
    """Neither pads nor cuts, whatever its file says: MiniLM's does both, at 128 tokens."""
    # one thread a process: the library's own threads take other actors' cores, and warn at every fork
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelError(f"{folder} has no tokenizer.json: give the folder of a model that has one")
    tokenizer = _read(path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise ModelError(f"{path} is no tokenizer that can be read: {str(error)[:_REASON_LENGTH]}") from error


class ModelTokenizer:
    def __init__(self, folder: Path) -> None:
        self._tokenizer = load_tokenizer(folder)
        self._words = _WordLengths(self._tokenizer) if _reads_words_alone(self._tokenizer) else None

    @property
    def special_tokens(self) -> int:
        """How many the model adds to every text."""
        return self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        if self._words is not None:
            return [sum(map(self._words.__getitem__, text.translate(_SPACES).split(" "))) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def ends(self, text: str) -> list[int]:
        return [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]


class _WordLengths(dict[str, int]):
    """Of words that were met, as most of a text were: to read it again takes eight times as long."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> int:
        length = len(self._tokenizer.encode(word, add_special_tokens=False))
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _MOST_WORDS:
                self.clear()
            self[word] = length
        return length


def _reads_words_alone(tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its words between spaces: BERT's, and no token has a space in it."""
    added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
    return (
        isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and isinstance(tokenizer.normalizer, BertNormalizer)
        and not any(re.search(r"\s", content) for content in added)
    )


class WordTokenizer:
    """Words and single punctuation marks, for an embedder without a vocabulary."""

    @property
    def special_tokens(self) -> int:
        return 0

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(_WORDS.findall(text)) for text in texts]

    def ends(self, text: str) -> list[int]:
        return [match.end() for match in _WORDS.finditer(text)]
