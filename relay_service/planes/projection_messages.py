"""Between the messages of the control plane and projections, with every fault under its field's name."""

from relay_service.core.identity import encode_base64url
from relay_service.core.projection import Projection
from relay_service.planes.convert import identity_to_proto, milliseconds_of, timestamp_of
from relay_service.projection_fields import Findings, show_path
from relay_service.projection_file import ProjectionError, read_projection
from relay_service.projection_json import JsonObject, Path
from sealwork.relay.v1 import control_plane_pb2, job_pb2
from service_common.errors import FieldViolation, invalid_argument

# More than a status can carry anyway.
_SHOWN = 100
# Fields of the projection's document by their names on the wire, where the two differ.
_WIRE_NAMES = {
    "siteId": "site_id",
    "runnerId": "runner_id",
    "rosterId": "roster_id",
    "retiringUntil": "retiring_until_time",
    "encryptionSig": "encryption_signature",
    "device": "identity",
    "site": "identity",
}
# What the document has as text is bytes on the wire.
_AS_TEXT = " as unpadded base64url"


def projection_to_proto(projection: Projection) -> control_plane_pb2.Projection:
    """A projection as its message."""
    message = control_plane_pb2.Projection(revision=projection.revision)
    for site in projection.sites:
        projected = message.sites.add(site_id=site.site_id, identity=identity_to_proto(site.identity))
        for link in site.succeeds:
            projected.succeeds.add(identity=identity_to_proto(link.identity), signature=link.signature)
        if site.retiring_until_ms is not None:
            projected.retiring_until_time.CopyFrom(timestamp_of(site.retiring_until_ms))
    for consent in projection.consents:
        message.consents.add(owner=consent.owner, site_id=consent.site_id, paused=consent.paused)
    for device in projection.devices:
        message.devices.add(
            owner=device.owner,
            runner_id=device.runner_id,
            identity=identity_to_proto(device.identity),
            revoked=device.revoked,
        )
    for roster in projection.rosters:
        message.rosters.add(id=roster.roster_id, owner=roster.owner, members=roster.members)
    for owner, site_id in projection.revoked:
        message.revoked.add(owner=owner, site_id=site_id)
    return message


def projection_from_proto(
    message: control_plane_pb2.Projection, field: str, trusted: Projection
) -> Projection:
    """A message as a projection of revision 0, checked by the rules of the file.

    Args:
        field: Name of the message in its request.
        trusted: A projection that was checked before.

    Raises:
        ServiceError: FIELD_INVALID, naming what is wrong.
    """
    projection, findings = read_projection(_document(message), trusted)
    refuse(findings, field)
    return projection


def refuse(findings: Findings, field: str) -> None:
    """Raises FIELD_INVALID if there are any findings, under the names of the wire."""
    if findings.all:
        raise invalid_argument([_violation(field, path, reason) for path, reason in findings.all[:_SHOWN]])


def unsound(error: ProjectionError, field: str) -> list[FieldViolation]:
    """The faults of a change that is well-formed and would leave a projection that is not sound.

    Args:
        field: The change's name in its request, which answers for it.
    """
    return [
        FieldViolation(_field_of_place(field, each.field), _wire_text(each.reason)) for each in error.problems
    ]


def _field_of_place(field: str, place: str) -> str:
    """The field of a change that made what stands at a place such as `sites[2].succeeds[0].signature`."""
    steps = place.rpartition("].")[2].split(".")
    return ".".join((field, *(_WIRE_NAMES.get(step, step) for step in steps)))


def _violation(field: str, path: Path, reason: str) -> FieldViolation:
    names = tuple(_WIRE_NAMES.get(step, step) if isinstance(step, str) else step for step in path)
    return FieldViolation(f"{field}.{show_path(names)}" if names else field, _wire_text(reason))


def _wire_text(reason: str) -> str:
    return reason.partition(_AS_TEXT)[0]


def _document(message: control_plane_pb2.Projection) -> JsonObject:
    return JsonObject(
        sites=[_site(site) for site in message.sites],
        consents=[
            JsonObject(owner=consent.owner, siteId=consent.site_id, paused=consent.paused)
            for consent in message.consents
        ],
        devices=[
            JsonObject(
                owner=device.owner,
                runnerId=device.runner_id,
                device=identity_document(device.identity),
                revoked=device.revoked,
            )
            for device in message.devices
        ],
        rosters=[
            JsonObject(id=roster.id, owner=roster.owner, members=list(roster.members))
            for roster in message.rosters
        ],
        revoked=[JsonObject(owner=pair.owner, siteId=pair.site_id) for pair in message.revoked],
    )


def _site(site: control_plane_pb2.ProjectedSite) -> JsonObject:
    document = JsonObject(siteId=site.site_id, site=identity_document(site.identity))
    if site.succeeds:
        document["succeeds"] = [
            JsonObject(identity=identity_document(link.identity), signature=encode_base64url(link.signature))
            for link in site.succeeds
        ]
    if site.HasField("retiring_until_time"):
        document["retiringUntil"] = milliseconds_of(site.retiring_until_time)
    return document


def identity_document(identity: job_pb2.PublicIdentity) -> JsonObject:
    return JsonObject(
        identity=encode_base64url(identity.identity),
        encryption=encode_base64url(identity.encryption),
        encryptionSig=encode_base64url(identity.encryption_signature),
    )
