"""Strict validation of a Serve config. Serve itself ignores unknown keys, so it would not report a misspelled one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from rag_core.config import Settings
from rag_core.errors import ConfigError, format_path, suggest_name, validation_lines
from rag_core.private_files import check_private
from serve.models.batches import parse_batch_settings
from serve.models.model_connections import DEPLOYMENT_NAMES
from serve.shape.arguments import GATEWAY_NAME, Arguments, deployment_names, settings_from_arguments
from serve.shape.reload import parse_user_config, reload_settings

BUILDER = "serve.app:build"

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the top of the file."""


def is_serve_config(file: Path) -> bool:
    """True if a YAML file is a Serve config, False if it is a settings file."""
    document = _read_yaml(file)
    return isinstance(document, dict) and "applications" in document


def read_serve_config(file: Path) -> ServeDeploySchema:
    """Raises ConfigError with the file, the key, the rule and the value."""
    try:
        return parse_serve_config(_read_yaml(file))
    except ConfigError as error:
        raise ConfigError("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from None


def list_gateway_settings(config: ServeDeploySchema) -> dict[str, Settings]:
    """The settings of each gateway in the config, by the application's name. Raises ConfigError if they are invalid."""
    gateways = [app for app in config.applications if app.import_path == BUILDER]
    return {app.name: settings_from_arguments(Arguments.model_validate(app.args)) for app in gateways}


def parse_serve_config(document: object) -> ServeDeploySchema:
    """Raises ConfigError with the path and the message of each unknown key, or else of the first other errors."""
    if unknown := list(_unknown_keys(document, ServeDeploySchema, ())):
        raise ConfigError("\n".join(unknown))
    try:
        config = ServeDeploySchema.model_validate(document)
    except ValidationError as failure:
        raise ConfigError("\n".join(validation_lines(failure))) from None
    if functions := config.grpc_options.grpc_servicer_functions:
        raise ConfigError(
            "the gateway authenticates callers of its HTTP routes only: "
            f"grpc_options.grpc_servicer_functions must be empty, got {', '.join(functions)}"
        )
    for index, application in enumerate(config.applications):
        path = "applications", index
        counts = Counter(deployment.name for deployment in application.deployments)
        if duplicates := [name for name, count in counts.items() if count > 1]:
            raise ConfigError(f"{format_path(*path, 'deployments')}: duplicate deployment {', '.join(duplicates)}")
        if application.import_path == BUILDER:  # the arguments of other builders can be anything
            _check_arguments(application, path)
    return config


class _UniqueKeyLoader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys. SafeLoader uses the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        counts = Counter(str(key.value) for key, _ in node.value)
        if duplicates := [key for key, count in counts.items() if count > 1]:
            raise yaml.MarkedYAMLError("duplicate key", node.start_mark, duplicates[0], node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def _read_yaml(file: Path) -> object:
    try:
        document = yaml.load(file.read_text(), _UniqueKeyLoader)  # noqa: S506 a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file}, line {line}: {error.context or 'invalid YAML'}: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    if isinstance(document, dict):
        check_private(file, document)
    return document


def _unknown_keys(value: object, model: type[BaseModel], path: KeyPath) -> Iterator[str]:
    """Yields an error message for each key that is not a field of the model or of a nested model."""
    if not isinstance(value, Mapping):
        if not path:
            yield f"the file must be a mapping with the key applications, got {value!r:.60}"
        return
    fields = model.model_fields
    names = {alias: field for field in fields.values() if (alias := field.alias)} | fields
    for key, member in value.items():
        if key not in names:
            hint = suggest_name(str(key), names) or f"; the keys are {', '.join(sorted(names))}"
            yield f"{format_path(*path)}: unknown key {key}{hint}"
        elif inner := _find_model(names[key].annotation):
            for index, part in enumerate(member) if isinstance(member, list) else [(None, member)]:
                yield from _unknown_keys(part, inner, (*path, key) if index is None else (*path, key, index))


def _find_model(annotation: object) -> type[BaseModel] | None:
    """The model in an annotation such as `list[Model] | None`, or None. Serve's annotations have at most one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _find_model(part))), None)


def _check_arguments(application: ServeApplicationSchema, path: KeyPath) -> None:
    try:
        arguments = Arguments.model_validate(application.args)
    except ValidationError as failure:
        raise ConfigError("\n".join(validation_lines(failure, *path, "args"))) from None
    settings, names = settings_from_arguments(arguments), deployment_names(arguments)
    for index, deployment in enumerate(application.deployments):
        position = format_path(*path, "deployments", index)
        if deployment.name not in names:
            raise ConfigError(
                f"{position}.name must be a deployment of args ({', '.join(names)}), got {deployment.name}"
            )
        if isinstance(deployment.user_config, dict):
            _check_user_config(deployment.name, deployment.user_config, settings, position)


def _check_user_config(name: str, config: Mapping[str, Any], settings: Settings, position: str) -> None:
    try:
        if name == GATEWAY_NAME:
            reload_settings(settings, parse_user_config(config).set)
        elif name in DEPLOYMENT_NAMES.values():
            parse_batch_settings(config)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{position}: {line}" for line in str(error).splitlines())) from None
