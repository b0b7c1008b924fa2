"""Installs, runs and drives the published relay, the peer this project is measured against."""
