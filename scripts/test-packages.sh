#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-packages.sh [SECTION…]: builds the packages of HEAD, and those of the next version, and
# installs them for real, as root. By default all sections; not part of CI:
#   lint       lintian, rpmlint, and systemd-analyze of the service
#   deb        Debian 12 in QEMU, with systemd: install, trace, upgrade a running service, remove, purge
#   rpm        the same with rpm, as far as Debian's rpm has what Fedora has
#   debian13   deb with Debian 13 and the newest kernel of its backports
#   debian11   a tree of Debian 11, whose glibc is as old as Ubuntu 20.04's: install, trace, purge
#   unpacked   the tarball, and the contents of the .rpm, in folders of this machine
#   same       builds HEAD again, in another folder and without Go's cache, and compares the bytes;
#              ARCHS=amd64,arm64 for both
# STEPS="install remove" runs only these steps of deb, rpm or debian13: see packages/inside.sh.
# It installs what is missing. A section whose machine or tree is not available is skipped. Trees and
# builds are kept in .cache/packages.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit 1
[ "$(id -u)" = 0 ] || { echo "test-packages.sh: run it as root" >&2; exit 4; }
. scripts/install.sh
setup packages || exit 1
cache=$PWD/.cache/packages here=scripts/packages
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "failed: $*" >&2; return 1; }
# version FOLDER: the version of the packages in it.
version() { basename "$(echo "$1"/*-linux-amd64.tar.gz)" -linux-amd64.tar.gz | sed 's/^vramprof-//'; }

# quiet LOG COMMAND…: shows its output only if it fails.
quiet() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; return 1; }
}

# clone FOLDER: clones HEAD, with what release.sh has downloaded.
clone() {
  git clone -q --shared . "$1" && mkdir -p "$1/.cache" && ln -s "$PWD/.cache/release" "$1/.cache/release"
}

# build: makes the packages of HEAD and, as an upgrade, those of the next version, with its tag.
build() {
  local next
  [ "$(cat "$cache/commit" 2>/dev/null)" = "$(git rev-parse HEAD)" ] && return
  rm -rf "$cache/commit" "$cache/old" "$cache/new"
  quiet "$cache/old.log" scripts/release.sh --arch amd64 --out "$cache/old" || return
  next=$(sed -n 's/^- semver: //p' packaging/changelog.yml | head -n 1)
  [ "$(version "$cache/old")" != "$next" ] || next+=.1
  clone "$work/next" || return
  (cd "$work/next" && git -c user.name=test -c user.email=test@vramprof.invalid commit -q --allow-empty -m next && git tag "v$next") || return
  quiet "$cache/new.log" "$work/next/scripts/release.sh" --arch amd64 --out "$cache/new" || return
  git rev-parse HEAD >"$cache/commit"
}

lint() {
  local file level
  for file in "$cache"/{old,new}/*.deb; do
    lintian --allow-root --display-info --fail-on error,warning,info "$file" || return
  done
  for file in "$cache"/{old,new}/*.rpm; do
    # Not as root: rpmlint unpacks absolute names.
    chmod 755 "$work" && cp "$file" packaging/rpm/rpmlintrc.toml "$work/" || return
    (cd "$work" && HOME=/ TMPDIR='' setpriv --reuid=65534 --regid=65534 --clear-groups rpmlint --config rpmlintrc.toml "${file##*/}") >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
  done
  level=$(systemd-analyze security --offline=true packaging/systemd/vramprof.service | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
  awk -v level="$level" 'BEGIN { exit !(level > 0 && level < 3) }' || fail "exposure level of the service: $level"
}

# fake: a tree of Debian 11 in which the fake CUDA is built, so that it runs with every glibc.
fake() {
  local root=$cache/debian11
  $here/tree.sh bullseye "$root" python3 gcc g++ libc6-dev binutils || return
  rm -rf "$root/src"
  mkdir "$root/src" && cp -a testdata "$root/src/" || return
  inside "$root" /src/testdata/fakecuda/build.sh /opt/fake
}

# inside ROOT COMMAND…: runs it in a tree, with this machine's kernel and processes.
inside() {
  unshare --mount --fork bash -c 'for one in proc sys dev; do mount --rbind "/$one" "$0/$one" || exit; done; exec chroot "$0" /usr/bin/env -u TMPDIR PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$@"
}

