#!/usr/bin/env python3
"""Writes a container image, as an OCI archive, from folders and tar files.

Usage: oci.py [--user USER] [--workdir DIR] [--settings FILE] OUT NAME[,NAME...] LAYER... -- COMMAND...

A LAYER is a folder, whose files are owned by root in the image, or a tar file
that is used as it is. Later layers lie over earlier ones. FILE is JSON that is
laid over the image's configuration. Docker can load the archive as well.
"""

import argparse
import hashlib
import io
import json
import pathlib
import platform
import sys
import tarfile
import tempfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MEDIA = "application/vnd.oci.image."


def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o555 if member.isdir() else 0o444  # whatever the folder it comes from lets others do
    return member


def pack(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    with tarfile.open(target, "w") as tar:
        for entry in sorted(folder.iterdir()):
            tar.add(entry, entry.name, filter=as_root)
    return target


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def write(out: pathlib.Path, names: list[str], layers: list[pathlib.Path], config: dict) -> None:
    part = out.with_suffix(".part")
    with tarfile.open(part, "w") as image:

        def add(path: str, data: bytes) -> None:
            member = tarfile.TarInfo(path)
            member.size = len(data)
            image.addfile(member, io.BytesIO(data))

        def blob(kind: str, content: dict) -> dict:
            data = json.dumps(content).encode()
            hashed = hashlib.sha256(data).hexdigest()
            add(f"blobs/sha256/{hashed}", data)
            return {"mediaType": MEDIA + kind, "digest": f"sha256:{hashed}", "size": len(data)}

        described = []
        for layer in layers:
            hashed = digest(layer)
            described.append({"mediaType": MEDIA + "layer.v1.tar", "digest": hashed, "size": layer.stat().st_size})
            if hashed not in [earlier["digest"] for earlier in described[:-1]]:
                image.add(layer, "blobs/" + hashed.replace(":", "/"), filter=as_root)
        settings = {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in described]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA + "manifest.v1+json",
            "config": blob("config.v1+json", settings),
            "layers": described,
        }
        entry = blob("manifest.v1+json", manifest)
        entries = [{**entry, "annotations": {"io.containerd.image.name": name}} for name in names]
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": entries}).encode())
        paths = [one["digest"].replace(":", "/") for one in (manifest["config"], *described)]
        docker = {"Config": f"blobs/{paths[0]}", "RepoTags": names, "Layers": [f"blobs/{one}" for one in paths[1:]]}
        add("manifest.json", json.dumps([docker]).encode())
        add("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    part.rename(out)


def main() -> None:
    arguments = sys.argv[1:]
    command = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, command = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--user", default="0")
    parser.add_argument("--workdir", default="/")
    parser.add_argument("--settings", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("layers", type=pathlib.Path, nargs="+")
    options = parser.parse_args(arguments)
    config = {
        "User": options.user,
        "WorkingDir": options.workdir,
        "Entrypoint": command,
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONUNBUFFERED=1"],
    }
    if options.settings is not None:
        own = json.loads(options.settings.read_text())
        own["Env"] = config["Env"][:1] + own.get("Env", [])
        config |= own
    with tempfile.TemporaryDirectory(dir=options.out.parent) as folder:
        layers = [
            pack(layer, pathlib.Path(folder, f"{number}.tar")) if layer.is_dir() else layer
            for number, layer in enumerate(options.layers)
        ]
        write(options.out, options.name.split(","), layers, config)


if __name__ == "__main__":
    main()
