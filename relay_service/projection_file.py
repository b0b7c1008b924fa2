"""The projection as a JSON file: strict reading with precise complaints, and writing."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from relay_service.core.identity import SIGNATURE_BYTES, PublicIdentity, encode_base64url
from relay_service.core.limits import SUCCESSION_LINKS
from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    Roster,
    SuccessionLink,
)
from relay_service.projection_checks import check_projection
from relay_service.projection_fields import FieldReader, Findings, show_path
from relay_service.projection_json import JsonError, JsonLines, parse_json

# About 140,000 devices. More is rather a wrong file than a projection.
MAXIMUM_FILE_BYTES = 67_108_864
# The rest is counted: nobody corrects a thousand places by hand.
SHOWN_PROBLEMS = 100

_KEYS = ("sites", "consents", "devices", "rosters", "revoked", "revision")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a projection.

    Attributes:
        source: The file.
        line: Line in it from 1, where it is known.
        field: Path such as `devices[2].device.encryptionSig`; empty for the file as a whole.
        reason: What is wrong with that field.
    """

    source: str
    line: int | None
    field: str
    reason: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.field}: {self.reason}" if self.field else f"{place}: {self.reason}"


class ProjectionError(ValueError):
    """The projection cannot be used. The text has one line for each problem.

    Attributes:
        problems: The first of them.
        total: How many there are in all.
    """

    def __init__(self, problems: tuple[Problem, ...], total: int | None = None) -> None:
        self.problems = problems
        self.total = len(problems) if total is None else total
        lines = [str(problem) for problem in problems]
        if self.total > len(problems):
            lines.append(f"... and {self.total - len(problems)} more problems")
        super().__init__("\n".join(lines))

    @property
    def summary(self) -> str:
        """One line: the first problem, and how many there are."""
        rest = f" (and {self.total - 1} more)" if self.total > 1 else ""
        return f"{self.problems[0]}{rest}"


def read_projection_file(path: Path) -> bytes:
    """Return what is in the file.

    Raises:
        ProjectionError: It cannot be read, is no regular file or is too large.
    """
    try:
        # Not blocking: a FIFO without a writer would stop the whole process.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _whole(path, "is not a regular file")
            if status.st_size > MAXIMUM_FILE_BYTES:
                raise _whole(path, f"is larger than {MAXIMUM_FILE_BYTES} bytes")
            return file.read(MAXIMUM_FILE_BYTES)
    except OSError as error:
        raise _whole(path, f"cannot be read: {error.strerror}") from None


def load_projection(path: Path) -> Projection:
    """Read and check the file.

    Raises:
        ProjectionError: It cannot be read or something in it is wrong.
    """
    return parse_projection(read_projection_file(path), str(path))


def parse_projection(document: bytes | str, source: str, trusted: Projection | None = None) -> Projection:
    """Read and check a projection.

    Args:
        document: JSON.
        source: Name of the file, for complaints.
        trusted: A projection that was checked before; the identities in it need not be verified again, which
            is nearly all that checking costs.

    Returns:
        The projection; its revision is 0 when the document has none.

    Raises:
        ProjectionError: Everything that is wrong.
    """
    text = document if isinstance(document, str) else _decode(document, source)
    try:
        value = parse_json(text)
    except JsonError as error:
        raise ProjectionError((Problem(source, error.line, "", str(error)),)) from None
    projection, findings = read_projection(value, trusted)
    if findings.all:
        lines = JsonLines(text)
        shown = findings.all[:SHOWN_PROBLEMS]
        problems = (Problem(source, lines.line(path), show_path(path), reason) for path, reason in shown)
        raise ProjectionError(tuple(problems), len(findings.all))
    return projection


def read_projection(value: object, trusted: Projection | None = None) -> tuple[Projection, Findings]:
    """Read and check a projection that is a value already, of the objects that `parse_json` makes.

    Returns:
        The projection, and everything that is wrong with it; with anything, it cannot be used.
    """
    findings = Findings(_identities_of(trusted))
    projection = _read(FieldReader(value, (), _KEYS, findings))
    check_projection(projection, findings)
    return projection, findings


