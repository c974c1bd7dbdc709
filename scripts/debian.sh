# SPDX-License-Identifier: Apache-2.0
# debian.sh: functions for scripts that unpack packages of Debian and install nothing. Sourced.

# debian_configure WORK TYPES COMPONENTS SUITE…: prepares apt with separate state in the folder WORK
# for this machine's mirror, and sets options, the arguments of apt-get and apt-cache. It prints what
# is missing.
debian_configure() {
  local work=$1 types=$2 components=$3 mirror suite tool keys=/usr/share/keyrings/debian-archive-keyring.gpg
  shift 3
  for tool in apt-get apt-cache dpkg-deb; do
    command -v $tool >/dev/null || { echo "no $tool"; return 1; }
  done
  # "URIs: MIRROR" or "deb MIRROR SUITE main".
  mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE '/^#/!s,.*[ =]([a-z]+://[^ ]+/debian)/?( .*)?$,\1,p' | sort -u | sed -n 1p) || true
  [ -n "$mirror" ] || { echo "no Debian mirror is configured"; return 1; }
  [ -r "$keys" ] || { echo "no $keys"; return 1; }
  mkdir -p "$work"/{lists/partial,archives/partial,none}
  : >"$work/status"
  for suite in "$@"; do # one by one: suites come and go
    printf 'Types: %s\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n\n' "$types" "$mirror" "$suite" "$components" "$keys"
  done >"$work/debian.sources"
  options=(-q -o "Dir::Etc::sourcelist=$work/debian.sources" -o "Dir::Etc::sourceparts=$work/none" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work" -o "Dir::State::status=$work/status" -o Acquire::Languages=none -o APT::Sandbox::User=root
    -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false -o Acquire::Retries=2 -o Acquire::http::Timeout=20)
}

# debian_unpack WORK PACKAGE VERSION FOLDER: downloads a package and unpacks it to FOLDER, which is
# complete or absent. The log is WORK/log.
debian_unpack() {
  local work=$1
  (cd "$work/archives" && rm -f ./*.deb && timeout 500 apt-get "${options[@]}" download "$2=$3") >>"$work/log" 2>&1 ||
    { echo "$2 $3 is unavailable: $(tail -n 1 "$work/log")" >&2; return 1; }
  rm -rf "$work/root"
  dpkg-deb -x "$work"/archives/*.deb "$work/root" || return 1
  mv "$work/root" "$4"
  echo "unpacked $2 $3" >&2
}
