"""What people and Prometheus see: metrics, the status page, log lines, one JSON shape for backends and decisions.

Forbidden here: deciding anything, or changing what it reads; it is called back and renders.
"""
