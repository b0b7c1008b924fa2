"""Where the operator's policy is, and how it is reached."""

from pathlib import Path

import pytest

from relay_service.config import load_settings
from relay_service.process import open_policy
from service_common.errors import SettingsError


def fault(**flags: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings({"dev": True, **flags})
    return str(caught.value)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:7500", "[::1]:7500", "policy.internal:7500", "unix:/run/policy"]
)
def test_an_address_is_taken(address: str) -> None:
    assert load_settings({"dev": True, "policy": address}).policy == address


def test_what_is_no_address_is_refused() -> None:
    assert fault(policy="7500") == (
        "--policy: '7500' is no address: write HOST:PORT, [IPV6]:PORT or unix:PATH"
    )


def test_roots_without_a_policy_are_refused(tmp_path: Path) -> None:
    assert fault(policy_ca=tmp_path / "ca.pem") == "--policy-ca is for --policy, which is not given"


def test_a_key_that_nobody_signs_with_is_refused(tmp_path: Path) -> None:
    assert fault(control_plane_key=tmp_path / "key.json") == (
        "--control-plane-key without --policy: devices would wait for signed grants that nobody gives; say "
        "--policy ADDRESS, or leave the key out"
    )


async def test_roots_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    settings = load_settings({"dev": True, "policy": "policy:7500", "policy_ca": tmp_path / "ca.pem"})
    with pytest.raises(SettingsError) as caught:
        open_policy(settings)
    assert str(caught.value) == f"--policy-ca: {tmp_path / 'ca.pem'}: No such file or directory"


@pytest.mark.parametrize(
    ("flags", "secure"),
    [
        ({"policy": "127.0.0.1:7500"}, False),
        ({"policy": "localhost:7500"}, False),
        ({"policy": "unix:/run/policy"}, False),
        ({"policy": "policy.internal:7500"}, True),
        (
            {"policy": "policy.internal:7500", "dev": False, "behind_mesh": True, "projection": "p.json"},
            False,
        ),
    ],
)
async def test_plaintext_only_where_nobody_else_listens(
    flags: dict[str, object], secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    monkeypatch.setattr(
        "relay_service.process.PolicyClient", lambda address, credentials=None: given.append(credentials)
    )
    open_policy(load_settings({"dev": True} | flags))
    assert [credentials is not None for credentials in given] == [secure]


async def test_without_an_address_there_is_no_policy() -> None:
    assert open_policy(load_settings({"dev": True})) is None
