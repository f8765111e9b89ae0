"""Embedding models that kill their process, or that sleep longer than any test."""

import os
import signal
import time
from collections.abc import Sequence
from typing import NoReturn

from rag_core.models.encoders.hashing import hashing_space
from rag_core.models.encoders.tokens import WordTokenizer


class Killing:
    space = hashing_space(64, 512)
    tokenizer = WordTokenizer()

    def embed(self, texts: Sequence[str]) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError(f"embedded {len(texts)} texts after the process was killed")


class Sleeping:
    space = hashing_space(64, 512)
    tokenizer = WordTokenizer()

    def embed(self, texts: Sequence[str]) -> NoReturn:
        time.sleep(600)
        raise AssertionError(f"the test did not stop the sleep over {len(texts)} texts")
