"""The shapes of experiments: `/v1/experiments`."""

from typing import Any, Literal

from pydantic import Field

from rag_core.wire.shape import Page, Shape


class ListedExperiment(Shape):
    """An experiment. `share` is that of the conversations that the treatment gets."""

    name: str
    running: bool = Field(description="this gateway's settings have the experiment")
    share: float
    conversations: dict[str, int] = Field(description="the number of stored conversations, by variant")


class Experiments(Page):
    data: list[ListedExperiment]


class ShownExperiment(ListedExperiment):
    """An experiment with its report, as `rag experiment --json` prints it."""

    report: dict[str, Any] | None
    reason: str = Field(description="why there is no report; empty if there is one")


class Assignment(Shape):
    """The variant of a conversation. `bucket` is its number from 0 to 9,999; the lowest ones get the treatment."""

    experiment: str
    unit: str
    variant: Literal["control", "treatment"]
    bucket: int
