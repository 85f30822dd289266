"""Where the API server is and who Pharos is there: the account mounted into the Pod, or a kubeconfig.

Forbidden here: asking the API for anything but what a login program needs, and showing a token.
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the account's token, its certificates and the namespace."""
NEEDS_EXTRA: Final = (
    "a kubeconfig is read with the package kubernetes-asyncio, which is not installed: pip install 'pharos[kubernetes]'"
)


class LoginError(Exception):
    """There is no way in; the text says why and what to do."""


class Login(msgspec.Struct, frozen=True):
    """A way into one cluster."""

    url: str
    """Without a slash at its end."""
    tls: ssl.SSLContext | None
    headers: Callable[[], Awaitable[dict[str, str]]]
    """What says who we are, read anew for each request: tokens change about hourly. Raises `LoginError`."""
    namespace: str
    """The one that is meant when none is named."""
    account: str
    """Who that is, for people."""


def mounted(environ: Mapping[str, str] = os.environ, where: Path = MOUNTED) -> Login | None:
    """The account of the Pod that this runs in; `None` outside a cluster. Raises `LoginError`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return None
    token = where / "token"
    if not token.is_file():
        text = "the Pod has no token: set automountServiceAccountToken, or turn discovery.kubernetes off"
        raise LoginError(text)
    try:
        tls = ssl.create_default_context(cafile=str(where / "ca.crt"))
        namespace = (where / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise LoginError(f"the Pod's account under {where} cannot be read ({type(error).__name__})") from None

    async def headers() -> dict[str, str]:
        try:
            return {"Authorization": f"Bearer {token.read_text(encoding='ascii').strip()}"}
        except (OSError, ValueError):
            raise LoginError("the Pod's token cannot be read") from None

    address = f"[{host}]" if ":" in host else host
    return Login(f"https://{address}:{port}", tls, headers, namespace, "the Pod's service account")


async def of_kubeconfig(path: str | None, context: str | None) -> Login:
    """The login of a kubeconfig, with its programs and certificates. Raises `LoginError`."""
    try:
        from kubernetes_asyncio import client, config  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise LoginError(NEEDS_EXTRA) from None
    made = client.Configuration()
    try:
        await config.load_kube_config(config_file=path, context=context, client_configuration=made)
    except Exception as error:  # noqa: BLE001 (the package raises whatever its parts do)
        raise LoginError(f"the kubeconfig cannot be used ({type(error).__name__})") from None
    tls = ssl.create_default_context(cafile=made.ssl_ca_cert)
    if not made.verify_ssl:  # as that file says
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if made.cert_file:
        tls.load_cert_chain(made.cert_file, made.key_file)

    async def headers() -> dict[str, str]:
        if made.refresh_api_key_hook is not None:
            try:
                await made.refresh_api_key_hook(made)
            except Exception as error:  # noqa: BLE001 (as above: it runs a program)
                raise LoginError(f"the kubeconfig's login failed ({type(error).__name__})") from None
        token = made.get_api_key_with_prefix("BearerToken")
        return {"Authorization": token} if token else {}

    try:
        _, active = config.list_kube_config_contexts(config_file=path)
        namespace = active["context"].get("namespace") or "default"
    except Exception:  # noqa: BLE001 (as above)
        namespace = "default"
    return Login(made.host.rstrip("/"), tls, headers, namespace, "the kubeconfig's user")


async def login(kubeconfig: str | None, context: str | None) -> Login:
    """The way in: a kubeconfig that is named, else the Pod's account, else the usual file. Raises `LoginError`."""
    if kubeconfig is None and (inside := mounted()) is not None:
        return inside
    return await of_kubeconfig(kubeconfig, context)
