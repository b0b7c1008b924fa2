"""The projection that a relay tells an operator of."""

from relay_service.client.wire import identity_from_proto, milliseconds_of
from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    Roster,
    SuccessionLink,
)
from sealwork.relay.v1 import control_plane_pb2


def projection_of(message: control_plane_pb2.Projection) -> Projection:
    """Return the projection of a message; nothing about it is verified."""
    return Projection(
        sites=tuple(_site(site) for site in message.sites),
        consents=tuple(Consent(each.owner, each.site_id, each.paused) for each in message.consents),
        devices=tuple(
            ProjectedDevice(each.owner, each.runner_id, identity_from_proto(each.identity), each.revoked)
            for each in message.devices
        ),
        rosters=tuple(Roster(each.id, each.owner, tuple(each.members)) for each in message.rosters),
        revoked=tuple((pair.owner, pair.site_id) for pair in message.revoked),
        revision=message.revision,
    )


def _site(site: control_plane_pb2.ProjectedSite) -> ProjectedSite:
    retires = site.HasField("retiring_until_time")
    return ProjectedSite(
        site_id=site.site_id,
        identity=identity_from_proto(site.identity),
        succeeds=tuple(
            SuccessionLink(identity_from_proto(link.identity), link.signature) for link in site.succeeds
        ),
        retiring_until_ms=milliseconds_of(site.retiring_until_time) if retires else None,
    )
