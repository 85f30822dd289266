"""Real engines in a minute: two llama.cpp processes on this machine with Pharos in front, to see it work.

Forbidden here: anything that serving real engines needs.
"""
