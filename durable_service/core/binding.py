"""Hashes that bind an effect to exactly what it will do, and keys derived from them."""

import hashlib

from durable_service.core.canonical_json import (
    CanonicalJson,
    canonical_json,
    canonical_object,
    digest,
    digest_text,
)
from durable_service.core.definition import TaskDefinition, TaskKey, identity_document


def binding_text(
    definition: TaskDefinition, connector_version: str, destination: str, args: CanonicalJson
) -> CanonicalJson:
    """What a prepared hash is over: the effect, and the authority under which it is done."""
    return canonical_object(
        {
            "args": args,
            "connectorVersion": canonical_json(connector_version),
            "destination": canonical_json(destination),
            "grantRefs": canonical_json(definition.grant_refs),
            "identity": canonical_json(identity_document(definition.identity)),
            "policyRevision": canonical_json(definition.policy_revision),
        }
    )


def prepared_hash(
    definition: TaskDefinition, connector_version: str, destination: str, args: CanonicalJson
) -> str:
    return digest_text(binding_text(definition, connector_version, destination, args))


def idempotency_key(key: TaskKey, action_id: str, hash_of_action: str) -> str:
    """What the remote side is given: stable over crashes, claims and a second dispatch."""
    return digest([key.tenant_id, key.task_id, action_id, hash_of_action])


def task_key_digest(key: TaskKey) -> str:
    return digest([key.tenant_id, key.task_id])


def bytes_digest(data: bytes) -> str:
    """`sha256:` and 64 lower-case hex digits over raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob_key(key: TaskKey, artifact_id: str, artifact_digest: str) -> str:
    """Where the bytes of an artifact are kept: 64 lower-case hex digits."""
    text = canonical_json([key.tenant_id, key.task_id, artifact_id, artifact_digest])
    return hashlib.sha256(text.encode()).hexdigest()
