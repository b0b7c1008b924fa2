from random import Random

import pytest

from bench.our_relay.legs import Legs
from bench.peer_relay.party import new_party
from relay_service.client.envelope import EnvelopeRefused
from sealwork.relay.v1 import job_pb2

OK, ERROR = job_pb2.DISPOSITION_OK, job_pb2.DISPOSITION_ERROR
SITE, DEVICE = new_party("site", Random(1)), new_party("device", Random(2))
LEGS = Legs(SITE, DEVICE)


def test_a_job_s_two_legs() -> None:
    payload = LEGS.payload("job-1", "abc", DEVICE.keys.public)
    assert payload.direction == job_pb2.DIRECTION_PAYLOAD
    assert payload.recipient_key_id == DEVICE.keys.key_id
    result = LEGS.answer("job-1", payload)
    assert result.direction == job_pb2.DIRECTION_RESULT
    assert LEGS.is_right("job-1", "abc", OK, result)


def test_a_wrong_answer_is_not_right() -> None:
    result = LEGS.answer("job-1", LEGS.payload("job-1", "abc", DEVICE.keys.public))
    assert not LEGS.is_right("job-1", "abd", OK, result)
    assert not LEGS.is_right("job-2", "abc", OK, result)
    assert not LEGS.is_right("job-1", "abc", ERROR, result)
    assert not LEGS.is_right("job-1", "abc", OK, LEGS.canceled("job-1"))
    stranger = Legs(SITE, new_party("other", Random(3)))
    forged = stranger.answer("job-1", stranger.payload("job-1", "abc", stranger.device.keys.public))
    assert not LEGS.is_right("job-1", "abc", OK, forged)


def test_a_payload_of_another_job_is_not_answered() -> None:
    with pytest.raises(EnvelopeRefused):
        LEGS.answer("job-2", LEGS.payload("job-1", "abc", DEVICE.keys.public))
