import socket

import httpx
import pytest

from service_common.metrics import Metrics


def test_metrics_are_shown_on_loopback_over_http() -> None:
    metrics = Metrics()
    metrics.counter("sealwork_claims", "Claims.", ("site",)).labels("s").inc(3)
    metrics.gauge("sealwork_sessions", "Sessions.").set(2)
    metrics.histogram("sealwork_wait_seconds", "Waits.", buckets=(1.0, 5.0)).observe(2)
    endpoint = metrics.expose(0)
    try:
        response = httpx.get(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10)
    finally:
        endpoint.close()
    assert response.status_code == 200
    lines = response.text.splitlines()
    assert 'sealwork_claims_total{site="s"} 3.0' in lines
    assert "sealwork_sessions 2.0" in lines
    assert 'sealwork_wait_seconds_bucket{le="1.0"} 0.0' in lines
    assert 'sealwork_wait_seconds_bucket{le="5.0"} 1.0' in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


def test_a_closed_endpoint_frees_its_port() -> None:
    endpoint = Metrics().expose(0)
    port = endpoint.port
    endpoint.close()
    with pytest.raises(OSError, match=r"refused"), socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


def test_two_servers_in_one_process_do_not_clash() -> None:
    first, second = Metrics(), Metrics()
    first.counter("sealwork_claims", "Claims.").inc()
    second.counter("sealwork_claims", "Claims.")
    assert first.value("sealwork_claims_total") == 1.0
    assert second.value("sealwork_claims_total") == 0.0


def test_a_taken_port_is_an_error() -> None:
    endpoint = Metrics().expose(0)
    try:
        with pytest.raises(OSError, match=r"in use"):
            Metrics().expose(endpoint.port)
    finally:
        endpoint.close()
