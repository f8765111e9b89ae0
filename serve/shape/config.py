"""A Serve config, held to its word. Serve itself passes over keys that it does not know, and so over every typo."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from rag_core.config import Settings
from rag_core.errors import ConfigError
from serve.models.batches import batch_settings
from serve.models.distributed import NAMES
from serve.shape.arguments import GATEWAY, Arguments, deployment_names, settings_of
from serve.shape.reload import changed_while_serving, user_config

BUILDER = "serve.app:build"


def is_shape(file: Path) -> bool:
    """Whether a YAML file is a Serve config, and not one of settings."""
    document = _read(file)
    return isinstance(document, dict) and "applications" in document


def read_shape(file: Path) -> ServeDeploySchema:
    """ConfigError names the file, the place in it, the rule and the value."""
    try:
        return checked(_read(file))
    except ConfigError as error:
        raise ConfigError("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from None


def checked(document: object) -> ServeDeploySchema:
    """What Serve would make of it, if nothing in it is unknown or cannot be. ConfigError names the place."""
    if unknown := list(_unknown(document, ServeDeploySchema, ())):
        raise ConfigError("\n".join(unknown))
    try:
        shape = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(_told(each) for each in error.errors())) from None
    if functions := shape.grpc_options.grpc_servicer_functions:
        raise ConfigError(
            f"without keys only HTTP on loopback is served: grpc_options.grpc_servicer_functions must be empty, got"
            f" {', '.join(functions)}"
        )
    for number, application in enumerate(shape.applications):
        _check_application(application, ("applications", number))
    return shape


class _UniqueKeys(yaml.SafeLoader):
    """YAML's own loader takes the last of two equal keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = Counter(str(key.value) for key, _ in node.value)
        if twice := [key for key, count in seen.items() if count > 1]:
            raise yaml.MarkedYAMLError("a key stands twice", node.start_mark, twice[0], node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _read(file: Path) -> object:
    try:
        return yaml.load(file.read_text(), _UniqueKeys)  # noqa: S506 a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}, line {line}: {error.context or 'no YAML'}: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None


def _unknown(given: object, form: type[BaseModel], place: tuple[str | int, ...]) -> Iterator[str]:
    if not isinstance(given, Mapping):
        if not place:
            yield f"the file must be a mapping with the key applications, got {given!r:.60}"
        return
    fields = form.model_fields
    names = {alias: field for field in fields.values() if (alias := field.alias)} | fields
    for key, value in given.items():
        if key not in names:
            yield f"{_at(place)}: there is no key {key}{_perhaps(str(key), list(names))}"
        elif inner := _form(names[key].annotation):
            for number, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
                yield from _unknown(each, inner, (*place, key) if number is None else (*place, key, number))


def _form(annotation: object) -> type[BaseModel] | None:
    """The model in an annotation, wherever it stands in it; there is never more than one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((form for part in get_args(annotation) if (form := _form(part))), None)


def _check_application(application: ServeApplicationSchema, place: tuple[str | int, ...]) -> None:
    given = Counter(deployment.name for deployment in application.deployments)
    if twice := [name for name, count in given.items() if count > 1]:
        raise ConfigError(f"{_at((*place, 'deployments'))}: {', '.join(twice)} stands there twice")
    if application.import_path == BUILDER:
        _check_graph(application, place)


def _check_graph(application: ServeApplicationSchema, place: tuple[str | int, ...]) -> None:
    try:
        arguments = Arguments.model_validate(application.args)
    except ValidationError as error:
        lines = [_told(each, (*place, "args")) for each in error.errors()]
        raise ConfigError("\n".join(lines)) from None
    settings, names = settings_of(arguments), deployment_names(arguments)
    for number, deployment in enumerate(application.deployments):
        here = _at((*place, "deployments", number))
        if deployment.name not in names:
            raise ConfigError(f"{here}.name must be one that args ask for ({', '.join(names)}), got {deployment.name}")
        if isinstance(deployment.user_config, dict):
            _check_user_config(deployment.name, deployment.user_config, settings, here)


def _check_user_config(name: str, given: Mapping[str, Any], settings: Settings, place: str) -> None:
    try:
        if name == GATEWAY:
            changed_while_serving(settings, user_config(given).set)
        elif name in NAMES.values():
            batch_settings(given)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{place}: {line}" for line in str(error).splitlines())) from None


def _told(error: Any, place: tuple[str | int, ...] = ()) -> str:
    return f"{_at((*place, *error['loc']))}: {error['msg']}, got {error['input']!r:.60}"


def _at(place: Sequence[str | int]) -> str:
    """`applications[0].deployments[2]`"""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".") or "the file"


def _perhaps(key: str, known: Sequence[str]) -> str:
    near = get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else f", only {', '.join(sorted(known))}"
