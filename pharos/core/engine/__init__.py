"""Engine adapters as data: probes, recipes, plans, detection. Bytes in, readings out.

Forbidden here: I/O and clocks; naming one engine outside its file under `recipes/`.
"""
