#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install.sh [demo|test|bench|kernels|ubuntu|peers|fleet|release|packages|tutorial]: installs the missing Debian or Ubuntu packages, as
# root, and finds a Go compiler. The other scripts source it: it sets PATH and GOTOOLCHAIN so that
# "go" is new enough.
repository=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")

# The programs of each purpose, as PROGRAM:PACKAGE.
needs_demo="gcc:gcc g++:g++ ld:binutils python3:python3"
needs_test="$needs_demo objcopy:binutils addr2line:binutils strip:binutils"
# To rebuild the BPF objects for comparison, to open pages in a browser (about 400 MB), to type into a terminal, to run the code
# of PyTorch's viewer, and to find who holds arrays of Numba (about 360 MB).
wants_test="numba:python3-numba clang-14:clang-14 llvm-strip-14:llvm-14 chromium:chromium tmux:tmux node:nodejs protoc:protobuf-compiler qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio qemu-aarch64-static:qemu-user-static promtool:prometheus apparmor_parser:apparmor"
needs_kernels="$needs_demo qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio"
needs_kernels_arm64="$needs_kernels qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu"
needs_ubuntu="$needs_kernels apparmor_parser:apparmor aa-exec:apparmor setpriv:util-linux"
# To run the tutorial and take its pictures.
needs_tutorial="$needs_demo tmux:tmux aha:aha chromium:chromium pngquant:pngquant"
needs_bench="$needs_demo bpftrace:bpftrace tmux:tmux"
wants_bench="bpftool:bpftool" # for --profile
# The tools that the benchmark compares with vramprof; it prints which are missing.
needs_peers=$needs_demo
wants_peers="bpftrace:bpftrace memleak-bpfcc:bpfcc-tools heaptrack:heaptrack zstd:zstd"
# To build packages of both architectures.
needs_release="gcc:gcc x86_64-linux-gnu-gcc:gcc-x86-64-linux-gnu aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu readelf:binutils dpkg-deb:dpkg git:git"
# To install those packages in trees and in a machine; scripts/test-packages.sh skips what is missing.
needs_packages="$needs_release python3:python3 mkfs.ext4:e2fsprogs rpm:rpm"
wants_packages="lintian:lintian rpmlint:rpmlint mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 systemd-analyze:systemd"
# The servers that scripts/test-fleet.sh runs; it skips what is missing.
needs_fleet="$needs_demo curl:curl"
wants_fleet="podman:podman runc:runc mmdebstrap:mmdebstrap qemu-aarch64-static:qemu-user-static prometheus:prometheus promtool:prometheus slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge"

# lacking PROGRAM:PACKAGE…: prints the packages of missing programs.
lacking() {
  local need packages=""
  for need in "$@"; do
    command -v "${need%%:*}" >/dev/null || packages+=" ${need#*:}"
  done
  printf '%s\n' $packages | sort -u
}

apt_install() {
  echo "installing" "$@" >&2
  [ "$(id -u)" = 0 ] || { echo "not root: run as root, or install these packages: $*" >&2; return 1; }
  command -v apt-get >/dev/null || { echo "no apt-get (expected Debian or Ubuntu): install the equivalents of: $*" >&2; return 1; }
  apt_update && apt_get install -y --no-install-recommends "$@"
}

apt_update() { # once
  [ -n "${apt_updated:-}" ] || apt_get update || return 1
  apt_updated=1
}

# apt_get ARGUMENTS…: runs apt-get and shows its output only if it fails.
apt_get() {
  local output
  output=$(DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null 2>&1) && return
  printf '%s\n' "$output" >&2
  return 1
}

# go_release GO: prints the release of that go command, such as 1.26.0.
go_release() {
  (cd / && GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) | sed -n 's/^go\([0-9][0-9.]*\).*/\1/p'
}

