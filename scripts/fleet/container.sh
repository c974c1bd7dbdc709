#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# container.sh: builds the image with the commands of docs/install.md, on a base that is made here
# and has the name of the Dockerfile's. Runs the image with the rights of docs/install.md, and asks
# it for a program in another container. podman and runc stand in for Docker. The image for arm64 is
# built and only started, in an emulator. release.sh writes into .cache/release/out; the base stays
# in .cache/fleet.
. "$(dirname "$0")/common.sh"
command -v podman >/dev/null && command -v runc >/dev/null || skip "no podman with runc"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
testdata/fakecuda/build.sh "$cuda"

dockerfile=packaging/container/Dockerfile
base=$(sed -n 's/^ARG BASE=//p' "$dockerfile")
suite=${base##*:} suite=${suite%-slim}
# The bridge and published ports are in a network namespace of the section.
namespace=${work##*/}
ip netns add "$namespace" 2>/dev/null || skip "no network namespaces"
leave() { ip netns delete "$namespace"; }
at_end leave
network=(nsenter "--net=/run/netns/$namespace")
"${network[@]}" ip link set lo up
engine=("${network[@]}" podman --runtime "$(command -v runc)" --cgroup-manager=cgroupfs --root "$work/storage" --runroot "$work/run" --tmpdir "$work/tmp")
# The limits of this machine: raising them is not allowed everywhere.
limits=(--ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 --pull=never)

# docker COMMAND…: runs a command of Docker with podman. The fake driver's library and device stand
# in for what --gpus mounts. As with Docker, a read-only container has no other tmpfs.
docker() {
  local verb=$1 option kept=()
  shift
  for option in "$@"; do
    [ "$option" = --gpus=all ] || kept+=("$option")
  done
  case $verb in
    build) "${engine[@]}" build --pull=never "${kept[@]}" ;;
    run)
      "${engine[@]}" run "${limits[@]}" --read-only-tmpfs=false --volume="$cuda/libnvidia-ml.so.1:/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1:ro" \
        --volume="$work/gpu:/gpu" --env=FAKECUDA_SHM=/gpu/shm "${kept[@]}"
      ;;
    *) "${engine[@]}" "$verb" "${kept[@]}" ;;
  esac
}

# The commands of docs/install.md, one a line. Lines that are indented further continue a command.
sed -n '/^## Containers$/,/^## As /s/^    //p' docs/install.md | awk '/^ / { sub(/^ +/, ""); line = line " " $0; next } { if (line != "") print line; line = $0 } END { print line }' >"$work/commands"
used=0

# documented BEGIN [PID]: sets $command to the only command that begins so, for that process.
documented() {
  local found
  found=$(awk -v begin="$1" 'index($0, begin) == 1' "$work/commands")
  [ "$(wc -l <<<"$found")" = 1 ] && [ -n "$found" ] || fail "docs/install.md must have one command that begins with \"$1\": $found"
  command=${found//PID/${2:-PID}}
  used=$((used + 1))
  echo "\$ $command"
}

# make_base: makes a root file system like that of Debian's slim image, once.
make_base() {
  local exclude=() folder
  rootfs=$PWD/.cache/fleet/debian-$suite.tar
  [ ! -e "$rootfs" ] || return 0
  for folder in doc info lintian locale man; do exclude+=(--dpkgopt="path-exclude=/usr/share/$folder/*"); done
  mmdebstrap --quiet --variant=minbase "${exclude[@]}" --dpkgopt='path-include=/usr/share/doc/*/copyright' "$suite" "$work/rootfs.tar" >"$work/mmdebstrap" 2>&1 ||
    { tail -n 5 "$work/mmdebstrap"; skip "no root file system of Debian $suite"; }
  mv "$work/rootfs.tar" "$rootfs"
}

remove() {
  "${engine[@]}" rm --all --force --time 5 >/dev/null
  umount "$work/storage/overlay" 2>/dev/null
  until_true 10 find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + # conmon ends later
}
at_end remove

pid_of() { "${engine[@]}" inspect --format '{{.State.Pid}}' "$1"; }
ask() { "${network[@]}" curl --silent --show-error --fail --max-time 30 "http://localhost:9836$1"; }
size() { "${engine[@]}" image inspect --format '{{.Size}}' "$1"; } # bytes

make_base
"${engine[@]}" import --quiet "$rootfs" "$base" >/dev/null
documented scripts/release.sh
eval "$command" >"$work/release" 2>&1 || { tail -n 20 "$work/release"; fail "release.sh"; }
documented "docker build"
eval "$command" >"$work/build" 2>&1 || { cat "$work/build"; fail "the image cannot be built"; }
image=$(sed -nE 's/.*--tag[= ]([^ ]+).*/\1/p' <<<"$command")
echo "$image: $(($(size "$image") / 1000000)) MB, of them $((($(size "$image") - $(size "$base")) / 1000000)) MB of vramprof"

# The program: Python of this machine and the fake CUDA, on the same base.
mkdir -p "$work/gpu"
"${engine[@]}" run --detach --name=trainer "${limits[@]}" --volume=/usr:/usr:ro --volume="$cuda:/cuda:ro" --volume="$PWD/testdata/programs:/programs:ro" \
  --volume="$work/gpu:/gpu" --env=FAKECUDA_SHM=/gpu/shm --env=LD_LIBRARY_PATH=/cuda --env=PYTHONDONTWRITEBYTECODE=1 "$base" python3 /programs/train.py >/dev/null
pid=$(pid_of trainer)
id=$("${engine[@]}" inspect --format '{{.Id}}' trainer)
[ "$pid" -gt 0 ] || fail "the program does not start"
line="/programs/train.py:$(grep -n 'self.metrics.append' testdata/programs/train.py | cut -d: -f1) Trainer.train_step"

documented "rights="
eval "$command"
documented "docker run --rm \"\${rights[@]}\" $image check"
eval "$command" >"$work/check" || { cat "$work/check"; fail "vramprof check"; }
tail -n 3 "$work/check"
for right in "${rights[@]}"; do # none is too many
  case $right in --cap-add=*) ;; *) continue ;; esac
  docker run --rm "${rights[@]/$right/--cap-drop=all}" "$image" check >"$work/check" 2>&1 && fail "vramprof check passes without $right"
  contains "$work/check" "lacks CAP_${right#*=}"
