"""The status page as people have it: in a browser, light and dark, on a phone, by keyboard, while it renews itself."""

import itertools

from tests.browser.chromium import Browser, Tab
from tests.browser.conftest import HOSTILE, Stage

WIDTHS = (1280, 900, 390, 320)
UNFOLD = "document.querySelectorAll('details').forEach(it => it.open = true)"
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(it => {
  const box = it.getBoundingClientRect();
  return box.right > innerWidth + 1 && box.width > 0 && !it.closest('.scroll, nav, .skip, .clip, .label');
}).map(it => it.className || it.nodeName).slice(0, 5)"""
PALE = """(() => {
  const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const mixed = (colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const one of colours) { pen.fillStyle = one; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map(it => it / 255).map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pale = new Set();
  for (const it of document.querySelectorAll('body *')) {
    const has = [...it.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!has || !it.checkVisibility() || it.closest('script, .skip, .lost')) continue;
    const behind = [];
    for (let at = it; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const [one, other] = [light(mixed(behind)), light(mixed([...behind, getComputedStyle(it).color]))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) pale.add(`${it.className || it.nodeName} ${ratio.toFixed(2)}`);
  }
  return [...pale];
})()"""
UNNAMED = """[...document.querySelectorAll('svg, [role=img], table, button, a, details > summary, section, article')]
.filter(it => !it.closest('[aria-hidden=true]') && it.checkVisibility()).filter(it => {
  const by = it.getAttribute('aria-labelledby');
  return it.nodeName === 'TABLE' ? !it.closest('[aria-label]')
    : !(it.getAttribute('aria-label') || it.textContent.trim() || (by && document.getElementById(by)));
}).map(it => it.outerHTML.slice(0, 80))"""


async def opened(browser: Browser, stage: Stage, *, width: int = 1280, height: int = 800, dark: bool = False) -> Tab:
    tab = await browser.tab()
    await tab.look(width=width, height=height, dark=dark)
    await tab.open(f"{stage.url}/status")
    return tab


async def renew(tab: Tab) -> None:
    """Have the page renewed now, once a renewal under way has ended."""
    await tab.run("(async () => { while (busy) await new Promise(then => setTimeout(then, 5)); await renew(); })()")


async def test_it_fits_every_screen_is_legible_in_light_and_dark_and_asks_for_nothing_else(
    browser: Browser, stage: Stage
) -> None:
    tab = await opened(browser, stage)
    grounds = set()
    for dark in (False, True):
        for width in WIDTHS:
            await tab.look(width=width, height=800, dark=dark)
            await tab.run(UNFOLD)
            assert await tab.run("document.documentElement.scrollWidth - innerWidth") <= 0, width
            assert await tab.run(TOO_WIDE) == [], width
        grounds.add(await tab.run("getComputedStyle(document.body).backgroundColor"))
        assert await tab.run(PALE) == []
    assert len(grounds) == 2
    assert await tab.run(UNNAMED) == []
    levels = await tab.run("[...document.querySelectorAll('h1, h2, h3')].map(it => Number(it.nodeName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert tab.complaints == []
    assert all(url.startswith((stage.url, "data:")) for url in tab.asked)


async def test_markup_in_names_of_models_backends_keys_and_events_stays_text(browser: Browser, stage: Stage) -> None:
    tab = await opened(browser, stage)
    await tab.run(UNFOLD)
    for _ in range(2):
        assert await tab.run("window.hit ?? null") is None
        assert await tab.run("document.querySelectorAll('#page img, #page script, #page [onload]').length") == 0
        assert HOSTILE in await tab.run("document.getElementById('main').innerText")
        assert await tab.run("document.title") == "(2) Pharos · 2 of 4 up"
        stage.request("another", HOSTILE)
        await renew(tab)
    assert tab.complaints == []


async def test_a_renewal_keeps_what_is_scrolled_open_and_focused(browser: Browser, stage: Stage) -> None:
    tab = await opened(browser, stage, height=500)
    await tab.run("""
      document.querySelector('[data-key="plan gpu-1"]').open = true;
      document.querySelector('[data-key="why request-17"]').open = true;
      document.querySelector('[data-key="plan gpu-1"] .scroll').scrollLeft = 7;
      document.querySelector('[data-key="why request-17"] summary').focus();
      window.mark = document.querySelector('[data-key="why request-17"]');
      document.querySelector('[data-key="request request-17"]').scrollIntoView();
    """)
    before = await tab.run("mark.getBoundingClientRect().top")
    assert await tab.run("scrollY") > 0
    stage.request("the-newest")
    stage.fleet.unreachable(stage.fleet.backends["gpu-2"], "gone")
    stage.happened.add("info", "something new", 1_800_000_000.0)
    await tab.run("document.getElementById('renew').click()")
    await tab.until("""!!document.querySelector('[data-key="request the-newest"]')""")
    assert "gone" in await tab.run("document.getElementById('backends').innerText")
    assert await tab.run("mark.isConnected && mark.open")
    assert await tab.run("""document.querySelector('[data-key="plan gpu-1"]').open""")
    assert await tab.run("document.activeElement === mark.querySelector('summary')")
    assert abs(await tab.run("mark.getBoundingClientRect().top") - before) < 250, "no jump to the top"
    assert await tab.run("""document.querySelector('[data-key="why the-newest"]').open""") is False
    assert await tab.run("document.querySelectorAll('article.request').length") == 15
    assert tab.complaints == []


async def test_requests_of_one_id_stay_as_many_as_they_are(browser: Browser, stage: Stage) -> None:
    """Clients may give each of theirs the same one."""
    for _ in range(3):
        stage.request("same")
    tab = await opened(browser, stage)
    count = """document.querySelectorAll('[data-key="request same"]').length"""
    assert await tab.run(count) == 3
    stage.request("same")
    for _ in range(2):
        await renew(tab)
        assert await tab.run(count) == 4
        assert await tab.run("document.querySelectorAll('article.request').length") == 15


async def test_it_says_when_pharos_does_not_answer_and_shows_what_was(browser: Browser, stage: Stage) -> None:
    tab = await opened(browser, stage)
    await stage.stop()
    await renew(tab)
    assert "Pharos does not answer: shown as it was at" in await tab.run("document.getElementById('lost').innerText")
    assert "gpu-1" in await tab.run("document.getElementById('backends').innerText")


async def test_it_is_used_by_keyboard_and_can_be_paused(browser: Browser, stage: Stage) -> None:
    tab = await opened(browser, stage)
    await tab.press("Tab")
    assert await tab.run("document.activeElement.className") == "skip"
    assert await tab.run("document.activeElement.getBoundingClientRect().left") > 0, "it is seen once it is reached"
    await tab.press("Enter")
    await tab.until("document.activeElement.id === 'main'")
    await tab.run("document.getElementById('pause').focus()")
    await tab.press("Enter")
    await tab.until("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
    stage.request("while-paused")
    await tab.run("tick()")
    assert await tab.run("""!document.querySelector('[data-key="request while-paused"]')""")
    await renew(tab)
    assert await tab.run("document.getElementById('pause').getAttribute('aria-pressed')") == "true"


async def test_without_scripts_everything_is_there_and_a_link_renews_it(browser: Browser, stage: Stage) -> None:
    tab = await browser.tab()
    await tab.look(width=900, height=800, dark=False)
    await tab.send("Emulation.setScriptExecutionDisabled", value=True)
    await tab.open(f"{stage.url}/status")
    document = await tab.send("DOM.getDocument")
    found = await tab.send(
        "DOM.querySelectorAll", nodeId=document["root"]["nodeId"], selector="#renew[href], #pause[hidden], details"
    )
    assert len(found["nodeIds"]) > 10
    assert tab.complaints == []
