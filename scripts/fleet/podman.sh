#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# podman.sh: runs the file system of an image in a container with the rights of the DaemonSet, next
# to a container with a kubelet's control group and logs, and asks vramprof for the pod's memory.
# Then measures what vramprof needs, with the requested memory as its limit: idle, and with 8
# processes of the real PyTorch.
. "$(dirname "$0")/common.sh"
command -v podman >/dev/null && command -v runc >/dev/null || skip "no podman with runc"
build

uid=2c0d0b5e-1f5b-4f0a-9d0e-0123456789ab
pod=llama-0 namespace=vramprof-test container=trainer
manifest=packaging/kubernetes/daemonset.yaml
engine=(podman --runtime "$(command -v runc)" --cgroup-manager=cgroupfs --root "$work/storage" --runroot "$work/run")
# The limits of this machine: raising them is not allowed everywhere.
run() { "${engine[@]}" run --rm --network none --ulimit "nofile=1024:1024" --ulimit "nproc=1024:1024" "$@"; }

# rights: prints the options of a container with the rights of the DaemonSet.
rights() {
  local list
  contains "$manifest" 'hostPID: true' 'readOnlyRootFilesystem: true' 'allowPrivilegeEscalation: false'
  list=$(sed -n '/^ *add:$/,/^ *[a-z]*:/{s/^ *- \([A-Z_]*\)$/\1/p}' "$manifest" | paste -sd,)
  [ -n "$list" ] || fail "no capabilities in $manifest"
  echo "--pid=host --read-only --read-only-tmpfs=false --security-opt=no-new-privileges --security-opt=seccomp=unconfined --cap-drop=all --cap-add=$list"
}

# serve NAME: starts vramprof in its container. The driver's library and the device come from
# NVIDIA's container runtime on a real node.
serve() { # NAME OPTION…
  local name=$1 archive=$work/archive-$1
  shift
  mkdir -p "$archive"
  # shellcheck disable=SC2046 # options without spaces
  background run --name "$name" "$@" $(rights) --cgroup-parent "/kubepods/pod-$name" --mount type=tmpfs,destination=/run/vramprof,tmpfs-mode=0700 \
    --volume "$archive:/var/lib/vramprof" --volume /var/log/pods:/var/log/pods:ro --volume /var/log/containers:/var/log/containers:ro --volume "$cuda/libnvidia-ml.so.1:/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1:ro" --volume "$work/gpu:/gpu" \
    --env FAKECUDA_SHM=/gpu/shm --env FAKECUDA_GPUS=8 --rootfs "$work/image" vramprof serve --web.listen-address=:9836
  until_true 60 ask "$name" /-/ready || fail "vramprof does not get ready"
}

pid_of() { "${engine[@]}" inspect --format '{{.State.Pid}}' "$1"; }

# ask NAME PATH: asks vramprof in a container, in its network.
ask() { nsenter --target "$(pid_of "$1")" --net curl --silent --show-error --fail --max-time 30 "http://localhost:9836$2"; }

# train NAME COMMAND…: starts a container of a pod. Its control group is the kubelet's, with its id
# last, as the runtimes name it.
train() {
  local name=$1
  shift
  background run --name "$name" --cgroup-parent "/kubepods/burstable/pod$uid" --volume /usr:/usr:ro --volume "$cuda:/cuda:ro" \
    --volume "$PWD/testdata/programs:/programs:ro" --volume "$work/gpu:/gpu" --env FAKECUDA_SHM=/gpu/shm --env LD_LIBRARY_PATH=/cuda \
    --env FAKECUDA_GPUS=8 --env "CUDA_VISIBLE_DEVICES=${gpu:-0}" --env RANK=0 --env WORLD_SIZE=8 "${torch[@]}" --rootfs "$work/program" "$@" >"$work/$name.log" 2>&1
  until_true 30 "${engine[@]}" inspect "$name" || { cat "$work/$name.log"; fail "the container $name does not start"; }
}

# The real PyTorch, if its packages are available.
torch=() program=(python3 /programs/train.py)
answer=$(scripts/real-torch.sh)
if [ "${answer#skipped:}" = "$answer" ]; then
  { read -r root; read -r runtime; } <<<"$answer"
  torch=(--volume "$root:$root:ro" --volume "$runtime:$runtime:ro" --volume "$PWD/testdata/realtorch:$PWD/testdata/realtorch:ro"
    --env "LD_LIBRARY_PATH=$runtime:/cuda" --env "PYTHONPATH=$PWD/testdata/realtorch/site" --env FAKECUDA_GPUS=8)
  program=("$root/python3" "$PWD/testdata/realtorch/train.py" --seconds 600 --sleep 0.02)
fi

