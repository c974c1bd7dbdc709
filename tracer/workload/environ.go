// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxEnviron = 16 << 10 // variables; Kubernetes creates seven for each service of a namespace
	maxJobID   = 80       // bytes
)

// schedulers lists the job schedulers, by their variables for the job's number and name.
var schedulers = []struct{ id, name string }{
	{"SLURM_JOB_ID", "SLURM_JOB_NAME"},
	{"SLURM_JOBID", "SLURM_JOB_NAME"},
	{"PBS_JOBID", "PBS_JOBNAME"},
	{"LSB_JOBID", "LSB_JOBNAME"}, // LSF
	{"FLUX_JOB_ID", ""},
	{"NOMAD_JOB_ID", "NOMAD_JOB_NAME"},
	{"AWS_BATCH_JOB_ID", ""},
	{"TORCHELASTIC_RUN_ID", ""}, // torchrun --rdzv-id
	{"RAY_JOB_ID", ""},
	{"JOB_ID", "JOB_NAME"}, // Grid Engine, and by convention
}

// launchers lists what starts the processes of a job, by their variables for ranks. Each launcher
// can be started by one further down, whose variables then describe a node instead of a process:
// srun starts torchrun and mpirun once per node.
var launchers = []struct{ rank, local, size string }{
	{"RANK", "LOCAL_RANK", "WORLD_SIZE"}, // PyTorch, DeepSpeed, accelerate
	{"HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"}, // MVAPICH
	{"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},                                 // MPICH, Intel MPI
	{"FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"},
	slurm,
}

var slurm = struct{ rank, local, size string }{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"}

// wanted holds the variables that this package reads.
var wanted = func() map[string]bool {
	names := map[string]bool{}
	add := func(list ...string) {
		for _, name := range list {
			names[name] = name != ""
		}
	}
	add("APPTAINER_NAME", "SINGULARITY_NAME", "KUBERNETES_SERVICE_HOST", "POD_NAME", "POD_NAMESPACE", "HOSTNAME")
	for _, s := range schedulers {
		add(s.id, s.name)
	}
	for _, l := range launchers {
		add(l.rank, l.local, l.size)
	}
	return names
}()

type variables map[string]string

// pick selects the wanted variables of an environment. The first of each name wins, as in getenv.
func pick(environ []string) variables {
	v := variables{}
	for _, entry := range environ[:min(len(environ), maxEnviron)] {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !wanted[name] {
			continue
		}
		if _, ok := v[name]; !ok {
			v[name] = value
		}
	}
	return v
}

// first returns the first non-empty value of these variables.
func (v variables) first(names ...string) string {
	for _, name := range names {
		if value := clean(v[name]); value != "" {
			return value
		}
	}
	return ""
}

// job describes the job. number is the job number from Slurm's control group, or "".
func (v variables) job(number string) string {
	for _, s := range schedulers {
		id, name := cut(v[s.id], maxJobID), v.first(s.name)
		switch {
		case number != "" && id == number:
			return jobText(number, name)
		case number != "" || id == "none" && s.id == "TORCHELASTIC_RUN_ID": // an unnamed run
		case id != "" || name != "":
			return jobText(id, name)
		}
	}
	return number
}

// jobText returns "llama (123)", "llama" or "123".
func jobText(id, name string) string {
	switch {
	case name == "" || name == id:
		return id
	case id == "":
		return name
	}
	return cut(name, maxValue-len(id)-3) + " (" + id + ")"
}

// ranks sets the rank of the process in its job. It never mixes numbers of different launchers.
func (v variables) ranks(w *ledger.Workload, unranked bool) {
	for _, l := range launchers {
		if unranked && l == slurm {
			continue
		}
		rank, local := number(v[l.rank]), number(v[l.local])
		if rank != "" || local != "" {
			w.Rank, w.LocalRank, w.WorldSize = rank, local, number(v[l.size])
			return
		}
	}
}

// number returns a number without leading zeros, or "" if s is not a number.
func number(s string) string {
	if s == "" || s[0] < '0' || s[0] > '9' { // ParseUint accepts no sign; make sure
		return ""
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
