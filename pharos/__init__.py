"""Pharos: a router for large language model engines."""

__version__ = "0.1.0"
