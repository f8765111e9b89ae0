"""The reload of profiles while a gateway serves."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from fastapi import FastAPI

from rag_core.errors import RagError
from serve.file_watch import POLL_SECONDS, FileWatch
from serve.gateway_settings import GatewaySettings, SettingsSource
from serve.profiles import ServedProfiles
from serve.shape.garbage_collection import freeze_loaded_objects
from serve.shape.reload import reload_gateway_settings, reload_settings

ProfilesBuilder: TypeAlias = Callable[[GatewaySettings], ServedProfiles]

_log = logging.getLogger(__name__)


class ProfileReload:
    """Replaces the profiles of an application. Requests in progress keep those that they started with.

    `error` is the reason why the last change was not applied; empty if it was.
    """

    def __init__(self, app: FastAPI, settings: GatewaySettings, source: SettingsSource, build: ProfilesBuilder) -> None:
        self.error = ""
        self._app, self._source, self._build = app, source, build
        self._started_with = self._settings = settings
        self._overrides: tuple[str, ...] = ()
        self._applying = asyncio.Lock()

    async def apply(self, settings: GatewaySettings | None = None, overrides: Sequence[str] | None = None) -> None:
        """Serves the profiles of these settings, with overrides for the gateway's own one. None keeps the current ones.

        Profiles that are loaded now are loaded again before they are served. Raises ConfigError or ModelError, and then
        changes nothing.
        """
        async with self._applying:
            settings = self._settings if settings is None else settings
            overrides = self._overrides if overrides is None else tuple(overrides)
            changed = settings.model_copy(update={"own": reload_settings(settings.own, overrides)})
            self._app.state.profiles = await asyncio.to_thread(self._replace, changed)
            self._settings, self._overrides, self.error = settings, overrides, ""
            freeze_loaded_objects()

    async def watch_file(self) -> None:
        """Applies the settings file whenever it changes, until cancelled. An invalid one is reported as `error`."""
        if not self._source.file:
            return
        watch = FileWatch(Path(self._source.file), self._source.digest)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(watch.has_changed):
                with self.report_errors():
                    await self.apply(await asyncio.to_thread(reload_gateway_settings, self._started_with, self._source))
                    _log.info("applied the changed settings of %s", self._source.file)

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """Logs an error of the block, and keeps it as `error`."""
        try:
            yield
        except RagError as error:
            self.error = str(error)
            _log.error("cannot apply the changed settings: %s", error)
        except Exception as error:  # noqa: BLE001 - users' own objects can raise anything; the watch must go on
            self.error = f"{type(error).__name__}: {error}"
            _log.exception("cannot apply the changed settings")

    def _replace(self, settings: GatewaySettings) -> ServedProfiles:
        profiles = self._build(settings)
        profiles.reuse(self._app.state.profiles)
        return profiles
