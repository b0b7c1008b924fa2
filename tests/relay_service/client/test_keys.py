import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.keys import KeyFileError, Keys
from relay_service.core.identity import verify_binding

pytestmark = pytest.mark.interop

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors/relay.json").read_bytes())
NAMES = ["site", "site2", "device", "other"]
STORED: dict[str, Any] = VECTORS["keys"]["site"]


def written(folder: Path, value: object, mode: int = 0o600) -> Path:
    path = folder / "keys.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    path.chmod(mode)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_stored_keys_of_the_vectors_load(name: str, tmp_path: Path) -> None:
    keys = Keys.load(written(tmp_path, VECTORS["keys"][name]))
    assert keys.key_id == VECTORS["key_ids"][name]
    assert keys.public.to_json() == VECTORS["public"][name]
    assert keys.created_at_ms == 1_790_000_000_000


@pytest.mark.parametrize("name", NAMES)
def test_saving_writes_what_was_loaded(name: str, tmp_path: Path) -> None:
    keys = Keys.load(written(tmp_path, VECTORS["keys"][name]))
    keys.save(tmp_path / "copy.json")
    stored = json.loads((tmp_path / "copy.json").read_bytes())
    assert stored == VECTORS["keys"][name]
    assert list(stored) == list(VECTORS["keys"][name])


@pytest.mark.parametrize(
    ("identity", "encryption", "public", "key_id"),
    [
        (
            1,
            2,
            {
                "identity": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
                "encryption": "zo060cy2M-x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk",
                "encryptionSig": "W-usdiwbkrP4VxQ6ATdhuUy2n5gztwxAptVa-GQcfUv8GdfzF5Sl8Q6bX7cgtOUS7HUxKlm6"
                "VKHbSyaolmQ5Ag",
            },
            "BYOLLM-6HTG-Z65X-B7YF-S53D-MHDA-NFMK",
        ),
        (
            3,
            4,
            {
                "identity": "7UkoxijRwsbq6QM4kFmVYSlZJzpcY_k2NsFGFKyHN9E",
                "encryption": "rAGyIJ6GNU-4UyN7XeD0-rE8f8v0M6YcAZNpYX_s8Qs",
                "encryptionSig": "mhFKAPJ6RGjscyA487JIoTvrwB04nHLViyezwkZ8uhf92l37Ds5caSy6tP7CCE56MDD5Mglk"
                "wed1cbgiy3ilDg",
            },
            "BYOLLM-PRQ8-CZX2-YCXF-WRPN-TTRP-8BGP",
        ),
    ],
)
def test_the_public_half_of_fixed_seeds(
    identity: int, encryption: int, public: dict[str, str], key_id: str
) -> None:
    keys = Keys(bytes([identity]) * 32, bytes([encryption]) * 32, 1)
    assert keys.public.to_json() == public
    assert keys.key_id == keys.public.key_id == key_id
    assert keys.signer.public_key == keys.public.identity


def test_generated_keys_are_new_and_bound(tmp_path: Path) -> None:
    first, second = Keys.generate(), Keys.generate()
    assert first.key_id != second.key_id
    assert first.identity_seed != first.encryption_secret
    assert verify_binding(first.public)
    first.save(tmp_path / "keys.json")
    assert Keys.load(tmp_path / "keys.json") == first


def test_generation_takes_its_bytes_and_its_time_from_the_caller() -> None:
    source = iter([b"\x01" * 32, b"\x02" * 32])
    keys = Keys.generate(created_at_ms=7, random_bytes=lambda _count: next(source))
    assert keys == Keys(b"\x01" * 32, b"\x02" * 32, 7)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666])
