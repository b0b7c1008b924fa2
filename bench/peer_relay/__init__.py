"""Installs, runs and drives the published relay (HTTP, polling), the peer this project is measured against."""