# machine SECTION SUITE KERNEL [NAME]: boots a machine with that Debian and kernel, and runs a section of
# inside.sh. NAME.log is its console.
machine() {
  local folder=$cache/$2 name=${4:-$1}
  local inputs=$work/inputs-$name
  fake || return
  $here/image.sh "$folder" "$cache/debian11/opt/fake" "$2" "$3" || return
  mkdir "$inputs" && cp -r "$cache"/{old,new} $here/inside.sh $here/demo.sh "$inputs/" || return
  version "$cache/old" >"$inputs/old/version"
  version "$cache/new" >"$inputs/new/version"
  $here/boot.sh "$folder" "$inputs" "$1 ${STEPS:-}"
  local status=$?
  cp "$inputs.log" "$cache/$name.log"
  [ $status = 0 ] || echo "its console: $cache/$name.log" >&2
  return $status
}
deb() { machine deb bookworm linux-image-cloud-amd64; }
rpm_() { machine rpm bookworm linux-image-cloud-amd64; }
debian13() { machine deb trixie linux-image-cloud-amd64/trixie-backports debian13; }

debian11() {
  local root=$cache/debian11
  fake || return
  inside "$root" dpkg --purge vramprof >/dev/null 2>&1
  cp "$cache"/old/*.deb "$root/src/" && cp $here/demo.sh "$root/src/" || return
  inside "$root" sh -c 'ldd --version | grep -q "2\.31" && apt-get install -y /src/*.deb' >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
  inside "$root" bash /src/demo.sh vramprof /opt/fake "$(version "$cache/old")" || return
  gzip --test "$root"/usr/share/man/man[17]/vramprof*.gz || return
  inside "$root" dpkg --purge vramprof >/dev/null || return
  cp $here/upgrade.sh "$cache"/new/*.deb "$root/src/" || return
  quiet "$work/out" inside "$root" bash -c '/src/upgrade.sh /src/vramprof_*[~.]git*.deb "$(ls /src/vramprof_*.deb | grep -v "[~.]git")"'
}

unpacked() {
  local script
  fake || return
  mkdir "$work/tarball" "$work/rpm"
  tar -C "$work/tarball" -xf "$(echo "$cache"/old/*-linux-amd64.tar.gz)" || return
  # rpm2cpio fails after it has written all, because nfpm notes another size than rpmbuild.
  cat "$cache"/old/*.rpm | rpm2archive - | tar -C "$work/rpm" -xz || return
  for script in post preun postun; do sh -n "packaging/rpm/$script" || return; done
  for program in "$work"/tarball/*/bin/vramprof "$work/rpm/usr/bin/vramprof"; do
    $here/demo.sh "$program" "$cache/debian11/opt/fake" "$(version "$cache/old")" || return
    echo "RESULT unpacked ${program#"$work/"} ok"
  done
}

same() {
  local first=$cache/old
  if [ "${ARCHS:-amd64}" != amd64 ]; then
    first=$work/first
    quiet "$cache/first.log" scripts/release.sh --arch "$ARCHS" --out "$first" || return
  fi
  clone "$work/elsewhere" || return
  GOCACHE=$work/gocache quiet "$cache/second.log" "$work/elsewhere/scripts/release.sh" --arch "${ARCHS:-amd64}" --out "$work/second" || return
  diff "$first/SHA256SUMS" "$work/second/SHA256SUMS"
}

all="lint deb rpm debian13 debian11 unpacked same"
[ $# != 0 ] || set -- $all
for section in "$@"; do
  case " $all " in *" $section "*) ;; *) echo "test-packages.sh: no section $section (sections: $all)" >&2; exit 2 ;; esac
done
begin=$SECONDS
build || { echo "FAIL  build"; exit 1; }
echo "ok    build  $((SECONDS - begin))s  $(version "$cache/old"), $(version "$cache/new")"
passed=0 failed=0 skipped=0
for section in "$@"; do
  begin=$SECONDS
  "${section/#rpm/rpm_}"
  case $? in
    0) passed=$((passed + 1)); echo "ok    $section  $((SECONDS - begin))s" ;;
    77) skipped=$((skipped + 1)); echo "skip  $section" ;;
    *) failed=$((failed + 1)); echo "FAIL  $section" ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
