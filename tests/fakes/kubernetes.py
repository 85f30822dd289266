"""A double of the Kubernetes API for list and watch: pages, bookmarks, 410 and ERROR, and every way it goes wrong.

Shapes are those of core/v1 and discovery.k8s.io/v1. Nothing here sleeps; a watch ends when a test ends or cuts it.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


def meta(name: str, namespace: str = "models", uid: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "uid": uid if uid is not None else f"uid-{namespace}-{name}", **more}


def pod(
    name: str,
    ip: str = "10.0.0.1",
    *,
    ready: bool = True,
    phase: str = "Running",
    ports: tuple[tuple[str, int], ...] = (("http", 8080),),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "models",
    ending: bool = False,
    container: str = "engine",
) -> dict[str, Any]:
    more: dict[str, Any] = {"annotations": annotations or {}, "labels": labels or {}}
    if ending:
        more["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    listed = [{"name": it, "containerPort": number, "protocol": "TCP"} for it, number in ports]
    return {
        "metadata": meta(name, namespace, **more),
        "spec": {"containers": [{"name": container, "ports": listed}], "nodeName": "node-1"},
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def service(
    name: str,
    ports: tuple[tuple[str, int], ...] = (("http", 80),),
    *,
    annotations: dict[str, str] | None = None,
    kind: str = "ClusterIP",
    namespace: str = "models",
    selector: str | None = "engine",
) -> dict[str, Any]:
    listed = [{"name": it, "port": number, "protocol": "TCP"} for it, number in ports]
    return {
        "metadata": meta(name, namespace, annotations=annotations or {}),
        "spec": {"type": kind, "ports": listed, "selector": {"app": selector} if selector is not None else None},
    }


def endpoint(address: str, pod: str | None = None, *, namespace: str = "models", **conditions: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"addresses": [address], "conditions": conditions or {"ready": True}}
    if pod is not None:
        made["targetRef"] = {"kind": "Pod", "name": pod, "namespace": namespace, "uid": f"uid-{namespace}-{pod}"}
    return made


def endpoint_slice(
    service: str,
    *endpoints: dict[str, Any],
    ports: tuple[tuple[str, int], ...] = (("http", 8080),),
    family: str = "IPv4",
    namespace: str = "models",
    name: str | None = None,
) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    return {
        "metadata": meta(name if name is not None else f"{service}-{family.lower()}", namespace, labels=labels),
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": it, "port": number, "protocol": "TCP"} for it, number in ports],
    }


class FakeCluster:
    """The objects, what happened to them, and what the server does wrong now."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, dict[str, Any]]] = {"pods": {}, "services": {}, "endpointslices": {}}
        self.happened: list[tuple[int, str, str, dict[str, Any]]] = []
        """Version, resource, what, and the object."""
        self.compacted = 0
        """What happened up to this version can be watched no more."""
        self.always_gone = False
        """Every watch is too old."""
        self.denied: set[str] = set()
        """Resources that nobody may ask for, or a verb and one: `watch pods`."""
        self.broken: set[str] = set()
        """Resources that cannot be asked for now."""
        self.tokens = {"first"}
        self.status = 0
        """Answered to everything, when it is not 0."""
        self.headers: dict[str, str] = {}
        self.page = 500
        self.silent = False
        """Watches say nothing, as a connection does whose other side vanished."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.events: list[dict[str, Any]] = []
        self.logs: dict[str, list[bytes]] = {}
        """By namespace, Pod and container: what is sent of its log, part by part."""
        self._cut = 0
        self._said: list[bytes] = []
        self._news = asyncio.Condition()
        self.watching = 0
        self.url = ""

    async def put(self, resource: str, made: dict[str, Any]) -> None:
        """Create or change an object."""
        key = f"{made['metadata']['namespace']}/{made['metadata']['name']}"
        what = "MODIFIED" if key in self.objects[resource] else "ADDED"
        await self._happen(resource, what, key, made)

    async def delete(self, resource: str, name: str, namespace: str = "models") -> None:
        await self._happen(resource, "DELETED", f"{namespace}/{name}", self.objects[resource][f"{namespace}/{name}"])

    async def _happen(self, resource: str, what: str, key: str, made: dict[str, Any]) -> None:
        self.version += 1
        made = {**made, "metadata": {**made["metadata"], "resourceVersion": str(self.version)}}
        if what == "DELETED":
            del self.objects[resource][key]
        else:
            self.objects[resource][key] = made
        self.happened.append((self.version, resource, what, made))
        await self.notify()

    async def notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def cut(self) -> None:
        """End every watch that runs."""
        self._cut += 1
        await self.notify()

    async def say(self, line: bytes) -> None:
        """Send a line as it is on every watch that runs."""
        self._said.append(line)
        await self.notify()

    def compact(self) -> None:
        """Forget what happened."""
        self.compacted = self.version

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        resource = request.path.rsplit("/", 1)[1]
        query = dict(request.query)
        self.asked.append((request.path, query))
        if self.status or resource in self.broken:
            status = 500 if resource in self.broken else self.status
            return web.json_response({"kind": "Status", "code": status}, status=status, headers=self.headers)
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        verb = "watch" if query.get("watch") else "create" if request.method == "POST" else "list"
        if {resource, f"{verb} {resource}"} & self.denied:
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden"}, status=403)
        if resource == "selfsubjectaccessreviews":
            return web.json_response(self._review((await request.json())["spec"]["resourceAttributes"]), status=201)
        if request.method == "POST":
            self.events.append(await request.json())
            return web.json_response({}, status=201)
        if resource == "log":
            return await self._log(request, query)
        if query.get("watch"):
            return await self._watch(request, resource, query)
        if "/pods/" in request.path:
            return self._pod(request.path)
        return self._list(resource, query)

    def _review(self, asked: dict[str, str]) -> dict[str, Any]:
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        denied = {resource, f"{asked['verb']} {resource}"} & self.denied
        return {"kind": "SelfSubjectAccessReview", "status": {"allowed": not denied}}

    def _pod(self, path: str) -> web.Response:
        *_, namespace, _, name = path.split("/")
        found = self.objects["pods"].get(f"{namespace}/{name}")
        return web.json_response(
            found if found is not None else {"code": 404}, status=200 if found is not None else 404
        )

    async def _log(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        _, _, _, _, namespace, _, name, _ = request.path.split("/")
        parts = self.logs.get(f"{namespace}/{name}/{query['container']}")
        if parts is None:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    def _list(self, resource: str, query: dict[str, str]) -> web.Response:
        keys = sorted(self.objects[resource])
        at = 0
        if "continue" in query:
            version, _, text = query["continue"].partition(":")
            at = int(text)
            if int(version) <= self.compacted:
                return web.json_response(GONE, status=410)
        page = self.page if "limit" in query else len(keys)
        chosen = keys[at : at + page]
        more = f"{self.version}:{at + page}" if at + page < len(keys) else ""
        items = [self.objects[resource][key] for key in chosen]
        return web.json_response({"metadata": {"resourceVersion": str(self.version), "continue": more}, "items": items})

    async def _watch(self, request: web.Request, resource: str, query: dict[str, str]) -> web.StreamResponse:
        version = int(query["resourceVersion"])
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        if version < self.compacted or self.always_gone:
            await response.write(line("ERROR", GONE))
            return response
        cuts, said = self._cut, len(self._said)
        self.watching += 1
        try:
            while self._cut == cuts and not request.transport.is_closing():  # type: ignore[union-attr]
                for raw in self._said[said:]:
                    await response.write(raw)
                said = len(self._said)
                for at, of, what, made in [] if self.silent else self.happened:
                    if at > version and of == resource:
                        await response.write(line(what, made))
                version = max([version, *(at for at, *_ in self.happened)]) if not self.silent else version
                async with self._news:
                    await self.notify_watchers(cuts, said, version)
        finally:
            self.watching -= 1
        return response

    async def notify_watchers(self, cuts: int, said: int, version: int) -> None:
        """Wait for anything a watch must do; the condition is held."""
        await self._news.wait_for(
            lambda: self._cut != cuts or len(self._said) > said or (not self.silent and self._last() > version)
        )

    def _last(self) -> int:
        return max((at for at, *_ in self.happened), default=0)

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeCluster"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await self.cut()
            await runner.cleanup()


def line(what: str, made: dict[str, Any]) -> bytes:
    return json.dumps({"type": what, "object": made}).encode() + b"\n"
