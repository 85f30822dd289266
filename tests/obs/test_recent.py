from collections.abc import Callable

from pharos.obs.recent import KEPT, Recent
from pharos.proxy.done import Done


def test_the_newest_come_first_and_the_oldest_go(finished: Callable[..., Done]) -> None:
    recent = Recent()
    for number in range(KEPT + 10):
        recent.add(finished(request_id=str(number)))
    assert [done.request_id for done in recent] == [str(number) for number in range(KEPT + 9, 9, -1)]
    assert repr(recent) == f"<Recent {KEPT} of {KEPT}>"
