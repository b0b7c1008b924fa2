"""The outside world of the example: a shop's HTTP interface that honours idempotency keys.

    python examples/python/durable/orders.py --port 8090

POST /orders with an Idempotency-Key places an order, once for each key. GET /orders/KEY tells of it, and
GET /orders lists all of them. With --slow SECONDS the answer to a POST comes that long after the order was
placed, so that there is time to kill whoever waits for it.
"""

import argparse
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

LIMIT_BYTES = 65_536


class Shop:
    """The orders, by key."""

    def __init__(self) -> None:
        self.orders: dict[str, dict[str, object]] = {}
        self._lock = threading.Lock()

    def place(self, key: str, wanted: object) -> tuple[dict[str, object], bool]:
        """Returns the order of this key, and whether it is new."""
        with self._lock:
            known = self.orders.get(key)
            if known is not None:
                return known, False
            order = {"number": len(self.orders) + 1, "wanted": wanted}
            self.orders[key] = order
            return order, True


class Handler(BaseHTTPRequestHandler):
    shop: Shop
    slow: threading.Event
    slow_seconds: float

    def do_POST(self) -> None:
        key = self.headers.get("Idempotency-Key", "")
        length = int(self.headers.get("Content-Length", "0"))
        if self.path != "/orders" or not key or length > LIMIT_BYTES:
            self.answer(400, {"error": "POST /orders with an Idempotency-Key"})
            return
        order, new = self.shop.place(key, json.loads(self.rfile.read(length)))
        print(f"order {order['number']} {'placed' if new else 'asked for again'}", flush=True)
        self.slow.wait(self.slow_seconds)
        self.answer(201 if new else 200, order, place=f"/orders/{order['number']}")

    def do_GET(self) -> None:
        if self.path == "/orders":
            self.answer(200, list(self.shop.orders.values()))
            return
        order = self.shop.orders.get(unquote(self.path.removeprefix("/orders/")))
        if order is None:
            self.answer(404, {"error": "no order with this key"})
        else:
            self.answer(200, order, place=f"/orders/{order['number']}")

    def answer(self, status: int, body: object, place: str = "") -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if place:
            self.send_header("Location", place)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description="A shop that takes orders, once for each key.")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    handler = type("ShopHandler", (Handler,), {"shop": Shop(), "slow": threading.Event()})
    handler.slow_seconds = options.slow  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", options.port), handler) as server:
        server.daemon_threads = True
        print(f"orders at http://127.0.0.1:{server.server_port}/orders", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
