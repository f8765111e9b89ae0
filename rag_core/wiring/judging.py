"""Builders for judges. Each process loads a judge's model once."""

from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, assert_never

from rag_core.answering.judging.verdicts import Thresholds
from rag_core.config import (
    BertEmbedder,
    CrossEncoderJudge,
    EmbeddingSettings,
    ExtractiveGenerator,
    LexicalJudge,
    LlmJudge,
    PythonObject,
    Settings,
)
from rag_core.errors import ModelError
from rag_core.models.chat import Completer
from rag_core.models.pair_batching import BatchingScorer
from rag_core.protocols import Judge, PairScorer
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.models import RemoteModels, find_remote_judge, select_chat
from rag_core.wiring.python_objects import build_python_object

if TYPE_CHECKING:
    from rag_core.answering.judging.cross_encoder import Classifier
    from rag_core.answering.judging.lexical import TokenSimilarity
    from rag_core.models.shared_model import SharedModel

BATCHES = 4
"""The number of a classifier's batches whose pairs are sorted by length together."""


def build_judge(settings: Settings, remote: RemoteModels) -> Judge:
    """The profile's judge, or a check that quotes are verbatim if the generator is extractive."""
    if isinstance(settings.generation, ExtractiveGenerator):
        from rag_core.answering.judging.verbatim import VerbatimJudge

        return VerbatimJudge()
    return build_configured_judge(settings, remote)


def build_configured_judge(settings: Settings, remote: RemoteModels) -> Judge:
    """The judge of `guard.judge`, whatever the generator is."""
    match settings.guard.judge:
        case _ if remote.judge is not None:
            return _build_cross_encoder_judge(find_remote_judge(settings), remote.judge)
        case LlmJudge() as section:
            return _build_llm_judge(section, select_chat(section, settings, remote, "judge"))
        case LexicalJudge() as section if remote.embedder is not None:
            return _build_lexical_judge(section, None)
        case section:
            return build_local_judge(section, settings.embedding)


def build_local_judge(section: LexicalJudge | CrossEncoderJudge | PythonObject, embedding: EmbeddingSettings) -> Judge:
    """Builds the judge and loads its model, if it has one.

    A missing model raises no error here: each call of the judge raises ModelError.
    """
    match section:
        case LexicalJudge():
            return _build_lexical_judge(section, _build_token_similarity(embedding))
        case CrossEncoderJudge():
            with suppress(ModelError):
                judge_model(section).load()
            scorer = BatchingScorer(judge_model(section), section.batch_size * BATCHES)
            return _build_cross_encoder_judge(section, scorer)
        case PythonObject():
            judge: Judge = build_python_object(section, "guard.judge", "judge")
            return judge
        case _:
            assert_never(section)


def _build_lexical_judge(section: LexicalJudge, similarity: "TokenSimilarity | None") -> Judge:
    from rag_core.answering.judging.lexical import LexicalJudge as Lexical

    return Lexical(_thresholds(section), similarity)


def _build_llm_judge(section: LlmJudge, model: Completer) -> Judge:
    from rag_core.answering.judging.llm import LlmJudge as LanguageModel

    return LanguageModel(model, _thresholds(section), section.concurrency)


def _build_cross_encoder_judge(section: CrossEncoderJudge, model: PairScorer) -> Judge:
    from rag_core.answering.judging.cross_encoder import CrossEncoderJudge as CrossEncoder

    return CrossEncoder(model, _thresholds(section))


def _thresholds(section: LexicalJudge | CrossEncoderJudge | LlmJudge) -> Thresholds:
    return Thresholds(supported=section.supported, partial=section.partial)


def _build_token_similarity(embedding: EmbeddingSettings) -> "TokenSimilarity | None":
    """The similarity of token vectors; None if the profile's encoder is missing or does not return token vectors.

    The lexical judge then compares words only.
    """
    if not isinstance(embedding, BertEmbedder):
        return None
    from rag_core.answering.judging.lexical import TokenSimilarity
    from rag_core.models.encoders.bert import BertEncoder

    with suppress(ModelError):
        encoder = load_shared_encoder(embedding)
        return TokenSimilarity(encoder) if isinstance(encoder, BertEncoder) else None
    return None


@cache
def judge_model(section: CrossEncoderJudge) -> "SharedModel[Classifier]":
    """The model that this process shares. Its `load`, or the first request, loads it.

    Loading raises ConfigError if the model does not have the configured class.
    """
    from rag_core.answering.judging.cross_encoder import shared_classifier

    return shared_classifier(partial(_load_judge_classifier, section), section.batch_size)


def _load_judge_classifier(section: CrossEncoderJudge) -> "Classifier":
    from rag_core.answering.judging.cross_encoder import load_classifier
    from rag_core.models.encoders.model_files import find_model_folder
    from rag_core.models.encoders.precision import choose_dtype
    from rag_core.models.loading import check_gpu

    check_gpu("guard.judge", section.device)
    dtype = choose_dtype(section.precision, section.device)
    return load_classifier(find_model_folder(section.model), dtype, section.device, section.label)
