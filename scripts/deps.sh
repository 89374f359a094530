#!/usr/bin/env bash
# Installs what is missing of the Debian packages that billet needs to run, and
# with "test" what its tests need as well. This is the one list.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
	debootstrap # image build debian
	e2fsprogs   # ext4 of images: mke2fs, resize2fs
)
if [ "${1:-}" = test ]; then
	packages+=(
		gcc libc6-dev   # the race detector
		util-linux      # losetup
		procps          # ps
		busybox-static  # the smallest guest
		openssh-client  # ssh, scp and sftp against the gateway
		chromium        # opens a page in a workspace
		postgresql      # the ledger's second adapter
		qemu-system-x86 # boots a kernel with the other version of cgroups
	)
	# The published clients of the E2B API run on these. Some builds of nodejs bring
	# npm along, and refuse Debian's own beside it.
	command -v npm >/dev/null || packages+=(nodejs npm)
fi

missing=()
for p in "${packages[@]}"; do
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
kernel=
if [ "${1:-}" = test ] && ! compgen -G 'build/kernel/boot/vmlinuz-*' >/dev/null; then
	kernel=1
fi

[ ${#missing[@]} -gt 0 ] || [ -n "$kernel" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "missing: ${missing[*]} ${kernel:+and a kernel for tests}; run as root to install" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
if [ ${#missing[@]} -gt 0 ]; then
	echo "installing ${missing[*]}"
	apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ -n "$kernel" ]; then
	echo "fetching a kernel for tests"
	sh internal/cgroup/testdata/fetch-kernel.sh >/dev/null
fi
