"""The judgement of a response by its context, which several nodes share."""

from typing import Any

from anyio import to_thread

from rag_core.answering.citing.citations import cite
from rag_core.answering.judging.llm import LlmJudge as LanguageModel
from rag_core.answering.judging.verdicts import Thresholds
from rag_core.answering.pipeline import ABSTENTION
from rag_core.config import LlmJudge, Settings
from rag_core.contract.nodes.context import passages_from_context
from rag_core.contract.nodes.node_config import LLMConfig
from rag_core.contract.nodes.running import Inputs, read_input
from rag_core.protocols import Judge
from rag_core.types import DEFAULT_COLLECTION, Answer, Passage
from rag_core.wiring.endpoint import build_client
from rag_core.wiring.judging import build_local_judge
from rag_core.wiring.models import RemoteModels


async def open_judge(llm_config: LLMConfig, settings: Settings, remote: RemoteModels) -> Judge:
    """The language model of the configuration, or else the profile's judge, even if its generator needs none."""
    section = settings.guard.judge
    if llm_config.model:
        section = LlmJudge(type="llm", **llm_config.model_dump())
    if not isinstance(section, LlmJudge):
        return await to_thread.run_sync(build_local_judge, section, settings.embedding)
    thresholds = Thresholds(supported=section.supported, partial=section.partial)
    return LanguageModel(build_client(section, remote.pool), thresholds, section.concurrency)


def read_answer(inputs: Inputs, settings: Settings) -> tuple[Answer, tuple[Passage, ...]]:
    """The input `response` with the citations of its markers, and the passages of the input `context`."""
    response, passages = str(read_input(inputs, "response")), passages_from_context(read_input(inputs, "context"))
    hosts = frozenset(settings.guard.link_hosts)
    if response.startswith(ABSTENTION):
        return Answer(text=response, finish="abstained"), passages
    return cite(response, passages, DEFAULT_COLLECTION, hosts=hosts), passages


def describe_verdict(answer: Answer) -> dict[str, Any]:
    claims = [
        {
            "text": answer.text[claim.start : claim.end],
            "grade": claim.grade,
            "score": claim.score,
            "reason": claim.reason,
        }
        for claim in answer.verdict.claims
    ]
    verdict = answer.verdict
    return {"grade": verdict.grade, "score": verdict.score, "method": verdict.method, "claims": claims}
