"""Processes that are killed, frozen and robbed of their disk, around one store."""
