"""Channel arguments of servers and clients.

gRPC ignores an argument that it does not know, so a misspelt one is a setting lost without a word: the names
are literal here and the tests spell them once more.
"""

from typing import Any, Final

ChannelOptions = tuple[tuple[str, Any], ...]

MAX_RECEIVE_BYTES: Final = 8 * 1024 * 1024

_KEEPALIVE: Final[ChannelOptions] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Its default of 60 s would overrule the keepalive timeout.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def server_options(
    *, so_reuseport: bool = False, channelz: bool = False, max_receive_bytes: int = MAX_RECEIVE_BYTES
) -> ChannelOptions:
    """Return a server's channel arguments.

    Args:
        so_reuseport: Let several processes share the port. Off, a port that is taken is an error; with the
            library's own default a second server would silently share it.
        channelz: Keep the records that channelz shows. They cost memory for every connection.
        max_receive_bytes: Largest message taken, in bytes.
    """
    return (
        *_KEEPALIVE,
        # Clients may ping every 10 s; the library's default of 5 min answers them with GOAWAY.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_permit_without_calls", 1),
        # The last resort: sessions end and move by our own notice long before.
        ("grpc.max_connection_age_ms", 3_600_000),
        ("grpc.max_connection_age_grace_ms", 300_000),
        ("grpc.max_concurrent_streams", 1000),
        ("grpc.max_receive_message_length", max_receive_bytes),
        ("grpc.so_reuseport", int(so_reuseport)),
        ("grpc.enable_channelz", int(channelz)),
    )


def session_channel_options() -> ChannelOptions:
    """Return the arguments of the channel that carries a client's session and nothing else."""
    return (*_client_options(), ("grpc.enable_retries", 0))


def calls_channel_options() -> ChannelOptions:
    """Return the arguments of the channel that carries a client's unary calls.

    The library would repeat a call with the very same metadata, and a nonce counts once: whoever signs a
    request repeats it, signed anew.
    """
    return session_channel_options()


def _client_options() -> ChannelOptions:
    return (
        *_KEEPALIVE,
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.max_reconnect_backoff_ms", 10_000),
        ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
        # Channels to one address share a connection otherwise, and bulk would delay the session's frames.
        ("grpc.use_local_subchannel_pool", 1),
    )
