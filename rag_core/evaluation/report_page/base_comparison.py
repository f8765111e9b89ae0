"""A run compared with its base, for the report."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.evaluation.comparison import ComparedMeasure
from rag_core.evaluation.gate import GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseComparison:
    """`base` describes the base. `refusal` is the reason if the run cannot be judged against it."""

    base: str
    rows: Sequence[ComparedMeasure] = ()
    gate: GateResult | None = None
    refusal: str = ""

    def row(self, measure: str) -> ComparedMeasure | None:
        return next((row for row in self.rows if row.measure == measure), None)

    def is_loss(self, measure: str) -> bool:
        """True if the gate fails a check of this measure."""
        checks = self.gate.checks if self.gate else ()
        return any(check.measure == measure and check.outcome == "fail" for check in checks)
