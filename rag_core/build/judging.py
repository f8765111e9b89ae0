"""Judges. Their models are loaded once a process."""

from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, assert_never

from rag_core.build.embedding import shared_encoder
from rag_core.build.endpoint import client
from rag_core.build.python import python_object
from rag_core.config import (
    BertEmbedder,
    CrossEncoderJudge,
    EmbeddingSettings,
    ExtractiveGenerator,
    JudgeSettings,
    LexicalJudge,
    LlmJudge,
    PythonObject,
    Settings,
)
from rag_core.errors import ModelError
from rag_core.guardrails.verdicts import Thresholds
from rag_core.protocols import Judge

if TYPE_CHECKING:
    from rag_core.guardrails.cross_encoder import Classifier
    from rag_core.guardrails.cross_encoder import CrossEncoderJudge as Classifying
    from rag_core.guardrails.lexical import Nearness


def judge(settings: Settings) -> Judge:
    """The chosen one, but of a generator that only quotes: that is checked, not judged."""
    if isinstance(settings.generation, ExtractiveGenerator):
        from rag_core.guardrails.verbatim import VerbatimJudge

        return VerbatimJudge()
    return chosen_judge(settings.guard.judge, settings.embedding)


def chosen_judge(chosen: JudgeSettings, embedding: EmbeddingSettings) -> Judge:
    """Loads its model, if it has one. If a classifier is not there every answer is told so."""
    match chosen:
        case LexicalJudge():
            from rag_core.guardrails.lexical import LexicalJudge as Lexical

            return Lexical(_thresholds(chosen), _nearness(embedding))
        case CrossEncoderJudge():
            return _loaded(chosen)
        case LlmJudge():
            from rag_core.guardrails.llm import LlmJudge as LanguageModel

            return LanguageModel(client(chosen), _thresholds(chosen), chosen.concurrency)
        case PythonObject():
            own: Judge = python_object(chosen)
            return own
        case _:
            assert_never(chosen)


def _thresholds(chosen: LexicalJudge | CrossEncoderJudge | LlmJudge) -> Thresholds:
    return Thresholds(supported=chosen.supported, partial=chosen.partial)


def _nearness(embedding: EmbeddingSettings) -> "Nearness | None":
    """Of the profile's own encoder, if it is there and tells the vectors of tokens: words alone make a judge, too."""
    if not isinstance(embedding, BertEmbedder):
        return None
    from rag_core.guardrails.lexical import Nearness
    from rag_core.ingestion.embedding.bert import BertEncoder

    with suppress(ModelError):
        encoder = shared_encoder(embedding)
        return Nearness(encoder) if isinstance(encoder, BertEncoder) else None
    return None


def _loaded(chosen: CrossEncoderJudge) -> Judge:
    judge = _cross_encoder(chosen)
    with suppress(ModelError):
        judge.load()
    return judge


@cache
def _cross_encoder(chosen: CrossEncoderJudge) -> "Classifying":
    from rag_core.guardrails.cross_encoder import CrossEncoderJudge as Classifying

    return Classifying(partial(_classifier, chosen), _thresholds(chosen), chosen.batch_size)


def _classifier(chosen: CrossEncoderJudge) -> "Classifier":
    from rag_core.guardrails.cross_encoder import classifier
    from rag_core.ingestion.embedding.model_files import model_folder
    from rag_core.ingestion.embedding.precision import dtype
    from rag_core.models.loading import refuse_missing_gpu

    refuse_missing_gpu("guard.judge", chosen.device)
    return classifier(model_folder(chosen.model), dtype(chosen.precision, chosen.device), chosen.device, chosen.label)
