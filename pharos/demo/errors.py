"""What keeps the demo from starting, as a sentence for the person who started it. Nothing else is raised on purpose."""


class DemoError(Exception):
    """The demo cannot start or go on; the message says why and what to do."""