done

documented "docker run --rm \"\${rights[@]}\" $image leaks" "$pid"
eval "$command" >"$work/leaks" || { cat "$work/leaks"; fail "vramprof leaks"; }
contains "$work/leaks" "leaking   $line"
sed -n 3,8p "$work/leaks"

documented "docker run --rm \"\${rights[@]}\" $image record" "$pid"
(cd "$work" && eval "$command" 2>"$work/record") || { cat "$work/record"; fail "vramprof record"; }
go tool pprof -top "$work/run.pb.gz" >"$work/top" 2>"$work/pprof" || { cat "$work/pprof"; fail "the profile cannot be read"; }
contains "$work/top" Trainer.train_step
contains "$work/record" "$line" "python3 [$pid], container ${id:0:12}, cuda:0"
go tool pprof -tags "$work/run.pb.gz" >"$work/tags" 2>"$work/pprof"
contains "$work/tags" "$id"

documented "docker run --detach"
eval "$command" >/dev/null
until_true 60 ask /-/ready || { docker logs vramprof; fail "vramprof does not get ready"; }
labeled() { ask /metrics >"$work/metrics" && grep '^vramprof_memory_bytes{.*plane="driver"' "$work/metrics" | grep -F "container=\"${id:0:12}\""; }
until_true 30 labeled || { grep ^vramprof_memory_bytes "$work/metrics"; fail "no memory of the container ${id:0:12}"; }
labeled
ask "/debug/pprof/gpu" >"$work/gpu.pb.gz"
go tool pprof -top "$work/gpu.pb.gz" >"$work/top" 2>"$work/pprof" || { cat "$work/pprof"; fail "the daemon's profile cannot be read"; }
contains "$work/top" Trainer.train_step
sed -n '/flat%/,+2p' "$work/top"
documented "docker exec"
eval "$command" >"$work/screen" || { cat "$work/screen"; fail "top --connect"; }
contains "$work/screen" train.py
grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp):' "/proc/$(pid_of vramprof)/status" | paste -sd' '
docker stop vramprof >/dev/null
status=$("${engine[@]}" inspect --format '{{.State.ExitCode}}' vramprof)
docker logs vramprof >"$work/log" 2>&1
[ "$status" = 0 ] && ! grep -F '"level":"ERROR"' "$work/log" || { cat "$work/log"; fail "the daemon ended with status $status"; }
tail -n 1 "$work/log"

if command -v qemu-aarch64-static >/dev/null; then
  scripts/release.sh --arch arm64 --out "$work/arm64" >"$work/release" 2>&1 || { tail -n 20 "$work/release"; fail "release.sh for arm64"; }
  # The packages are only unpacked: their scripts would need an emulator in the kernel.
  mmdebstrap --quiet --arch=arm64 --variant=extract --include=base-files,libc6 --skip=check/qemu "$suite" "$work/arm64.tar" >"$work/mmdebstrap" 2>&1 ||
    { cat "$work/mmdebstrap"; fail "no root file system for arm64"; }
  "${engine[@]}" import --quiet --arch=arm64 "$work/arm64.tar" "$base" >/dev/null
  docker build --platform=linux/arm64 --tag=arm64 --file="$dockerfile" "$work/arm64" >"$work/build" 2>&1 || { cat "$work/build"; fail "the image for arm64 cannot be built"; }
  root=$("${engine[@]}" image mount arm64)
  qemu-aarch64-static -L "$root" "$root/usr/bin/vramprof" version | tee "$work/version"
  "${engine[@]}" image unmount arm64 >/dev/null
  contains "$work/version" linux/arm64
else
  echo "no image for arm64: no qemu-aarch64-static"
fi
[ "$used" = "$(wc -l <"$work/commands")" ] || { cat "$work/commands"; fail "docs/install.md has commands that were not run"; }