def test_a_file_that_others_may_use_is_refused(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path, STORED, mode)
    with pytest.raises(KeyFileError) as caught:
        Keys.load(path)
    assert f"chmod 600 {path}" in str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_the_owner_alone_loads(mode: int, tmp_path: Path) -> None:
    assert Keys.load(str(written(tmp_path, STORED, mode))).key_id == VECTORS["key_ids"]["site"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_saving_gives_mode_600_under_every_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        Keys.generate().save(tmp_path / "keys.json")
    finally:
        os.umask(before)
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_saving_does_not_overwrite_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second = Keys.generate(), Keys.generate()
    first.save(path)
    with pytest.raises(FileExistsError):
        second.save(path)
    assert Keys.load(path) == first
    second.save(path, overwrite=True)
    assert Keys.load(path) == second
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_saving_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(_self: Path, _target: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    keys = Keys.generate()
    keys.save(tmp_path / "keys.json")
    assert Keys.load(tmp_path / "keys.json") == keys
    with pytest.raises(FileExistsError):
        Keys.generate().save(tmp_path / "keys.json")
    assert Keys.load(tmp_path / "keys.json") == keys


def test_saving_into_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Keys.generate().save(tmp_path / "absent" / "keys.json")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_half_way_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    keys = Keys.generate()
    keys.save(path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Keys.generate().save(path, overwrite=True)
    assert Keys.load(path) == keys
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


ENCRYPTION_DER = base64.b64decode(STORED["encryptionPrivate"])
IDENTITY_DER = base64.b64decode(STORED["identityPrivate"])


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"version": "1"},
        {"createdAt": 0},
        {"createdAt": -1},
        {"createdAt": True},
        {"createdAt": 1.5},
        {"createdAt": 9_007_199_254_740_992},
        {"note": "x"},
        {"identityPrivate": None},
        {"identityPrivate": ""},
        {"identityPrivate": "!!!"},
        {"identityPrivate": STORED["identityPrivate"] + "AAAA"},
        {"identityPrivate": STORED["encryptionPrivate"]},  # a key of the other algorithm
        {"encryptionPrivate": STORED["identityPrivate"]},
        {"identityPrivate": base64.b64encode(IDENTITY_DER[16:]).decode()},  # the seed alone
        {"identityPrivate": base64.b64encode(IDENTITY_DER[:-1]).decode()},
        {"encryptionPrivate": base64.b64encode(ENCRYPTION_DER + b"\x00").decode()},
        {"identityPublic": STORED["identityPublic"] + "="},
        {"identityPublic": VECTORS["keys"]["device"]["identityPublic"]},
        {"encryptionPublic": VECTORS["keys"]["device"]["encryptionPublic"]},
        {"encryptionSig": VECTORS["keys"]["device"]["encryptionSig"]},
        {"identityPrivate": VECTORS["keys"]["device"]["identityPrivate"]},
        {"encryptionPrivate": VECTORS["keys"]["device"]["encryptionPrivate"]},
    ],
)
def test_a_file_of_another_form_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = written(tmp_path, STORED | change)
    with pytest.raises(KeyFileError) as caught:
        Keys.load(path)
    assert str(path) in str(caught.value)
    assert STORED["identityPrivate"] not in str(caught.value)


@pytest.mark.parametrize("field", list(STORED))
def test_a_file_that_lacks_a_field_is_refused(field: str, tmp_path: Path) -> None:
    path = written(tmp_path, {name: value for name, value in STORED.items() if name != field})
    with pytest.raises(KeyFileError, match="not a key file"):
        Keys.load(path)


@pytest.mark.parametrize("document", ["", "{", "[]", "null", '"text"', "{}" + " " * 70_000])
def test_a_file_that_is_no_object_is_refused(document: str, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="not a key file"):
        Keys.load(written(tmp_path, document))


def test_a_broken_file_is_not_quoted_by_its_error(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(STORED)[:-1])
    with pytest.raises(KeyFileError) as caught:
        Keys.load(path)
    # Neither in its text nor in what it was raised from: a parser's exception holds the whole document.
    assert caught.value.__context__ is None
    assert STORED["identityPrivate"] not in repr(caught.value)


def test_a_folder_is_not_a_key_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        Keys.load(tmp_path)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Keys.load(tmp_path / "keys.json")


@pytest.mark.parametrize(("seed", "secret"), [(31, 32), (32, 31), (33, 32), (32, 33), (0, 32)])
def test_secrets_of_another_length_are_refused(seed: int, secret: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Keys(b"\x01" * seed, b"\x02" * secret, 1)


def test_the_text_form_shows_no_secret() -> None:
    keys = Keys(b"\x61" * 32, b"\x62" * 32, 1)
    for text in (repr(keys), str(keys), f"{keys}", repr([keys])):
        assert "a" * 32 not in text
        assert "b" * 32 not in text
        assert "seed" not in text
        assert "secret" not in text
