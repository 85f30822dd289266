"""What is played: who comes when and asks what, on which engines, and the claim that the run is to look at.

Forbidden here: playing it.
"""

from typing import Final, Literal

import msgspec

SLOTS: Final = 2
"""Of each engine: those of the demo."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Some people of one kind. Lengths are in bytes of text, about four to a token."""

    kind: str
    count: int
    key: str
    turns: int
    system: int
    """Bytes of instructions, the same for all of this kind."""
    message: int
    """Median of a message."""
    reply: int
    """Most tokens of a reply."""
    think_s: float
    """Mean pause before the next turn."""
    comes_s: float = 0.0
    """They come within so many seconds."""
    models: tuple[int, ...] = (0,)
    """Which models of the run they use, by turns."""


def shorter(preset: "Preset", share: float) -> "Preset":
    """The same with texts of such a share: for a model whose tokens are single bytes."""
    roles = (
        msgspec.structs.replace(role, system=round(role.system * share), message=round(role.message * share))
        for role in preset.roles
    )
    return msgspec.structs.replace(preset, roles=tuple(roles))


class Kill(msgspec.Struct, frozen=True):
    """An engine's process is killed. It starts again by itself."""

    at_s: float
    engine: int | None = None
    """Its number; `None`: the first one from then on that is at work."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario."""

    name: str
    claim: str
    """What should be so if Pharos is right: a run shows whether it is."""
    roles: tuple[Role, ...]
    engines: int = 3
    kind: Literal["single", "router"] = "single"
    """Servers of one model, or llama-server in router mode: nothing is loaded at first, one model fits at a time."""
    models: int = 1
    kills: tuple[Kill, ...] = ()


PRESETS: Final = {
    preset.name: preset
    for preset in (
        Preset(
            name="cold-burst",
            claim="when everybody comes at once to engines that hold nothing, each model is loaded once and stays, and "
            "nobody is refused",
            roles=(
                Role(kind="burst", count=10, key="people", turns=2, system=1200, message=200, reply=24, think_s=3.0,
                     comes_s=0.5, models=(0, 1)),
            ),
            engines=2,
            kind="router",
            models=2,
        ),
        Preset(
            name="coding",
            claim="an agent's next step goes where its last one was: most of its prompt is cached, as Pharos foresaw",
            roles=(
                Role(kind="agent", count=4, key="agents", turns=8, system=2400, message=250, reply=24, think_s=0.5,
                     comes_s=4.0),
            ),
        ),
        Preset(
            name="noisy",
            claim="one key that floods the engines with long jobs does not keep another one waiting for longer than "
            "one of its replies",
            roles=(
                Role(kind="chat", count=3, key="people", turns=5, system=600, message=150, reply=24, think_s=3.0,
                     comes_s=2.0),
                Role(kind="job", count=24, key="flood", turns=1, system=300, message=600, reply=64, think_s=0.1,
                     comes_s=6.0),
            ),
        ),
        Preset(
            name="ops",
            claim="an engine that is killed takes its streams with it, which end with an error; all other requests are "
            "served, and it gets work again once it is back",
            roles=(
                Role(kind="chat", count=6, key="people", turns=6, system=600, message=150, reply=32, think_s=1.5,
                     comes_s=3.0),
            ),
            kills=(Kill(8.0),),
        ),
    )
}  # fmt: skip
