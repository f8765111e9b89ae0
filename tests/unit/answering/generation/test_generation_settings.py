"""What the settings of generation become."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest
from fakes.answering import ScriptedGenerator, passage
from fakes.openai_endpoint import error_response, run_endpoint, stream_response

from rag_core.answering.generation.extractive import SentenceExtractor
from rag_core.config import LlmReranker, Settings
from rag_core.errors import ConfigError, ModelError
from rag_core.models.endpoint import HttpPool
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.types import Prompt, Query
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.generation import build_generator, build_token_counter
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.reranking import build_reranker

HASHING = "embedding={type: hashing}"


class Rarities:
    """Term weights, which are all that a generator reads of a corpus."""

    async def idf(self, query: Query) -> Mapping[str, float]:  # noqa: ARG002
        return {"water": 3.0, "boil": 4.0}


RARITIES = Rarities()


def settings_of(*overrides: str) -> Settings:
    return load_settings(None, "default", [HASHING, *overrides], {})


def generate_answer(settings: Settings) -> tuple[str, list[str]]:
    """The text, and the errors of its stages."""
    water = passage(1, "Water boils at 100 °C.", title="Physics")
    prompt = Prompt(query=Query(text="When does water boil?"), passages=(water,))

    async def generate() -> tuple[str, list[str]]:
        async with aclosing(RemoteModels()) as remote:
            with recording() as stages:
                pieces = [piece async for piece in build_generator(settings, RARITIES, remote).stream(prompt)]
        return "".join(pieces), [report.error for report in stages if report.stage == "model"]

    return asyncio.run(generate())


def openai(url: str, *more: str) -> Settings:
    return settings_of(f"generation={{type: openai, model: llama, base_url: '{url}', attempts: 1}}", *more)


def test_without_a_language_model_sentences_are_quoted() -> None:
    settings = settings_of("generation={type: extractive, sentences: 2, passages: 4, threshold: 0.5}")
    generator = build_generator(settings, RARITIES, RemoteModels())
    assert isinstance(generator, SentenceExtractor)
    assert (generator.sentences, generator.passages, generator.threshold) == (2, 4, 0.5)


def test_an_endpoint_writes_and_where_it_does_not_sentences_are_quoted() -> None:
    with run_endpoint(stream_response("At 100 °C [1]."), error_response(503, {"error": "loading"})) as endpoint:
        settings = openai(endpoint.url, "generation.fallback=extractive")
        assert generate_answer(settings) == ("At 100 °C [1].", [""])
        _, (error,) = generate_answer(settings)
    assert error.endswith("refused with 503: loading")


def test_without_a_fallback_the_endpoint_is_alone() -> None:
    with run_endpoint(stream_response("At 100 °C [1].")) as endpoint:
        assert generate_answer(openai(endpoint.url, "generation.fallback=none")) == ("At 100 °C [1].", [])


def test_an_unknown_prompt_pack_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ConfigError, match=r"prompt\.pack must be one of code, .* got 'poetry'"):
        build_generator(openai("http://localhost:1", "prompt.pack=poetry"), RARITIES, RemoteModels())


def test_a_users_own_object_answers() -> None:
    setting = "generation={type: python, object: 'fakes.answering:ScriptedGenerator', arguments: {answers: []}}"
    assert isinstance(build_generator(settings_of(setting), RARITIES, RemoteModels()), ScriptedGenerator)


def test_the_encoder_that_all_share_is_loaded_once() -> None:
    assert load_shared_encoder(settings_of().embedding) is load_shared_encoder(settings_of().embedding)
    assert load_shared_encoder(settings_of().embedding) is not load_shared_encoder(
        settings_of("embedding.dimension=16").embedding
    )


def test_words_are_counted_where_no_model_reads() -> None:
    assert build_token_counter(settings_of()).lengths(["Water boils.", ""]) == [3, 0]


def test_the_tokens_of_a_model_are_estimated_by_its_bytes_and_digits() -> None:
    counting = build_token_counter(openai("http://localhost:1"))
    assert counting.lengths(["", "a", "Water boils.", "1234", "12 km", "水が沸く"]) == [0, 1, 4, 4, 3, 4]


def test_a_history_has_so_many_tokens_of_the_generators() -> None:
    settings = openai("http://localhost:1", "answering.history_tokens=7")
    pipeline = build_pipeline(settings, RARITIES, None, None, RemoteModels())  # type: ignore[arg-type]
    assert (pipeline.limits.history_tokens, pipeline.lengths(["12 km"])) == (7, [3])


def test_a_tokenizer_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no test asks the hub, nor waits for it
    with pytest.raises(
        ModelError, match="tokenizer acme/llama is not a folder and cannot be loaded from the model hub"
    ):
        build_token_counter(openai("http://localhost:1", "generation.tokenizer=acme/llama"))


def test_a_models_own_tokenizer_counts_exactly_and_needs_no_weights(tmp_path: Path) -> None:
    from rag_core.models.encoders.model_files import find_model_folder

    (tmp_path / "tokenizer.json").write_bytes((find_model_folder("all-MiniLM-L6-v2") / "tokenizer.json").read_bytes())
    counting = build_token_counter(openai("http://localhost:1", f"generation.tokenizer={tmp_path}"))
    assert counting.lengths(["Water boils.", "unaffable"]) == [4, 3]


def test_a_language_model_reranks() -> None:
    with run_endpoint(error_response(500, {})) as endpoint:
        settings = LlmReranker(type="llm", model="llama", base_url=endpoint.url, attempts=1, concurrency=2)
        assert asyncio.run(build_reranker(settings, HttpPool()).score("?", [])) == []  # type: ignore[arg-type]
