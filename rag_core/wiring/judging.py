"""Judges. Their models are loaded once a process."""

from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, assert_never

from rag_core.answering.judging.verdicts import Thresholds
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
from rag_core.models.endpoint import Completer
from rag_core.protocols import Judge, PairScorer
from rag_core.wiring.embedding import shared_encoder
from rag_core.wiring.endpoint import client
from rag_core.wiring.models import HERE, Elsewhere, chat, hosted_judge
from rag_core.wiring.python import python_object

if TYPE_CHECKING:
    from rag_core.answering.judging.cross_encoder import Classifier
    from rag_core.answering.judging.lexical import Nearness
    from rag_core.models.shared import SharedModel


def judge(settings: Settings, elsewhere: Elsewhere = HERE) -> Judge:
    """The chosen one, but of a generator that only quotes: that is checked, not judged."""
    if isinstance(settings.generation, ExtractiveGenerator):
        from rag_core.answering.judging.verbatim import VerbatimJudge

        return VerbatimJudge()
    match settings.guard.judge:
        case _ if elsewhere.judge is not None:
            return _classifying(hosted_judge(settings), elsewhere.judge)
        case LlmJudge() as chosen:
            return _language_model(chosen, chat(chosen, settings, elsewhere))
        case LexicalJudge() as chosen if elsewhere.embedder is not None:
            return _lexical(chosen, None)
        case chosen:
            return chosen_judge(chosen, settings.embedding)


def chosen_judge(chosen: JudgeSettings, embedding: EmbeddingSettings) -> Judge:
    """Loads its model, if it has one. If a classifier is not there every answer is told so."""
    match chosen:
        case LexicalJudge():
            return _lexical(chosen, _nearness(embedding))
        case CrossEncoderJudge():
            return _loaded(chosen)
        case LlmJudge():
            return _language_model(chosen, client(chosen))
        case PythonObject():
            own: Judge = python_object(chosen)
            return own
        case _:
            assert_never(chosen)


def _lexical(chosen: LexicalJudge, nearness: "Nearness | None") -> Judge:
    from rag_core.answering.judging.lexical import LexicalJudge as Lexical

    return Lexical(_thresholds(chosen), nearness)


def _language_model(chosen: LlmJudge, asked: Completer) -> Judge:
    from rag_core.answering.judging.llm import LlmJudge as LanguageModel

    return LanguageModel(asked, _thresholds(chosen), chosen.concurrency)


def _classifying(chosen: CrossEncoderJudge, pairs: PairScorer) -> Judge:
    from rag_core.answering.judging.cross_encoder import CrossEncoderJudge as Classifying

    return Classifying(pairs, _thresholds(chosen))


def _thresholds(chosen: LexicalJudge | CrossEncoderJudge | LlmJudge) -> Thresholds:
    return Thresholds(supported=chosen.supported, partial=chosen.partial)


def _nearness(embedding: EmbeddingSettings) -> "Nearness | None":
    """Of the profile's own encoder, if it is there and tells the vectors of tokens: words alone make a judge, too."""
    if not isinstance(embedding, BertEmbedder):
        return None
    from rag_core.answering.judging.lexical import Nearness
    from rag_core.models.encoders.bert import BertEncoder

    with suppress(ModelError):
        encoder = shared_encoder(embedding)
        return Nearness(encoder) if isinstance(encoder, BertEncoder) else None
    return None


def _loaded(chosen: CrossEncoderJudge) -> Judge:
    with suppress(ModelError):
        judge_pairs(chosen).load()
    return _over_pairs(chosen)


@cache
def _over_pairs(chosen: CrossEncoderJudge) -> Judge:
    return _classifying(chosen, judge_pairs(chosen))


@cache
def judge_pairs(chosen: CrossEncoderJudge) -> "SharedModel[Classifier]":
    """Of this process; its `load`, or the first request, loads the model. ConfigError then if it has no such class."""
    from rag_core.answering.judging.cross_encoder import classifier_pairs

    return classifier_pairs(partial(_classifier, chosen), chosen.batch_size)


def _classifier(chosen: CrossEncoderJudge) -> "Classifier":
    from rag_core.answering.judging.cross_encoder import classifier
    from rag_core.models.encoders.model_files import model_folder
    from rag_core.models.encoders.precision import dtype
    from rag_core.models.loading import refuse_missing_gpu

    refuse_missing_gpu("guard.judge", chosen.device)
    return classifier(model_folder(chosen.model), dtype(chosen.precision, chosen.device), chosen.device, chosen.label)
