#!/usr/bin/env bash
# Makes a container image of the Debian packages that cpack made, with a Debian 12 root around them:
#   deploy/oci/build.sh PACKAGES OUT.tar [NAME:TAG]     # build/release/packages build/neuroshard-image.tar
# OUT.tar is what `podman load`, `docker load` and `skopeo copy docker-archive:OUT.tar` take. Needs root, Debian's mirrors, and Debian's mmdebstrap
# and buildah in PATH; asks no registry. The root has what is essential, apt and the packages; no manual pages.
set -euo pipefail

case "${1:-}" in
  --help | -h) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
esac
[ $# -ge 2 ] || { echo "usage: deploy/oci/build.sh PACKAGES OUT.tar [NAME:TAG] (try --help)" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=("$(realpath "$1")"/neuroshard-{planner,worker,client,models}_*.deb)
out=$(realpath -m "$2")
for tool in mmdebstrap buildah; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; Debian has it: apt-get install $tool" >&2; exit 1; }
done
for package in "${packages[@]}"; do
  [ -f "$package" ] || { echo "no such package: $package (cpack makes it)" >&2; exit 1; }
done
name=${3:-neuroshard:$(dpkg-deb --field "${packages[0]}" Version)}

work=$(mktemp -d)
# buildah's own storage, so that nothing is left.
export STORAGE_DRIVER=vfs CONTAINERS_STORAGE_CONF=$work/storage.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' "$work/graph" "$work/run" >"$CONTAINERS_STORAGE_CONF"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
trap 'rm -rf "$work"' EXIT

mkdir "$work/context"
cp "$here/Dockerfile" "$work/context/"
mmdebstrap --quiet --variant=apt --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --customize-hook='mkdir "$1/packages"' --customize-hook="copy-in ${packages[*]@Q} /packages" \
  --customize-hook='chroot "$1" sh -c "apt-get install --quiet --quiet --yes --no-install-recommends /packages/*.deb" >/dev/null && rm -r "$1/packages"' \
  bookworm "$work/context/root.tar"
# Docker's format has health checks; OCI's has none.
buildah build --quiet --signature-policy "$work/policy.json" --isolation chroot --format docker --tag "localhost/$name" "$work/context" >/dev/null
mkdir -p "$(dirname "$out")"
rm -f "$out.part"
buildah push --quiet --signature-policy "$work/policy.json" "localhost/$name" "docker-archive:$out.part:$name"
mv "$out.part" "$out"
echo "$out: $name, $(($(stat -c %s "$out") / 1000000)) MB"
