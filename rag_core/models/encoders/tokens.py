"""Lengths of texts in the embedder's own tokens."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from rag_core.errors import ModelError

_MAX_TOKENIZER_ERROR_LENGTH = 200
_WORDS = re.compile(r"\w+|[^\w\s]")
_SPACES = str.maketrans("\t\n\r", "   ")
_MAX_CACHED_WORDS, _MAX_WORD_LENGTH = 100_000, 64


def load_tokenizer(folder: Path) -> Tokenizer:
    """Loads a tokenizer, without the padding and truncation in its file. MiniLM's file sets both, to 128 tokens."""
    # one thread per process: the library's own threads take other actors' cores, and warn at every fork
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelError(f"{folder} has no tokenizer.json: give the folder of a model that has one")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise ModelError(f"{path} is not a readable tokenizer: {str(error)[:_MAX_TOKENIZER_ERROR_LENGTH]}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class ModelTokenizer:
    def __init__(self, folder: Path) -> None:
        self._tokenizer = load_tokenizer(folder)
        # BERT's tokenizers read the words of a text one by one, unless an added token contains a blank
        added_tokens = (token.content for token in self._tokenizer.get_added_tokens_decoder().values())
        has_independent_words = (
            isinstance(self._tokenizer.pre_tokenizer, BertPreTokenizer)
            and isinstance(self._tokenizer.normalizer, BertNormalizer)
            and not any(re.search(r"\s", content) for content in added_tokens)
        )
        self._word_lengths = _WordLengths(self._tokenizer) if has_independent_words else None

    @property
    def special_tokens(self) -> int:
        """The number of tokens that the model adds to every text."""
        return self._tokenizer.num_special_tokens_to_add(is_pair=False)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        if self._word_lengths is not None:
            return [sum(map(self._word_lengths.__getitem__, text.translate(_SPACES).split(" "))) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def ends(self, text: str) -> list[int]:
        return [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]


class _WordLengths(dict[str, int]):
    """A cache of words' lengths in tokens. Most words of a text are in it; tokenizing them takes 8 times as long."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> int:
        length = len(self._tokenizer.encode(word, add_special_tokens=False))
        if len(word) <= _MAX_WORD_LENGTH:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[word] = length
        return length


class WordTokenizer:
    """Words and single punctuation marks, for an embedder without a vocabulary."""

    @property
    def special_tokens(self) -> int:
        return 0

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(_WORDS.findall(text)) for text in texts]

    def ends(self, text: str) -> list[int]:
        return [match.end() for match in _WORDS.finditer(text)]
