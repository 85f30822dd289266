"""The control plane: keeps the fleet's picture of its engines true. It never touches a client's request.

Forbidden here: imports of the data plane, of `obs` and of `app`; what happened is told through callbacks.
"""
