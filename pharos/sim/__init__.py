"""The simulator: the real fleet, ledger, policies and prefix index on virtual time, in front of modelled engines.

Forbidden here: waiting, a clock, and deciding anything that the core decides. What an engine or a person would do is
modelled; what Pharos would do is done by its own code.
"""
