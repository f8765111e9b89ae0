"""A judge by a classifier that reads passage and claim together: an NLI model, or a detector of hallucinations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rag_core.answering.judging.statements import find_statements, premise
from rag_core.answering.judging.verdicts import Thresholds, claim_from_statement, verdict_from_claims
from rag_core.errors import ConfigError
from rag_core.models.cross_encoder import compute_logits, load_cross_encoder
from rag_core.models.shared_model import SharedModel
from rag_core.protocols import Pair, PairScorer
from rag_core.types import Answer, Passage, Verdict

if TYPE_CHECKING:
    import torch
    from sentence_transformers import CrossEncoder

METHOD = "cross-encoder"


@dataclass(frozen=True, slots=True)
class Classifier:
    """A sequence classifier. `supported` is the index of the class for supported claims, if it has several classes."""

    model: "CrossEncoder"
    supported: int

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        """The probability for each pair that the passage, which is first, supports the claim."""
        scores = compute_logits(self.model, pairs)
        has_classes = scores.ndim > 1
        likely = scores.softmax(dim=-1)[:, self.supported] if has_classes else scores.sigmoid()
        probabilities: list[float] = likely.tolist()
        return probabilities


class CrossEncoderJudge:
    """A Judge whose score of a claim is the probability that the best of its passages supports it.

    The probability is the sigmoid of a single logit, or the softmax of the class for supported claims.
    """

    def __init__(self, pairs: PairScorer, thresholds: Thresholds) -> None:
        self._pairs, self._thresholds = pairs, thresholds

    async def judge(self, answer: Answer, passages: Sequence[Passage]) -> Verdict:
        statements = find_statements(answer, passages)
        pairs = [(premise(passage), statement.text) for statement in statements for passage in statement.passages]
        scores = iter(await self._pairs.score(pairs))
        claims = []
        for statement in statements:
            score = max([next(scores) for _ in statement.passages], default=0.0)
            claims.append(claim_from_statement(statement, self._thresholds.grade(score), score))
        return verdict_from_claims(claims, METHOD)


def shared_classifier(load_model: Callable[[], Classifier], batch_size: int) -> SharedModel[Classifier]:
    """A classifier that all requests share. Its scores are the probabilities that a passage supports a claim."""
    return SharedModel("judge", load_model, lambda model, _: model.probabilities, batch_size)


def load_classifier(folder: Path, weights: "torch.dtype", device: str, label: str) -> Classifier:
    """Loads a classifier. `label` is the name of the class for supported claims, if it has several, in any case.

    Raises ModelError if the files cannot be loaded, and ConfigError if no class has that name.
    """
    model = load_cross_encoder(folder, weights, device)
    if model.num_labels == 1:
        return Classifier(model, 0)
    labels = [str(name) for _, name in sorted(model.config.id2label.items())]
    indices = {name.lower(): index for index, name in enumerate(labels)}
    if label.lower() not in indices:
        raise ConfigError(f"guard.judge.label must be one of {', '.join(labels)}, got {label}")
    return Classifier(model, indices[label.lower()])
