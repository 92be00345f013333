#!/usr/bin/env bash
# Makes a container image of what `make build` built, without a daemon and without a registry: an OCI layout, target/image, and the same
# as one file, target/parda-VERSION.oci.tar. The image has the binary, the libraries that it names, a user, and nothing else: no shell.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${PARDA:-target/release/parda}
image=${IMAGE:-target/image}
version=$("$program" --version | cut -d ' ' -f 2)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Directories are not writable by others, whatever the umask.
umask 022
chmod 755 "$root"
install -D -m 755 "$program" "$root/usr/bin/parda"
strip --strip-debug "$root/usr/bin/parda"
# Each library at the path at which the loader looks for it.
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 755 "$library" "$root/usr${library#/usr}"
done
for directory in bin lib lib64; do ln -s "usr/$directory" "$root/$directory"; done
mkdir -p "$root/usr/lib64" "$root/run/parda" "$root/var/lib/parda" "$root/etc/parda" "$root/tmp" "$root/proc" "$root/sys" "$root/dev"
# A number for `runAsNonRoot`; what it may open is said by the files of the host.
printf 'root:x:0:0:root:/:/\nparda:x:7077:7077:parda:/var/lib/parda:/\n' > "$root/etc/passwd"
printf 'root:x:0:\nparda:x:7077:\n' > "$root/etc/group"
chown -R 7077:7077 "$root/run/parda" "$root/var/lib/parda"

rm -rf "$image"
mkdir -p "$(dirname "$image")"
umoci init --layout "$image"
umoci new --image "$image:$version"
umoci insert --image "$image:$version" "$root" /
umoci config --image "$image:$version" --config.user 7077:7077 --config.entrypoint /usr/bin/parda \
  --config.cmd serve --config.cmd -c --config.cmd /etc/parda.toml --config.stopsignal SIGTERM \
  --config.label org.opencontainers.image.title=parda --config.label "org.opencontainers.image.version=$version" \
  --config.label 'org.opencontainers.image.licenses=Apache-2.0 OR MIT'
umoci gc --layout "$image"
tar -C "$image" -cf "$(dirname "$image")/parda-$version.oci.tar" .
echo "$image:$version"
