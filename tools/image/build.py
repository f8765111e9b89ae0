"""The layers of a stage, made by executing its instructions. Layers of unchanged instructions are kept."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from tools.image.dockerfile import Dockerfile, Instruction, expand, is_ignored, read_assignments, read_command
from tools.image.layers import Root, mount_layers

WITHOUT_EFFECT = ("LABEL", "EXPOSE", "HEALTHCHECK")


@dataclass(frozen=True, slots=True)
class Image:
    """The layers of a stage from the bottom to the top, and how commands run in it."""

    layers: tuple[Path, ...]
    environment: Mapping[str, str]
    arguments: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        return {**self.arguments, **self.environment}


@dataclass(frozen=True, slots=True)
class Builder:
    """The builder of a Dockerfile's stages.

    `bottom`: the image that every stage without a parent stage begins with. `shared`: paths of this machine that
    commands of `RUN` see, read-only. `environment`: variables that only these commands have. A change of either
    makes no new layers.
    """

    dockerfile: Dockerfile
    context: Path
    ignored: tuple[str, ...]
    folder: Path
    bottom: Image
    build_arguments: Mapping[str, str]
    shared: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def build(self, name: str) -> Image:
        """Raises KeyError if there is no such stage."""
        stage = self.dockerfile.stage(name)
        if stage is None:
            raise KeyError(f"no stage {name} in the Dockerfile")
        parent = self.dockerfile.stage(stage.parent)
        image = replace(self.build(parent.name) if parent else self.bottom, arguments={})
        for instruction in stage.instructions:
            image = self._execute(instruction, image)
        return image

    def _execute(self, instruction: Instruction, image: Image) -> Image:
        name, value = instruction.name, instruction.value
        match name:
            case "RUN" | "COPY":
                return replace(image, layers=(*image.layers, self._add_layer(instruction, image)))
            case "ARG":
                argument, _, default = value.partition("=")
                text = self.build_arguments.get(argument, expand(default.strip('"'), image.variables))
                return replace(image, arguments={**image.arguments, argument: text})
            case "ENV":
                added = read_assignments(value, image.variables)
                return replace(image, environment={**image.environment, **added})
            case "WORKDIR" | "USER":
                return replace(image, **{name.lower(): value})
            case "VOLUME":
                return replace(image, volumes=(*image.volumes, value))
            case "ENTRYPOINT" | "CMD":
                return replace(image, **{name.lower(): tuple(read_command(value))})
        if name not in WITHOUT_EFFECT:
            raise ValueError(f"the instruction {name} is not supported")
        return image

    def _add_layer(self, instruction: Instruction, image: Image) -> Path:
        """The folder with the changes of `RUN` or `COPY`: that of an earlier build, if nothing has changed since."""
        copy = self._read_copy(instruction, image) if instruction.name == "COPY" else None
        variables = [f"{name}={value}" for name, value in image.variables.items()]
        parts = [*map(str, image.layers), image.workdir, *variables, str(instruction)]
        parts.extend(copy.describe() if copy else ())
        layer = self.folder / "layers" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        if not layer.exists():
            print(f"{instruction.name} {instruction.value:.100}", file=sys.stderr)
            unfinished = layer.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            with mount_layers(self.folder / "root", image.layers, unfinished) as root:
                root.make_folder(image.workdir)
                if copy:
                    copy.execute(root, self.folder / "source")
                else:
                    self._run(root, instruction.value, image)
            unfinished.rename(layer)
        return layer

    def _run(self, root: Root, command: str, image: Image) -> None:
        for path in self.shared:
            root.mount(path, str(path), read_only=True)
        variables = {**image.variables, **self.environment}
        if code := root.run(["/bin/sh", "-c", command], variables, image.workdir, image.user):
            raise RuntimeError(f"exit code {code}: RUN {command}")

    def _read_copy(self, instruction: Instruction, image: Image) -> "Copy":
        """A target that ends with / is a folder."""
        words = instruction.value.split()
        layers: tuple[Path, ...] = ()
        if words[0].startswith("--from="):
            layers = self.build(words.pop(0).removeprefix("--from=")).layers
        target = str(PurePosixPath(image.workdir) / words[-1]) + ("/" if words[-1].endswith("/") else "")
        return Copy(tuple(words[:-1]), target, layers, self.context, self.ignored)


@dataclass(frozen=True, slots=True)
class Copy:
    """What a `COPY` does. `layers` are those of `--from`; without them the files are in `context`."""

    sources: tuple[str, ...]
    target: str
    layers: tuple[Path, ...]
    context: Path
    ignored: tuple[str, ...]

    def describe(self) -> Iterator[str]:
        """Changes if a file that is copied does."""
        yield from map(str, self.layers)
        for source in () if self.layers else self.sources:
            for path in sorted((self.context / source).rglob("*")) or [self.context / source]:
                if path.is_file() and not self._is_ignored(path):
                    yield f"{path.relative_to(self.context)} {hashlib.sha256(path.read_bytes()).hexdigest()}"

    def execute(self, root: Root, source_folder: Path) -> None:
        """Raises FileNotFoundError for a source that is absent or ignored."""
        target = root.folder / self.target.lstrip("/")
        if self.layers:
            with mount_layers(source_folder, self.layers) as origin:
                for source in self.sources:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    subprocess.run(["cp", "-aT", str(origin.folder / source.lstrip("/")), str(target)], check=True)
            return
        for source in self.sources:
            self._copy_from_context(self.context / source, target)

    def _copy_from_context(self, source: Path, target: Path) -> None:
        if not source.exists() or self._is_ignored(source):
            raise FileNotFoundError(f"COPY {source.relative_to(self.context)}: it is absent or in .dockerignore")
        if source.is_dir():
            shutil.copytree(source, target, ignore=self._ignored_names, dirs_exist_ok=True)
        else:
            file = target / source.name if self.target.endswith("/") else target
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, file)

    def _ignored_names(self, folder: str, names: list[str]) -> set[str]:
        return {name for name in names if self._is_ignored(Path(folder) / name)}

    def _is_ignored(self, path: Path) -> bool:
        return is_ignored(PurePosixPath(path.relative_to(self.context)), self.ignored)
