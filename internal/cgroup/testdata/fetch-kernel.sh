#!/bin/sh
# Fetches Debian's cloud kernel into build/kernel for the test that boots
# cgroup version 2 in a QEMU microvm. The package is unpacked, not installed:
# its hooks would build an initramfs that nobody boots. Needs what
# `apt-get update` has fetched; does nothing when a kernel is there.
set -eu
dest=$(realpath -m "$(dirname "$0")/../../../build/kernel")
ls "$dest"/boot/vmlinuz-* >/dev/null 2>&1 && exit 0
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -q download "$package")
mkdir -p "$dest"
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$dest" --wildcards './boot/vmlinuz-*'
