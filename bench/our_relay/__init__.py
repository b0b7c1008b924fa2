"""Starts this project's relay as a process and drives it with the work that the published relay gets."""
