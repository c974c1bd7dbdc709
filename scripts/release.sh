#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh [--out FOLDER] [--arch amd64,arm64] [--commit COMMIT]: builds what a release consists of,
# from a commit of git: binaries, tarballs, .deb, .rpm, SBOMs, the source, and SHA256SUMS. The same
# commit and tools make the same bytes. Runs on Debian or Ubuntu on x86_64, as root where packages are
# missing. docs/release.md explains it. The default folder is .cache/release/out.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
. scripts/install.sh
repository=$PWD
nfpm_version=v2.45.0

usage() { echo "usage: release.sh [--out FOLDER] [--arch amd64,arm64] [--commit COMMIT]" >&2; exit 2; }

out=$repository/.cache/release/out archs=amd64,arm64 commit=HEAD
while [ $# != 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --out) out=$(realpath -m "$2") ;;
    --arch) archs=$2 ;;
    --commit) commit=$2 ;;
    *) usage ;;
  esac
  shift 2
done

setup release
export GOFLAGS=-trimpath\ -buildvcs=false GOAMD64=v1 GOARM64=v8.0 LC_ALL=C TZ=UTC
umask 022

# version: prints the version of the commit: that of its tag, or the next one with the commit's time,
# which packages sort before that: 1.2.0-git20261123085202.f81a69a before 1.2.0, and
# 1.2.0-rc1.git20261123085202.f81a69a before 1.2.0-rc2.
version() {
  local tag next candidate
  if tag=$(git describe --exact-match --tags --match 'v[0-9]*' "$commit" 2>/dev/null); then
    echo "${tag#v}"
    return
  fi
  next=$(git show "$commit:packaging/changelog.yml" | sed -n 's/^- semver: //p' | head -n 1)
  case $next in
    *-rc[1-9]*) candidate=${next##*-rc} next=${next%-rc*}-rc$((candidate - 1)). ;;
    *) next+=- ;;
  esac
  echo "${next}git$(git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd.%h --abbrev=7 "$commit")"
}

# tools: builds nfpm once, and puts compilers for each sysroot into a folder. Go writes the name of
# the compiler into the build id, so the name has no path.
tools() {
  local cache=$repository/.cache/release arch target
  mkdir -p "$cache/bin"
  [ -x "$cache/bin/nfpm-$nfpm_version" ] || {
    GOFLAGS='' GOBIN=$cache/bin go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version"
    mv "$cache/bin/nfpm" "$cache/bin/nfpm-$nfpm_version"
  }
  for arch in ${archs//,/ }; do
    target=$(triplet "$arch")
    scripts/release/sysroot.sh "$arch" "$cache/sysroot-$arch"
    cat >"$cache/bin/vramprof-cc-$arch" <<END
#!/bin/sh
root=$cache/sysroot-$arch
exec $target-gcc --sysroot="\$root" -isystem "\$root/usr/include" -isystem "\$root/usr/include/$target" -B"\$root/usr/lib/$target" -L"\$root/usr/lib/$target" -L"\$root/lib/$target" "\$@"
END
    chmod +x "$cache/bin/vramprof-cc-$arch"
  done
  PATH=$cache/bin:$PATH
}

triplet() {
  case $1 in
    amd64) echo x86_64-linux-gnu ;;
    arm64) echo aarch64-linux-gnu ;;
    *) echo "release.sh: no such architecture: $1" >&2; exit 2 ;;
  esac
}

# binary ARCH FILE: builds vramprof in the current folder. NVML's functions are bound when they are
# called, because the driver's library may lack some.
binary() {
  CGO_ENABLED=1 GOOS=linux GOARCH=$1 CC=vramprof-cc-$1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" CGO_LDFLAGS="-Wl,-z,relro,-z,lazy" \
    go build -buildmode=pie -ldflags "-s -w -X main.version=$version -X main.commit=$revision -X main.date=$date" -o "$2" ./cmd/vramprof
  scripts/release/glibc.sh 2.31 "$2"
  runs "$1" "$2"
}

# runs ARCH FILE: fails unless the program starts with the sysroot's C library, if there is a processor
# or simulator for it.
runs() {
  local root=$repository/.cache/release/sysroot-$1 simulator="" loader
  loader=$(echo "$root"/lib/*/ld-2.*.so)
  if [ "$(dpkg --print-architecture)" != "$1" ]; then
    [ "$1" = arm64 ] && simulator=$(command -v qemu-aarch64-static) || { echo "release.sh: $2 was not run" >&2; return; }
  fi
  $simulator "$loader" --library-path "$(dirname "$loader")" "$2" version >&2
}

# host PROGRAM ARGUMENTS…: runs a Go program of the current folder on this machine.
host() {
  local program=$1
  shift
  GOFLAGS=-buildvcs=false CGO_ENABLED=0 go run "$program" "$@"
}

# generated ARCH: writes the files of packages that are not in the repository into build/.
generated() {
  mkdir -p build/man build/completions
  binary "$1" build/vramprof
  host ./scripts/release/modules -sbom "build/vramprof-$version-linux-$1.spdx.json" -copyright build/copyright -version "$version" -created "$date" build/vramprof
  cp packaging/completions/* build/completions/
  man_pages
  changelog >build/changelog.yml
  find . -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# man_pages: compresses the man pages, into a folder for each section.
man_pages() {
  local page section
  for page in packaging/man/*.[0-9]; do
    section=build/man/man${page##*.}
    mkdir -p "$section"
    gzip -9nc "$page" >"$section/$(basename "$page").gz"
  done
}

# changelog: prints the changelog, with an entry for a version without a tag.
changelog() {
  case $version in
    *[.-]git*) printf -- '- semver: %s\n  date: %s\n  packager: %s\n  deb: {urgency: medium, distributions: [unstable]}\n  changes:\n    - note: "Built from commit %s."\n' \
      "$version" "$date" "$(sed -n 's/^maintainer: //p' packaging/nfpm.yaml)" "$revision" ;;
  esac
  cat packaging/changelog.yml
}

# packages ARCH: makes the tarball, .deb and .rpm of the current folder.
packages() {
  local kind name=vramprof-$version-linux-$1
  for kind in deb rpm; do
    VERSION=$version ARCH=$1 "nfpm-$nfpm_version" package --config packaging/nfpm.yaml --packager "$kind" --target "$out" >&2
  done
  scripts/release/tarball.sh "$name" "$out/$name.tar.gz"
  cp "build/$name.spdx.json" "$out/"
}

revision=$(git rev-parse "$commit^{commit}")
commit=$revision
version=$(version)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH
date=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "release.sh: uncommitted changes are left out" >&2

tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
git archive --format=tar --prefix="vramprof-$version/" "$commit" | gzip -9n >"$out/vramprof-$version-source.tar.gz"
for arch in ${archs//,/ }; do
  echo "building $version for $arch" >&2
  tar -C "$work" -xzf "$out/vramprof-$version-source.tar.gz"
  (
    cd "$work/vramprof-$version"
    generated "$arch"
    packages "$arch"
  )
  rm -rf "${work:?}/vramprof-$version"
done
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
