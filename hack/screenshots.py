"""Renews the screenshots of the status page: a real fleet under load, light, dark, and on a phone.

Three llama.cpp engines with the tiny model (those of `pharos demo --tiny`), one of them drained, and an address where
nothing listens, Pharos in front, some clients with keys, and Chromium without a screen. Give a folder to write to that
instead of docs/.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import random
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pharos.app import App  # noqa: E402 - the path must be known before
from pharos.config import load  # noqa: E402
from pharos.control.fetch import new_session  # noqa: E402
from pharos.demo import model  # noqa: E402
from pharos.demo.children import Engines, Launch  # noqa: E402
from tests.browser.chromium import Browser, Tab, chromium  # noqa: E402

LOAD_S = 90.0
MOST_BYTES = 300_000
LIMITS: dict[str, dict[str, Any]] = {
    "alice": {"admin": True, "weight": 3},
    "bob": {"rpm": 300},
    "nightly-batch": {"tokens_per_day": 2_000_000},
    "open-webui": {},
}
"""Who asks, and what the key may."""
WORDS = (
    "lighthouse",
    "keeper",
    "lamp",
    "storm",
    "harbour",
    "signal",
    "mirror",
    "glass",
    "coast",
    "wave",
    "fog",
    "night",
)
VIEWS = (("light", 1280, False), ("dark", 1280, True), ("phone", 390, False))
PHONE_PIXELS = 2600
"""Of a phone's page, which goes on for long, the beginning is shown."""
UNFOLD = """
(() => {
  const unknown = document.querySelector('[data-key="unknown gpu-1"]');
  if (unknown) unknown.open = true;
  const costs = (it) => it.querySelectorAll('tbody rect').length;
  const why = [...document.querySelectorAll('.request details')].sort((one, other) => costs(other) - costs(one))[0];
  if (why && costs(why)) why.open = true;
  return document.documentElement.scrollHeight;
})()
"""
FEW_COLOURS = """
(async () => {
  const image = new Image();
  image.src = 'data:image/png;base64,DATA';
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
  pen.drawImage(image, 0, 0);
  const seen = new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer), count = new Map();
  for (const colour of seen) count.set(colour, (count.get(colour) || 0) + 1);
  const far = (a, b) => [0, 8, 16].reduce((sum, shift) => sum + ((a >> shift & 255) - (b >> shift & 255)) ** 2, 0);
  const wanted = [...count].sort((a, b) => b[1] - a[1]).map(([colour]) => colour), palette = wanted.slice(0, 150);
  for (const colour of wanted.slice(150)) {  // rare ones that nothing else is like: a legend's
    if (palette.length < 256 && palette.every((one) => far(one, colour) > 300)) palette.push(colour);
  }
  const place = new Map(palette.map((colour, index) => [colour, index]));
  const of = (colour) => {
    if (!place.has(colour)) {
      let best = 0, least = Infinity;
      palette.forEach((one, index) => {
        const off = far(one, colour);
        if (off < least) [least, best] = [off, index];
      });
      place.set(colour, best);
    }
    return place.get(colour);
  };
  const found = Uint8Array.from(seen, of);
  let text = '';
  for (let at = 0; at < found.length; at += 32768) text += String.fromCharCode(...found.subarray(at, at + 32768));
  return { width: image.width, height: image.height, palette, pixels: btoa(text) };
})()
"""
"""A picture with the 256 colours that it has most of, as numbers: the browser can read a PNG."""


