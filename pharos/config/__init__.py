"""Configuration: `pharos.yaml`, environment and command line to frozen records.

Nothing here opens a socket, and nothing past this package reads YAML or the environment.
"""