at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# find_go RELEASE: prints the first go command of that release or newer.
find_go() {
  local candidate
  for candidate in "$(command -v go)" /usr/local/go/bin/go $(printf '%s\n' /usr/lib/go-1.*/bin/go | sort -rV); do
    [ -x "$candidate" ] && at_least "$(go_release "$candidate")" "$1" && { echo "$candidate"; return; }
  done
  return 1
}

# setup_go puts a new enough go command first in PATH. Since 1.21, Go itself downloads the release
# that go.mod requires.
setup_go() {
  local wanted go package
  wanted=$(sed -n 's/^go \([0-9.]*\)$/\1/p' "$repository/go.mod")
  if ! go=$(find_go "$wanted"); then
    if ! go=$(find_go 1.21); then
      package=$(newest_go_package)
      if ! { [ -n "$package" ] && apt_install "$package" || go_from_backports; } || ! go=$(find_go 1.21); then
        cat >&2 <<END
Go $wanted is needed, or any Go from 1.21 on, which downloads $wanted itself.
This system has no such package. Unpack a release of Go into /usr/local/go and
run this again.
END
        return 1
      fi
    fi
    export GOTOOLCHAIN=auto
  fi
  [ "$go" = "$(command -v go)" ] || export PATH="$(dirname "$go"):$PATH"
}

newest_go_package() { # [apt options]
  command -v apt-cache >/dev/null && [ "$(id -u)" = 0 ] || return 0
  apt_update || return 0
  local package version
  apt-cache "$@" search --names-only '^golang-1\.[0-9]+-go$' | sed 's/ .*//' | sort -rV | while read -r package; do
    version=${package#golang-}
    at_least "${version%-go}" 1.21 && { echo "$package"; break; }
  done
}

# go_from_backports: installs Go from Debian's backports on apt's mirror, without a change to apt's
# configuration.
go_from_backports() {
  local release mirror folder package
  release=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") && [ -n "$release" ] || return 1
  mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' | sed -n "s/ $release\$//p" | head -n 1)
  [ -n "$mirror" ] || return 1
  folder=$(mktemp -d) && chmod 755 "$folder" && mkdir -p "$folder/lists/partial"
  cat >"$folder/backports.sources" <<END
Types: deb
URIs: $mirror
Suites: $release-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
  local only=(-o "Dir::Etc::sourcelist=$folder/backports.sources" -o "Dir::Etc::sourceparts=$folder/none" -o "Dir::State::Lists=$folder/lists")
  apt_get "${only[@]}" update && package=$(newest_go_package "${only[@]}") && [ -n "$package" ] &&
    echo "installing $package from $release-backports" >&2 && apt_get "${only[@]}" install -y --no-install-recommends "$package"
  local status=$?
  rm -rf "$folder"
  return $status
}

setup() { # demo, test, bench, kernels, ubuntu, peers, fleet, release, packages or tutorial
  local needs="needs_$1" wants="wants_$1" missing package
  missing=$(lacking ${!needs})
  # Go needs these certificates to download modules.
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=" ca-certificates"
  [ -z "$missing" ] || apt_install $missing || return 1
  for package in $(lacking ${!wants:-}); do # one by one: not every release has all of them
    apt_install "$package" || echo "continuing without $package" >&2
  done
  setup_go || return 1
  # NVML's header marks functions as deprecated that go-nvml must bind.
  export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -Wno-deprecated-declarations"
  # Build without a revision if git refuses to read the checkout (another owner).
  (cd "$repository" && git rev-parse HEAD >/dev/null 2>&1) || export GOFLAGS="${GOFLAGS:-} -buildvcs=false"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  case ${1:-demo} in
    demo | test | bench | kernels | ubuntu | peers | fleet | release | packages | tutorial) setup "${1:-demo}" && go version ;;
    *) echo "usage: install.sh [demo|test|bench|kernels|ubuntu|peers|fleet|release|packages|tutorial]" >&2; exit 2 ;;
  esac
fi
