#!/bin/bash
# Makes an image that holds Python and a Python program, and gives it to every
# node. Usage: image.sh NAME[,NAME...] DIR [COMMAND...], or image.sh --import FILE
#
# IMAGE_OUT=FILE writes it there instead, IMAGE_SETTINGS=FILE is JSON for its configuration.
# If DIR has a pyproject.toml, the project is installed with what its requirements/run.txt pins.
# Otherwise DIR is copied to /app and its requirements.txt, if any, installed.
# COMMAND is what the image runs. A NAME without a registry gets "localhost/".
# No registry is asked for a base image: the base is unpacked Debian packages.
. "$(dirname "$0")/lib.sh"
. "$here/programs.sh"

if [ "${1-}" = --import ]; then
  import_image "$2" >&2
  exit
fi
[ $# -ge 2 ] || die "usage: image.sh NAME DIR [COMMAND...]"
name=$1 dir=$2
shift 2
[[ $name == */* ]] || name=localhost/$name
[[ ${name##*/} == *:* ]] || name=$name:latest

python=3.11
packages=(base-files busybox-static ca-certificates libbz2-1.0 libc6 libcrypt1 libexpat1
  libffi8 libgcc-s1 libgomp1 liblzma5 "libpython$python-minimal" "libpython$python-stdlib" libsqlite3-0
  libssl3 libstdc++6 libuuid1 media-types netbase "python$python-minimal" tzdata zlib1g)

# make_base leaves a root file system with Python and a shell in the cache.
make_base() {
  local root=$1/root tool
  say "making the base image"
  mkdir -p "$1/debs" "$root/app"
  apt-get update -q >&2
  (cd "$1/debs" && apt-get download -q -o APT::Sandbox::User=root "${packages[@]}" >&2)
  unpack "$root" "$1"/debs/*.deb
  for tool in sh cat cp date echo env grep head hostname id kill ls mkdir mv nc nslookup ps rm \
    sed sleep sort tail tar test top touch tr uname vi wc wget; do
    ln -s busybox "$root/usr/bin/$tool"
  done
  ln -s "python$python" "$root/usr/bin/python3"
  ln -s python3 "$root/usr/bin/python"
  (cd "$root/usr/share/ca-certificates" && find . -name '*.crt' -exec cat {} +) >"$root/etc/ssl/certs/ca-certificates.crt"
  ln -s certs/ca-certificates.crt "$root/etc/ssl/cert.pem"
  printf '%s\n' root:x:0:0:root:/root:/bin/sh nonroot:x:65532:65532::/app:/bin/sh nobody:x:65534:65534::/:/bin/sh >"$root/etc/passwd"
  printf '%s\n' root:x:0: nonroot:x:65532: nogroup:x:65534: >"$root/etc/group"
  rm -rf "$root"/usr/share/{doc,man,lintian,locale}
  tar -c -C "$root" --owner 0 --group 0 --sort name -f "$base.part" .
  mv "$base.part" "$base"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base=$cache/base-$(echo "${packages[*]}" | sha256sum | cut -c1-12).tar
mkdir -p "$cache"
[ -e "$base" ] || make_base "$work/base"

app=$work/app
site=$app/usr/local/lib/python$python/dist-packages
mkdir -p "$site" "$app/usr/local/bin"
requirements=()
if [ -e "$dir/pyproject.toml" ]; then
  requirements=(--no-deps -r "$dir/requirements/run.txt" "$dir")
else
  mkdir -p "$app/app"
  cp -a "$dir/." "$app/app/"
  [ ! -e "$dir/requirements.txt" ] || requirements=(-r "$dir/requirements.txt")
fi
if [ ${#requirements[@]} -gt 0 ]; then
  # For the image's Python, which need not be this machine's.
  python3 -m pip install -q --disable-pip-version-check --root-user-action ignore \
    --python-version "$python" --only-binary :all: --target "$site" "${requirements[@]}" >&2
  if [ -d "$site/bin" ]; then
    sed -i '1s|^#!.*python.*|#!/usr/bin/python3|' "$site"/bin/*
    mv "$site"/bin/* "$app/usr/local/bin/"
    rmdir "$site/bin"
  fi
fi

settings=()
[ -z "${IMAGE_SETTINGS-}" ] || settings=(--settings "$IMAGE_SETTINGS")
"$here/oci.py" --user 65532:65532 --workdir /app "${settings[@]}" "${IMAGE_OUT:-$work/image.tar}" "$name" "$base" "$app" -- "$@"
[ -n "${IMAGE_OUT-}" ] || import_image "$work/image.tar" >&2
echo "$name"
