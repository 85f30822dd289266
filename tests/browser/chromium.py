"""Chromium without a screen, driven over its own protocol: what people would see and do, for tests and screenshots."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 45.0
"""Longest wait for anything; reached only when something is wrong."""
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--mute-audio", "--remote-debugging-port=0"),
    "--force-color-profile=srgb",
)


def find() -> str | None:
    """The browser's program; `None`: this machine has none (hack/setup-chromium)."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


class Tab:
    """One page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        """What the console shows as an error or warning, exceptions of scripts, and what the policy blocked."""
        self.asked: list[str] = []
        """Every URL that was asked for."""
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if "error" in told:
                    answer.set_exception(RuntimeError(told["error"]["message"]))
                else:
                    answer.set_result(told["result"])
            else:
                self._note(told["method"], told["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(params["entry"]["text"])

    async def send(self, method: str, **params: Any) -> Any:
        """One command of the protocol."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(WAIT_S):
            return await answer

    async def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        async with asyncio.timeout(WAIT_S):
            await self._loaded.wait()

    async def look(self, *, width: int, height: int, dark: bool, scale: float = 1.0) -> None:
        """Be a screen of this size, of somebody who likes it light or dark."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def run(self, script: str) -> Any:
        """What an expression gives; a promise is waited for."""
        told = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"]))
        return told["result"].get("value")

    async def until(self, script: str, claim: Callable[[Any], bool] = bool) -> Any:
        """Wait until an expression gives what is claimed of it."""
        async with asyncio.timeout(WAIT_S):
            while not claim(found := await self.run(script)):
                await asyncio.sleep(0.02)
        return found

    async def press(self, key: str) -> None:
        """A key of the keyboard."""
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key], **({"text": "\r"} if key == "Enter" else {}),
            )  # fmt: skip

    async def shoot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen as PNG. `whole`: the page to its end."""
        told = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(told["data"]))

    async def close(self) -> None:
        await self._socket.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Browser:
    """A running browser."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http = http
        self._address = address
        self._tabs: list[Tab] = []

    async def tab(self) -> Tab:
        """A new page."""
        async with self._http.put(f"http://{self._address}/json/new?about:blank") as reply:
            told = await reply.json()
        socket = await self._http.ws_connect(told["webSocketDebuggerUrl"], max_msg_size=0)
        tab = Tab(socket)
        self._tabs.append(tab)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.send(f"{domain}.enable")
        return tab

    async def close(self) -> None:
        for tab in self._tabs:
            await tab.close()


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser of its own, gone afterwards with all that it wrote."""
    program = find()
    if program is None:
        raise RuntimeError("no Chromium here: run hack/setup-chromium")
    folder = Path(tempfile.mkdtemp(prefix="pharos-chromium-"))
    flags = (*FLAGS, f"--user-data-dir={folder}")
    environ = os.environ | {"HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    process = await asyncio.create_subprocess_exec(
        program, *flags, "about:blank", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, env=environ,
    )  # fmt: skip
    reading: asyncio.Task[None] | None = None
    try:
        if process.stderr is None:
            raise RuntimeError("no pipe")
        async with asyncio.timeout(WAIT_S):
            address = await _address(process.stderr)
        reading = asyncio.create_task(_swallow(process.stderr))
        async with aiohttp.ClientSession() as http:
            browser = Browser(http, address)
            try:
                yield browser
            finally:
                await browser.close()
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if reading is not None:
            await reading
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _address(stderr: asyncio.StreamReader) -> str:
    async for line in stderr:
        found = re.search(rb"ws://([^/]+)/", line)
        if found is not None:
            return found[1].decode()
    raise RuntimeError("Chromium ended before it listened")


async def _swallow(stderr: asyncio.StreamReader) -> None:
    async for _ in stderr:
        pass
