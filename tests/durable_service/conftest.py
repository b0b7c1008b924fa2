"""Servers that tests of several folders share, each started once a session."""

from tests.durable_service.store.mongo_fixture import mongo_server

__all__ = ["mongo_server"]
