"""The wheel holds what it should and works with nothing of the checkout on the path."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.wheel

_USE = """
import importlib.metadata, sys
unpacked, site_packages = sys.argv[1:]
sys.path[:0] = [unpacked]
# Appended as a plain folder: its .pth files, which may name the checkout, are not read.
sys.path.append(site_packages)
from sealwork.relay.v1 import daemon_plane_pb2, daemon_plane_pb2_grpc
import relay_connector, relay_service, service_common, durable_service
packages = (relay_connector, relay_service, service_common, durable_service)
for module in (daemon_plane_pb2, daemon_plane_pb2_grpc, *packages):
    assert module.__file__.startswith(unpacked), module.__file__
scripts = next(iter(importlib.metadata.distributions(name="sealwork", path=[unpacked]))).entry_points
print(*sorted(script.name for script in scripts if callable(script.load())))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("sealwork-*.whl"))


def test_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "durable_service",
        "relay_connector",
        "relay_service",
        "sealwork",
        "service_common",
    }
    assert "sealwork/py.typed" in names
    assert not [name for name in names if name.startswith("sealwork/") and name.endswith("__init__.py")]


def test_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)

    # -S: the .pth of an editable install would put the checkout on the path.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _USE, unpacked, sysconfig.get_path("purelib")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["durable-service", "relay-daemon", "relay-service", "relay-site"]
