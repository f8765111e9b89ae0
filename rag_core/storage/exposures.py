"""The questions of experiments: which variant answered, and how. They are deleted after `retention.replies` days."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from rag_core.errors import StoreError
from rag_core.storage.postgres import LIMIT_TIME, transaction
from rag_core.types import DEFAULT_TENANT

Variant: TypeAlias = Literal["control", "treatment"]

ADD = """
insert into exposures (tenant, answer_id, experiment, variant, share, bucket, conversation, seconds, error, abstained)
values (%(tenant)s, %(answer_id)s, %(experiment)s, %(variant)s, %(share)s, %(bucket)s, %(conversation)s, %(seconds)s,
  %(error)s, %(abstained)s)
on conflict do nothing"""
# The latest opinion counts: thumbs as -1, 0 and 1, stars from 1 to 5, both as numbers from 0 to 1.
RATED = """
select e.experiment, e.variant, e.share, e.bucket, e.conversation, e.tenant, e.seconds, e.error, e.abstained,
  (select coalesce((f.rating + 1) / 2.0, (f.stars - 1) / 4.0)::double precision from feedback f
    where f.tenant = e.tenant and f.answer_id = e.answer_id and (f.rating is not null or f.stars is not null)
    order by f.created_at desc, f.id limit 1) as quality
from exposures e where e.tenant = %(tenant)s and e.experiment = %(experiment)s order by e.created_at, e.answer_id"""
EXPERIMENTS = """
select experiment as name, (array_agg(share order by created_at desc, answer_id))[1] as share,
  count(distinct conversation) filter (where variant = 'control') as control,
  count(distinct conversation) filter (where variant = 'treatment') as treatment
from exposures where tenant = %(tenant)s group by experiment order by experiment"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """One question that was answered in an experiment.

    `share` is the intended share of the treatment. `conversation` is a hash. `error` is the type of the error that the
    answer failed with, or empty.
    """

    experiment: str
    variant: Variant
    bucket: int
    conversation: str
    share: float = 0.5
    tenant: str = DEFAULT_TENANT
    seconds: float = 0.0
    error: str = ""
    abstained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """An experiment that gateways have run, with its latest share. The variants' values count conversations."""

    name: str
    share: float
    control: int
    treatment: int


class Exposures:
    """The exposures of one tenant, over one connection."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection, self._tenant = connection, tenant

    def add(self, exposures: Mapping[str, Exposure], timeout: float = 60.0) -> None:
        """Stores exposures, by the ids of their answers, in one transaction. Each statement has `timeout` seconds.

        Raises StoreError.
        """
        rows = [{**asdict(exposure), "answer_id": id} for id, exposure in exposures.items()]
        try:
            with transaction(self._connection, self._tenant), self._connection.cursor() as cursor:
                cursor.execute(LIMIT_TIME, {"timeout_ms": round(1000 * timeout)})
                cursor.executemany(ADD, rows)
        except psycopg.Error as error:
            raise StoreError(f"the store refused the exposures: {str(error).strip()}") from error

    def read(self, experiment: str) -> Iterator[tuple[Exposure, float | None]]:
        """Yields the exposures of an experiment, oldest first, with the quality that a reader gave: from 0 to 1."""
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            for row in cursor.stream(RATED, {"tenant": self._tenant, "experiment": experiment}):
                yield Exposure(**{name: row[name] for name in row if name != "quality"}), row["quality"]

    def list_experiments(self) -> list[StoredExperiment]:
        """The experiments with stored exposures, by name."""
        with transaction(self._connection, self._tenant), self._connection.cursor(row_factory=dict_row) as cursor:
            return [StoredExperiment(**row) for row in cursor.execute(EXPERIMENTS, {"tenant": self._tenant})]
