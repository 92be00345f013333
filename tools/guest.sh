#!/usr/bin/env bash
# Makes what the laboratory's guests are made of: Debian's cloud kernel, an initramfs of busybox with the modules that
# lead to a disk, and that disk, read-only, with programs for tests. Everything is from Debian packages, which are taken
# apart and not installed. Does nothing if it is there and this script has not changed since.
# usage: tools/guest.sh DIR
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
kit=${1:?usage: tools/guest.sh DIR}
[ "$(uname -m)" = x86_64 ] || { echo "guests are for x86_64 only, not for $(uname -m)" >&2; exit 1; }

# Taken apart, with the libraries that this machine may lack.
packages=(open-iscsi libopeniscsiusr libisns0 libkmod2 nbd-client libnl-3-200 libnl-genl-3-200 dmsetup libdevmapper1.02.1
  lvm2 netcat-openbsd libaio1 libdevmapper-event1.02.1 libedit2 libbsd0 libmd0 sqlite3 libsqlite3-0 libreadline8)
# What of them, and of this machine, guests have beside busybox.
programs=(fio nc.openbsd nbd-client iscsistart dmsetup lvm mke2fs e2fsck sqlite3)
# Kernel directories that no test of block devices needs.
without=(net/wireless net/bluetooth net/mac80211 drivers/net/ethernet drivers/net/wireless drivers/gpu drivers/infiniband
  drivers/usb drivers/media drivers/hid drivers/iio sound fs/ocfs2 fs/btrfs fs/xfs fs/cifs fs/smb fs/ceph fs/f2fs arch)

stamp=$(cat "$0" "$here/guest/init" | sha256sum | cut -c 1-16)
[ "$(cat "$kit/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

echo "making the laboratory's guests in $kit"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

download() { (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$@" >/dev/null); }
kernel() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p'; }
[ -n "$(kernel)" ] && download "$(kernel)" "${packages[@]}" 2>/dev/null ||
  { apt-get update -qq && download "$(kernel)" "${packages[@]}"; }
for deb in "$work"/*.deb; do
  dpkg-deb -x "$deb" "$work/$(case "$deb" in */linux-image*) echo kernel ;; *) echo packages ;; esac)"
done

# The tools' disk: modules, programs, and the shared libraries of both and of a parda built here.
root=$work/root modules=$work/kernel/lib/modules
version=$(ls "$modules")
mkdir -p "$root/bin" "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/lib/modules"
for dir in "${without[@]}"; do rm -rf "${modules:?}/$version/kernel/$dir"; done
cp -r "$modules/$version" "$root/lib/modules/"
busybox depmod -b "$root" "$version"
export LD_LIBRARY_PATH=$work/packages/lib/x86_64-linux-gnu:$work/packages/usr/lib/x86_64-linux-gnu
PATH=$work/packages/sbin:$work/packages/bin:$work/packages/usr/sbin:$work/packages/usr/bin:$PATH:/sbin:/usr/sbin
for program in "${programs[@]}"; do cp -L "$(command -v "$program")" "$root/bin/"; done
libraries=$(ldd "$root"/bin/*)
missing=$(grep -h 'not found' <<<"$libraries" | sort -u || true)
[ -z "$missing" ] || { echo "the guests' programs lack: $missing" >&2; exit 1; }
awk '$2 == "=>" { print $3 }' <<<"$libraries" | grep / | sort -u | xargs cp -L -t "$root/lib/x86_64-linux-gnu"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for library in libgcc_s.so.1 libm.so.6; do cp -L "/lib/x86_64-linux-gnu/$library" "$root/lib/x86_64-linux-gnu/"; done

# The initramfs: busybox, and the way to that disk.
initramfs=$work/initramfs
mkdir -p "$initramfs"/{bin,dev,etc,proc,sys,run,tmp,tools,parda,var}
cp "$(command -v busybox)" "$initramfs/bin/"
for applet in $(busybox --list); do ln -s busybox "$initramfs/bin/$applet" 2>/dev/null || true; done
cp "$here/guest/init" "$initramfs/init"
chmod 755 "$initramfs/init"
way=$initramfs/lib/modules/$version/kernel
mkdir -p "$way"
for module in drivers/virtio/virtio drivers/virtio/virtio_ring drivers/virtio/virtio_pci_{legacy,modern}_dev \
  drivers/virtio/virtio_pci drivers/block/virtio_blk drivers/char/virtio_console; do
  cp "$root/lib/modules/$version/kernel/$module.ko" "$way/"
done
busybox depmod -b "$initramfs" "$version"

mkdir -p "$kit"
rm -f "$kit/stamp"
(cd "$initramfs" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs.gz"
size=$(($(du -sk --apparent-size "$root" | cut -f 1) * 9 / 8 + 4096))
mke2fs -q -F -t ext2 -m 0 -O ^resize_inode -d "$root" "$work/tools.img" "${size}k" 2>/dev/null
cp "$work/kernel/boot/vmlinuz-$version" "$work/vmlinuz"
mv "$work/vmlinuz" "$work/initramfs.gz" "$work/tools.img" "$kit/"
echo "$stamp" >"$kit/stamp"
