"""The adapters inside the pipelines of LangChain, LlamaIndex and Haystack, over both doors."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from adapter_doors import MUSEUM, Doors, open_doors
from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from haystack.utils import Secret
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnablePassthrough
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeRelationship
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from pydantic import ValidationError

from integrations import haystack, langchain, llamaindex
from integrations.doors import Door, Search
from rag_core.errors import AuthenticationError, FilterError, NotFoundError, UsageError
from rag_core.storage.postgres import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

QUESTION = "When are the signing keys replaced?"
SENTENCE = "The signing keys are replaced every 45 days."
RULES = {"key": "kind", "type": "eq", "value": "rule"}


@pytest.fixture(scope="module")
def doors(module_store: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with open_doors(module_store, tmp_path_factory.mktemp("doors")) as doors:
        yield doors


@pytest.fixture(params=["python", "http"])
def door(request: pytest.FixtureRequest, doors: Doors) -> Door:
    return doors.open(request.param)


def build_chain(retriever: langchain.RagRetriever) -> Any:
    """A chain of LangChain that answers with its prompt."""
    prompt = ChatPromptTemplate.from_template("{passages}\n\n{question}")
    passages = retriever | (lambda documents: "\n".join(document.page_content for document in documents))
    return {"passages": passages, "question": RunnablePassthrough()} | prompt


def test_a_chain_of_langchain_has_the_passages_in_its_prompt(door: Door) -> None:
    chain = build_chain(langchain.RagRetriever(source=door, k=1))
    assert SENTENCE in chain.invoke(QUESTION).to_string()
    assert SENTENCE in asyncio.run(chain.ainvoke(QUESTION)).to_string()
    model = FakeListChatModel(responses=["Every 45 days."])
    assert (chain | model | StrOutputParser()).invoke(QUESTION) == "Every 45 days."


def test_documents_of_langchain_are_the_hits(door: Door) -> None:
    (hit,) = door.search(Search(question=QUESTION, k=1))
    (document,) = langchain.RagRetriever(source=door, k=1).invoke(QUESTION)
    assert (document.id, document.page_content) == (str(hit.chunk_id), hit.text)
    expected = {"title": "Signing keys", "kind": "rule", "year": 2024, "rank": 1, "score": hit.score, "url": hit.url}
    assert expected.items() <= document.metadata.items()


def test_langchain_narrows_a_search_in_each_of_its_ways(door: Door) -> None:
    retriever = langchain.RagRetriever(source=door, filter=RULES)
    assert {document.metadata["kind"] for document in retriever.invoke(QUESTION)} == {"rule"}
    memos = retriever.invoke(QUESTION, filter={**RULES, "value": "memo"})
    assert [document.metadata["title"] for document in memos] == ["Memo"]
    assert len(retriever.invoke(QUESTION, k=1)) == 1
    configurable = retriever.configurable_fields(k=ConfigurableField(id="k"))
    assert len(configurable.with_config(configurable={"k": 1}).invoke(QUESTION)) == 1
    assert retriever.invoke(QUESTION, filter={**RULES, "value": "none"}) == []


class RecordingHandler(BaseCallbackHandler):
    """A handler of LangChain that keeps the events of retrievers."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_retriever_start(self, _serialized: Any, query: str, **others: Any) -> None:
        self.events.append((query, others["tags"]))

    def on_retriever_end(self, documents: Any, **_others: Any) -> None:
        self.events.append(len(documents))

    def on_retriever_error(self, error: BaseException, **_others: Any) -> None:
        self.events.append(type(error))


def test_callbacks_of_langchain_see_searches_and_failures(door: Door) -> None:
    handler = RecordingHandler()
    retriever = langchain.RagRetriever(source=door, k=2).with_config(callbacks=[handler], tags=["keys"])
    retriever.batch([QUESTION])
    with pytest.raises(UsageError, match=r"k must be in \[1, 100\], got 0"):
        retriever.invoke(QUESTION, k=0)
    assert handler.events == [(QUESTION, ["keys"]), 2, (QUESTION, ["keys"]), UsageError]


def test_a_query_engine_of_llamaindex_answers_from_the_nodes(door: Door) -> None:
    retriever = llamaindex.RagRetriever(door, k=2)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    for response in (engine.query(QUESTION), asyncio.run(engine.aquery(QUESTION))):
        assert SENTENCE in str(response)  # the mock repeats its prompt
        (best, _) = response.source_nodes
        assert best.metadata["title"] == "Signing keys"
        assert best.metadata["chunk_id"] not in str(response)


def test_nodes_of_llamaindex_are_the_hits(door: Door) -> None:
    (hit,) = door.search(Search(question=QUESTION, k=1))
    (node,) = llamaindex.RagRetriever(door, k=1).retrieve(QUESTION)
    assert (node.node_id, node.text, node.score) == (str(hit.chunk_id), hit.text, hit.score)
    assert node.node.relationships[NodeRelationship.SOURCE].node_id == str(hit.document_id)  # type: ignore[union-attr]
    written = node.node.get_content(MetadataMode.LLM)
    assert "title: Signing keys" in written
    assert "retrievers" not in written


def test_filters_of_llamaindex_narrow_a_search(door: Door) -> None:
    newer = MetadataFilter(key="year", value=2022, operator=FilterOperator.GT)
    rules = MetadataFilters(filters=[MetadataFilter(key="kind", value="rule"), newer])
    nodes = llamaindex.RagRetriever(door, filters=rules).retrieve(QUESTION)
    assert [node.metadata["title"] for node in nodes] == ["Signing keys"]
    assert llamaindex.RagRetriever(door, filters={**RULES, "value": "none"}).retrieve(QUESTION) == []


