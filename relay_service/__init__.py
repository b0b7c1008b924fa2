"""Blind relay: matches jobs to devices and carries ciphertext that it cannot read."""