# kubelet: makes the names in /var/log by which the kubelet keeps the logs of a container.
kubelet() {
  local logs=/var/log/pods/${namespace}_${pod}_$uid
  log=/var/log/containers/${pod}_${namespace}_$container-$1.log
  mkdir -p "$logs/$container" /var/log/containers
  ln -sfn "$logs/$container/0.log" "$log"
}
forget() {
  rm -rf "/var/log/pods/${namespace}_${pod}_$uid" "${log:-/nonexistent}"
  rmdir /var/log/pods /var/log/containers 2>/dev/null
  find /sys/fs/cgroup -depth -type d \( -path '*/kubepods/*' -o -name kubepods \) -exec rmdir {} + 2>/dev/null
}
stop() {
  "${engine[@]}" kill --all >/dev/null 2>&1
  until_true 20 [ -z "$("${engine[@]}" ps -q)" ]
}
at_end forget
at_end stop

# memory NAME: prints what the container's control group was charged with, in MiB: all, and of it
# what the kernel took, such as BPF maps.
memory() {
  local group file
  group=$(sed -n 's/^[0-9]*:memory://p; s/^0:://p' "/proc/$(pid_of "$1")/cgroup" | head -n 1)
  for file in "/sys/fs/cgroup$group" "/sys/fs/cgroup/memory$group"; do
    if [ -e "$file/memory.peak" ]; then
      echo "$(($(cat "$file/memory.peak") >> 20)) MiB at most"
      return
    elif [ -e "$file/memory.max_usage_in_bytes" ]; then
      echo "$(($(cat "$file/memory.max_usage_in_bytes") >> 20)) MiB at most, $(($(cat "$file/memory.usage_in_bytes") >> 20)) MiB now, of them $(($(cat "$file/memory.kmem.usage_in_bytes") >> 20)) MiB of the kernel"
      return
    fi
  done
  echo unknown
}
cpu() { awk '{ print ($14 + $15) * 1000 / '"$(getconf CLK_TCK)"' }' "/proc/$(pid_of "$1")/stat"; } # ms

mkdir -p "$work/gpu"
scripts/fleet/image.sh "$work/image" "$bin/vramprof"
mkdir -p "$work/image"/var/{lib/vramprof,log/pods,log/containers} "$work/image/run/vramprof" "$work/image/gpu"
touch "$work/image/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" # where the driver's is mounted
mkdir -p "$work/program"/{usr,proc,sys,dev,etc,tmp,run,cuda,programs,gpu}
for link in bin lib lib64; do ln -sfn "usr/$link" "$work/program/$link"; done

echo "a pod that trains, and vramprof in a container with $(rights | sed 's/.*--cap-add=//')"
train trainer python3 /programs/train.py
kubelet "$("${engine[@]}" inspect --format '{{.Id}}' trainer)"
serve vramprof
named() { ask vramprof /metrics >"$work/metrics" && grep -q "^vramprof_memory_bytes{.*pod=\"$pod\"" "$work/metrics"; }
until_true 30 named || { grep ^vramprof_memory_bytes "$work/metrics" >&2; fail "no memory of pod $pod"; }
grep '^vramprof_memory_bytes{.*plane="driver"' "$work/metrics"
grep '^vramprof_memory_bytes{.*plane="driver"' "$work/metrics" >"$work/driver"
contains "$work/driver" "namespace=\"$namespace\"" "pod=\"$pod\"" "container=\"$container\""
ask vramprof "/debug/pprof/gpu?pod=$pod" >"$work/pod.pb.gz"
go tool pprof -top "$work/pod.pb.gz" >"$work/top" 2>/dev/null
contains "$work/top" Trainer.train_step
sed -n 1,12p "$work/top"
grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp):' "/proc/$(pid_of vramprof)/status" | paste -sd' '
sleep 5
ls -l "$work/archive-vramprof" | sed 1d | head -n 5
stop

request=$(sed -n '/^ *requests:$/,$s/^ *memory: //p' "$manifest" | head -n 1)
echo "memory, with a limit of $request"
mkdir -p /var/log/pods /var/log/containers
serve idle --memory "${request%i}"
sleep 5
before=$(cpu idle)
sleep 20
echo "idle: $(memory idle), $(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$(pid_of idle)/status") MiB resident; $(($(printf '%.0f' "$(cpu idle)") - $(printf '%.0f' "$before"))) ms of processor time in 20 s"
for gpu in 0 1 2 3 4 5 6 7; do train "rank$gpu" "${program[@]}"; done
sleep 90
traced() { ask idle /metrics | grep -c '^vramprof_memory_bytes{.*plane="tensor"'; }
echo "8 processes for 90 s: $(memory idle), $(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$(pid_of idle)/status") MiB resident"
[ "$(traced)" -ge 1 ] || fail "no tensors of 8 processes"
ask idle /metrics | grep -E '^(vramprof_processes|process_resident|vramprof_own|vramprof_lost|vramprof_dropped)' || true
stop
