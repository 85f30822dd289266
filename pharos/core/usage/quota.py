"""What a key may use. Values only: whether it still may is the book's business."""

import msgspec


class Quota(msgspec.Struct, frozen=True, gc=False):
    """Limits of one key; a key without any has no quota at all. `None`: no such limit."""

    rpm: int | None = None
    """Requests in any 60 s, counted when they are let in."""
    tokens_per_day: int | None = None
    """Prompt and reply tokens in a day of `usage.timezone`, counted when the reply ends."""


def quota_of(rpm: int | None, tokens_per_day: int | None) -> Quota | None:
    """The quota of these limits; `None` without any."""
    return None if rpm is None and tokens_per_day is None else Quota(rpm, tokens_per_day)