def format_projection(projection: Projection) -> str:
    """Return the JSON text of a projection, for people to read and edit."""
    return json.dumps(projection_to_json(projection), indent=2, ensure_ascii=False) + "\n"


def projection_to_json(projection: Projection) -> dict[str, object]:
    """Return the JSON object of a projection."""
    return {
        "revision": projection.revision,
        "sites": [_site_to_json(site) for site in projection.sites],
        "consents": [
            {"owner": consent.owner, "siteId": consent.site_id, "paused": consent.paused}
            for consent in projection.consents
        ],
        "devices": [_device_to_json(device) for device in projection.devices],
        "rosters": [
            {"id": roster.roster_id, "owner": roster.owner, "members": list(roster.members)}
            for roster in projection.rosters
        ],
        "revoked": [{"owner": owner, "siteId": site_id} for owner, site_id in projection.revoked],
    }


def _read(fields: FieldReader) -> Projection:
    site_keys = ("siteId", "site", "succeeds", "retiringUntil")
    device_keys = ("owner", "runnerId", "device", "revoked")
    return Projection(
        sites=tuple(_read_site(site) for site in fields.objects("sites", site_keys)),
        consents=tuple(
            Consent(consent.name("owner"), consent.caller("siteId"), consent.flag("paused"))
            for consent in fields.objects("consents", ("owner", "siteId", "paused"), required=True)
        ),
        devices=tuple(_read_device(device) for device in fields.objects("devices", device_keys)),
        rosters=tuple(
            Roster(roster.name("id"), roster.name("owner"), roster.names("members"))
            for roster in fields.objects("rosters", ("id", "owner", "members"))
        ),
        revoked=tuple(
            (pair.name("owner"), pair.caller("siteId"))
            for pair in fields.objects("revoked", ("owner", "siteId"))
        ),
        revision=fields.number("revision", 0) or 0,
    )


def _read_site(fields: FieldReader) -> ProjectedSite:
    return ProjectedSite(
        site_id=fields.caller("siteId"),
        identity=fields.identity("site"),
        succeeds=tuple(
            SuccessionLink(link.identity("identity"), link.key_bytes("signature", SIGNATURE_BYTES))
            for link in fields.objects("succeeds", ("identity", "signature"), most=SUCCESSION_LINKS)
        ),
        retiring_until_ms=fields.number("retiringUntil", 1),
    )


def _read_device(fields: FieldReader) -> ProjectedDevice:
    return ProjectedDevice(
        owner=fields.name("owner"),
        runner_id=fields.caller("runnerId"),
        identity=fields.identity("device"),
        revoked=fields.flag("revoked"),
    )


def _site_to_json(site: ProjectedSite) -> dict[str, object]:
    value: dict[str, object] = {"siteId": site.site_id, "site": site.identity.to_json()}
    if site.succeeds:
        value["succeeds"] = [
            {"identity": link.identity.to_json(), "signature": encode_base64url(link.signature)}
            for link in site.succeeds
        ]
    if site.retiring_until_ms is not None:
        value["retiringUntil"] = site.retiring_until_ms
    return value


def _device_to_json(device: ProjectedDevice) -> dict[str, object]:
    return {
        "owner": device.owner,
        "runnerId": device.runner_id,
        "device": device.identity.to_json(),
        "revoked": device.revoked,
    }


def _identities_of(projection: Projection | None) -> frozenset[PublicIdentity]:
    if projection is None:
        return frozenset()
    links = (link.identity for site in projection.sites for link in site.succeeds)
    sites = (site.identity for site in projection.sites)
    return frozenset((*sites, *links, *(device.identity for device in projection.devices)))


def _decode(document: bytes, source: str) -> str:
    try:
        return document.decode("utf-8")
    except UnicodeDecodeError as error:
        line = document.count(b"\n", 0, error.start) + 1
        raise ProjectionError((Problem(source, line, "", "is not UTF-8 text"),)) from None


def _whole(path: Path, reason: str) -> ProjectionError:
    return ProjectionError((Problem(str(path), None, "", reason),))
