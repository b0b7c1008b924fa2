"""Reading a public key from a file."""

import json
from pathlib import Path

import pytest

from relay_service.identity_file import IdentityFileError, load_public_key
from tests.relay_service.relay_fixture import keys_of

KEY_TEXT = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def test_a_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY_TEXT}\n")
    assert load_public_key(path) == bytes(range(32))


def test_the_key_of_an_identity(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    public = keys_of("control plane").public
    path.write_text(json.dumps(public.to_json()))
    assert load_public_key(path) == public.identity


@pytest.mark.parametrize("content", ["", "AAEC", f"{KEY_TEXT}=", f"{KEY_TEXT}A", "ä" * 43])
def test_anything_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content, "utf-8")
    with pytest.raises(IdentityFileError, match="neither a public identity nor 32 bytes"):
        load_public_key(path)


def test_private_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys_of("control plane").save(path)
    with pytest.raises(IdentityFileError, match="holds private keys"):
        load_public_key(path)


def test_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityFileError, match="cannot be read: No such file"):
        load_public_key(tmp_path / "none")
