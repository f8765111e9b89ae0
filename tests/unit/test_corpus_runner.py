"""The runner of an evaluation's corpus on a cluster whose nodes may not see the folder of this process."""

from dataclasses import dataclass, field

import pytest

import jobs.evaluate
from jobs.evaluate import CorpusRunner
from jobs.ingest import RunnerName
from rag_core.config import Settings
from rag_core.errors import SourceError, UnsharedFolderError
from rag_core.settings import load_settings

SETTINGS = load_settings(environment={})


@dataclass
class ScriptedRunners:
    """`build_runner` whose runners fail as `failures` says, or return their name."""

    failures: dict[RunnerName, Exception] = field(default_factory=dict)
    ran: list[RunnerName] = field(default_factory=list)

    def build(self, name: RunnerName, settings: Settings) -> "ScriptedRunner":
        assert settings is SETTINGS
        return ScriptedRunner(self, name)


@dataclass
class ScriptedRunner:
    runners: ScriptedRunners
    name: RunnerName

    def run(self, *_arguments: object) -> RunnerName:
        self.runners.ran.append(self.name)
        if failure := self.runners.failures.get(self.name):
            raise failure
        return self.name


def run_corpus(monkeypatch: pytest.MonkeyPatch, runners: ScriptedRunners) -> object:
    monkeypatch.setattr(jobs.evaluate, "build_runner", runners.build)
    return CorpusRunner(RunnerName.ray, SETTINGS).run(None, {}, [], lambda: None)


def test_the_cluster_ingests_a_corpus_that_all_nodes_see(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_corpus(monkeypatch, ScriptedRunners()) is RunnerName.ray


def test_this_process_ingests_a_corpus_that_only_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    runners = ScriptedRunners({RunnerName.ray: UnsharedFolderError("differs on 1 of 1 nodes")})
    assert run_corpus(monkeypatch, runners) is RunnerName.inline
    assert runners.ran == [RunnerName.ray, RunnerName.inline]


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="missing"):
        run_corpus(monkeypatch, ScriptedRunners({RunnerName.ray: SourceError("missing")}))