def test_a_filter_that_only_llamaindex_has_is_an_error(doors: Doors) -> None:
    filters = MetadataFilters(filters=[MetadataFilter(key="kind", value="ru", operator=FilterOperator.TEXT_MATCH)])
    with pytest.raises(FilterError, match=r"must be one of ==, .*, got text_match"):
        llamaindex.RagRetriever(doors.open("http"), filters=filters)


def build_pipeline(retriever: haystack.RagRetriever) -> Pipeline:
    """A pipeline of Haystack that ends with its prompt."""
    template = "{% for document in documents %}{{ document.content }}\n{% endfor %}{{ question }}"
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("prompt", PromptBuilder(template=template, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def ask_pipeline(question: str, **retriever: Any) -> dict[str, Any]:
    return {"retriever": {"query": question, **retriever}, "prompt": {"question": question}}


def test_a_pipeline_of_haystack_has_the_passages_in_its_prompt(door: Door) -> None:
    retriever = haystack.RagRetriever(door, top_k=1)
    assert SENTENCE in build_pipeline(retriever).run(ask_pipeline(QUESTION))["prompt"]["prompt"]
    pipeline = build_pipeline(haystack.RagRetriever(door, top_k=1))
    ran = asyncio.run(pipeline.run_async(ask_pipeline(QUESTION)))
    assert SENTENCE in ran["prompt"]["prompt"]


def test_documents_of_haystack_are_the_hits(door: Door) -> None:
    (hit,) = door.search(Search(question=QUESTION, k=1))
    (document,) = haystack.RagRetriever(door, top_k=1).run(query=QUESTION)["documents"]
    assert (document.id, document.content, document.score) == (str(hit.chunk_id), hit.text, hit.score)
    assert {"title": "Signing keys", "kind": "rule"}.items() <= document.meta.items()


def test_filters_of_haystack_narrow_a_search(door: Door) -> None:
    rules = {"field": "meta.kind", "operator": "==", "value": "rule"}
    newer = {"field": "meta.year", "operator": ">", "value": 2022}
    retriever = haystack.RagRetriever(door, filters=rules)
    assert {document.meta["kind"] for document in retriever.run(query=QUESTION)["documents"]} == {"rule"}
    both = retriever.run(query=QUESTION, filters={"operator": "AND", "conditions": [rules, newer]})["documents"]
    assert [document.meta["title"] for document in both] == ["Signing keys"]
    assert retriever.run(query=QUESTION, filters={**rules, "value": "none"})["documents"] == []
    for filters in ({"operator": "NOT", "conditions": [rules]}, {**rules, "operator": ["=="]}):
        with pytest.raises(FilterError, match="the operators are ==, "):
            retriever.run(query=QUESTION, filters=filters)


def test_a_pipeline_of_haystack_survives_its_yaml_file(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Secret.from_env_var("HARBOUR_KEY")
    monkeypatch.setenv("HARBOUR_KEY", doors.key)
    text = build_pipeline(haystack.RagRetriever(doors.url, key, top_k=1)).dumps()
    assert doors.key not in text
    pipeline = Pipeline.loads(text, allowed_modules=["integrations.haystack"])
    assert SENTENCE in pipeline.run(ask_pipeline(QUESTION))["prompt"]["prompt"]
    with pytest.raises(UsageError, match="`source` is a text, not an open door"):
        build_pipeline(haystack.RagRetriever(doors.open("http"))).dumps()


@pytest.mark.parametrize("kind", ["python", "http"])
def test_the_libraries_see_only_the_documents_of_the_tenant(doors: Doors, kind: str) -> None:
    door = doors.open(kind, MUSEUM)
    titles = [
        [document.metadata["title"] for document in langchain.RagRetriever(source=door).invoke(QUESTION)],
        [node.metadata["title"] for node in llamaindex.RagRetriever(door).retrieve(QUESTION)],
        [document.meta["title"] for document in haystack.RagRetriever(door).run(query=QUESTION)["documents"]],
    ]
    assert titles == [["Vitrines"]] * 3


def test_the_libraries_pass_errors_on(door: Door) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        langchain.RagRetriever(source=door, collection="nowhere").invoke(QUESTION)
    with pytest.raises(NotFoundError, match="nowhere"):
        llamaindex.RagRetriever(door, collection="nowhere").retrieve(QUESTION)
    with pytest.raises(NotFoundError, match="nowhere"):
        haystack.RagRetriever(door, collection="nowhere").run(query=QUESTION)


def test_a_wrong_key_is_an_error_in_each_library(doors: Doors) -> None:
    with pytest.raises(AuthenticationError):
        langchain.RagRetriever(source=doors.url, api_key=f"{doors.key}x").invoke(QUESTION)
    with pytest.raises(AuthenticationError):
        llamaindex.RagRetriever(doors.url, api_key=f"{doors.key}x").retrieve(QUESTION)
    with pytest.raises(AuthenticationError):
        haystack.RagRetriever(doors.url, Secret.from_token(f"{doors.key}x")).run(query=QUESTION)


def test_a_key_of_langchain_must_be_text(doors: Doors) -> None:
    with pytest.raises(ValidationError, match="api_key"):
        langchain.RagRetriever(source=doors.url, api_key=5)


def test_a_retriever_of_langchain_does_not_show_its_key(doors: Doors) -> None:
    retriever = langchain.RagRetriever(source=doors.url, api_key=doors.key)
    assert doors.key not in repr(retriever)
    assert isinstance(retriever.invoke(QUESTION)[0], Document)
