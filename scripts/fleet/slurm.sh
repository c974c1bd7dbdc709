#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh: runs a job of two ranks with the real PyTorch on the fake CUDA in a Slurm of one node,
# with the prolog and epilog of packaging/slurm: once beside vramprof serve, once without.
. "$(dirname "$0")/common.sh"
for program in slurmctld slurmd munged srun; do
  command -v "$program" >/dev/null || skip "no $program"
done
answer=$(scripts/real-torch.sh) || fail "$answer"
case $answer in skipped:*) skip "${answer#skipped: }" ;; esac
{ read -r root; read -r runtime; } <<<"$answer"
build

# The daemons of a cluster of one node, with folders of their own.
mkdir -p "$work"/{munge,state,spool,etc,reports,run,archive}
chmod 755 "$work"
dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 700 "$work/munge"
chmod 600 "$work/munge/key"
socket=$work/munge/socket
chmod 711 "$work/munge"
background munged --foreground --force --key-file="$work/munge/key" --socket="$socket" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" \
  --log-file="$work/munge/log"
cat >"$work/etc/slurm.conf" <<END
ClusterName=fleet
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
PrologFlags=Alloc
Prolog=$PWD/packaging/slurm/vramprof-prolog.sh
Epilog=$PWD/packaging/slurm/vramprof-epilog.sh
BatchStartTimeout=60
NodeName=node1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=1000 State=UNKNOWN
PartitionName=gpu Nodes=node1 Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
export SLURM_CONF=$work/etc/slurm.conf
# The scripts have a clean environment; this is where their configuration is.
configuration=/etc/vramprof/slurm.conf
[ ! -e "$configuration" ] || fail "there is a $configuration"
mkdir -p /etc/vramprof
cat >"$configuration" <<END
VRAMPROF=$bin/vramprof
VRAMPROF_SOCKET=$work/run/vramprof.sock
VRAMPROF_REPORTS=$work/reports
END
forget() { rm -f "$configuration"; rmdir --ignore-fail-on-non-empty /etc/vramprof; }
at_end forget
background slurmctld -D >"$work/slurmctld.log" 2>&1
background slurmd -D -N node1 >"$work/slurmd.log" 2>&1
idle() { [ "$(sinfo --noheader --format %T)" = idle ]; }
until_true 30 idle || { tail -n 5 "$work"/slurm*.log >&2; fail "the node is not idle"; }

# job NAME: runs both ranks and waits for the epilog. Prints the job's number.
job() {
  LD_LIBRARY_PATH=$runtime:$cuda PYTHONPATH=testdata/realtorch/site FAKECUDA_SHM=$work/gpu FAKECUDA_GPUS=2 FAKECUDA_MEMORY=$((2 << 30)) \
    srun --ntasks=2 --overcommit --job-name="$1" --export=ALL bash -c 'echo $SLURM_JOB_ID >"'"$work"'/number"; export CUDA_VISIBLE_DEVICES=$SLURM_PROCID
      exec '"$root/python3"' scripts/fleet/slurm_job.py' >"$work/job.log" 2>&1 || { cat "$work/job.log" >&2; fail "the job failed"; }
  until_true 60 idle || fail "the epilog does not end"
  cat "$work/number"
}

# check NUMBER: checks the reports of a job and that its node was not drained.
check() {
  local text=$work/reports/$1.node1.txt
  [ -s "$text" ] || { cat "$work/reports/errors" "$work/job.log" >&2 || true; ls -la "$work/reports" >&2; fail "no report of job $1"; }
  cat "$text"
  contains "$text" "GPU memory of each rank at its peak" "rank 0 of 2" "rank 1 of 2" "slurm_job.py:16 leak" "ran out of memory" "PyTorch cache 300 MiB"
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/reports/$1.node1.json"
  [ "$(stat -c %a "$text")" = 400 ] || fail "others can read the report"
  idle || fail "the node is $(sinfo --noheader --format %T)"
}

echo "with vramprof serve"
FAKECUDA_SHM=$work/gpu FAKECUDA_GPUS=2 FAKECUDA_MEMORY=$((2 << 30)) LD_LIBRARY_PATH=$cuda background vramprof serve --run-dir "$work/run" --archive "$work/archive" \
  --web.listen-address localhost:29836 2>"$work/serve.log"
serve=${children[-1]}
until_true 60 curl --silent --fail http://localhost:29836/-/ready || { cat "$work/serve.log" >&2; fail "vramprof does not get ready"; }
number=$(job llama)
check "$number"
vramprof report "$work/archive" --job llama
kill "$serve"
until_true 20 [ ! -S "$work/run/vramprof.sock" ]

echo "without"
check "$(job alone)"
ls "$work/reports"
[ -z "$(find "$work/reports" -name '*.vram' -o -name '*.pid' -o -name '*oom*')" ] || fail "the epilog leaves files"

echo "with a vramprof that fails"
echo "VRAMPROF=/bin/false" >>"$configuration"
number=$(job broken)
idle || fail "the node is drained"
