"""The setting of the store: which ones there are, and how it is shown."""

import pytest

from durable_service.store_forms import is_known, kind_of, without_password


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("postgresql://ann@host:5432/tasks", "postgresql://ann@host:5432/tasks"),
        ("postgresql://ann:pw@host/tasks", "postgresql://ann:***@host/tasks"),
        (
            "postgresql://ann:pw@one:1,two:2/tasks?target_session_attrs=read-write",
            "postgresql://ann:***@one:1,two:2/tasks?target_session_attrs=read-write",
        ),
        # Of two signs the last one ends the password: the client library would have refused it.
        ("postgresql://ann:p@ss/word@host/tasks", "postgresql://ann:***@host/tasks"),
        (
            "postgresql://host/tasks?user=ann&password=pw&sslmode=require",
            "postgresql://host/tasks?user=ann&password=***&sslmode=require",
        ),
        ("postgresql://host/tasks?sslpassword=pw", "postgresql://host/tasks?sslpassword=***"),
        (
            "mongodb://ann:pw@one:1,two:2/tasks?replicaSet=set&tlsCertificateKeyFilePassword=pw",
            "mongodb://ann:***@one:1,two:2/tasks?replicaSet=set&tlsCertificateKeyFilePassword=***",
        ),
    ],
)
def test_no_password_is_shown(setting: str, shown: str) -> None:
    assert without_password(setting) == shown


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("memory:", "memory"),
        ("sqlite:///tasks.db", "sqlite"),
        ("postgresql://ann@one:1,two:2/tasks", "postgresql"),
        ("mongodb://one:1,two:2/tasks", "mongodb"),
        ("mongodb+srv://name/tasks", "mongodb"),
    ],
)
def test_what_there_is(setting: str, kind: str) -> None:
    assert (is_known(setting), kind_of(setting)) == (True, kind)


@pytest.mark.parametrize(
    "setting", ["", "memory", "sqlite:///", "mysql://host/tasks", "postgres://host/tasks"]
)
def test_what_there_is_not(setting: str) -> None:
    assert not is_known(setting)
