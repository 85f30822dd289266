"""The data plane: takes requests, forwards each to the target the core picked, relays the reply.

Forbidden here: imports of `pharos.control`, `pharos.obs` or `pharos.app`. They are handed in as callables.
"""