def configuration(engines: list[Any]) -> str:
    """Keys for everybody, the engines, and one that is gone."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"phk-{name}".encode()).hexdigest(), **limits}
        for name, limits in LIMITS.items()
    ]
    backends = [{"name": f"gpu-{number}", "url": one.url} for number, one in enumerate(engines, 1)]
    backends.append({"name": "gpu-4", "url": "http://127.0.0.1:9", "kind": "vllm"})
    listens = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
    return json.dumps({**listens, "backends": backends, "keys": keys, "drain": {"grace": 0, "timeout": 0}})


async def client(http: aiohttp.ClientSession, url: str, name: str, chance: random.Random) -> None:
    """One user: conversations that grow, with pauses."""
    headers = {"Authorization": f"Bearer phk-{name}"}
    while True:
        messages = [{"role": "system", "content": f"You help {name}. " + " ".join(WORDS * 8)}]
        for _ in range(4):
            messages.append({"role": "user", "content": " ".join(chance.choices(WORDS, k=chance.randint(10, 160)))})
            body = {
                "model": model.TINY_NAME,
                "stream": True,
                "max_tokens": chance.randint(100, 900),
                "ignore_eos": True,
                "messages": messages,
            }
            with contextlib.suppress(aiohttp.ClientError):
                async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as reply:
                    await reply.read()
            messages.append({"role": "assistant", "content": " ".join(chance.choices(WORDS, k=12))})
            await asyncio.sleep(chance.uniform(0.1, 1.5))


@contextlib.asynccontextmanager
async def fleet() -> AsyncIterator[App]:
    """Engines, and Pharos in front of them."""
    folder = Path(tempfile.mkdtemp(prefix="pharos-shots-"))
    gguf = folder / "tiny.gguf"
    model.write_tiny(gguf, ends=True)
    engines = Engines(Launch(model=gguf, alias=model.TINY_NAME, logs=folder), 3, print)
    try:
        running = await engines.start()
        async with new_session() as session:
            app = App(load.parse(configuration(running), {}), session)
            async with app.tasks:
                await app.start()
                try:
                    await asyncio.wait_for(app.is_ready.wait(), 60)
                    yield app
                finally:
                    await app.end()
    finally:
        await engines.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def shoot(tab: Tab, url: str, folder: Path) -> None:
    """Three looks at the same page, with a decision and what is unknown unfolded."""
    for name, width, dark in VIEWS:
        await tab.look(width=width, height=900, dark=dark)
        await tab.open(url)
        height = await tab.run(UNFOLD)
        await tab.look(width=width, height=min(height, PHONE_PIXELS) if name == "phone" else height, dark=dark)
        await tab.shoot(folder / f"status-{name}.png")
    if tab.complaints:
        raise SystemExit(f"the console complains: {tab.complaints}")


async def shrink(browser: Browser, path: Path) -> None:
    """Write a picture again with 256 colours: a third of the size, and nobody sees it."""
    tab = await browser.tab()
    data = base64.b64encode(await asyncio.to_thread(path.read_bytes)).decode()
    found = await tab.run(FEW_COLOURS.replace("DATA", data))
    wide, high, pixels = found["width"], found["height"], base64.b64decode(found["pixels"])
    rows = b"".join(b"\0" + pixels[at : at + wide] for at in range(0, wide * high, wide))
    colours = b"".join(struct.pack("<I", one)[:3] for one in found["palette"])
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
        (b"PLTE", colours),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    await asyncio.to_thread(path.write_bytes, png)
    print(f"{path.name}: {wide} x {high}, {len(png) / 1000:.0f} kB")
    if len(png) > MOST_BYTES:
        raise SystemExit(f"{path} is too large")


async def main(folder: Path) -> None:
    """Have clients ask for a while, drain a backend for a moment, and look."""
    async with fleet() as app, aiohttp.ClientSession() as http, chromium() as browser:
        admin = f"http://127.0.0.1:{app.admin.port}"
        asking = [
            asyncio.create_task(client(http, app.url, name, random.Random(f"{name} {place}")))  # noqa: S311 - the same each time
            for name in LIMITS
            for place in range(3)
        ]
        try:
            await asyncio.sleep(LOAD_S * 0.8)
            async with http.post(f"{admin}/backend/gpu-3/drain") as reply:
                await reply.read()
            await asyncio.sleep(LOAD_S * 0.2)
            await shoot(await browser.tab(), f"{admin}/status", folder)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        for name, *_ in VIEWS:
            await shrink(browser, folder / f"status-{name}.png")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"))
