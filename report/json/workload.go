// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WorkloadReport is the container, job and rank that a process runs for.
type WorkloadReport struct {
	Container    string `json:"container,omitempty"`     // id; of LXC, systemd-nspawn and Apptainer the name
	Pod          string `json:"pod,omitempty"`           // its name, or its uid if the name is unknown
	Namespace    string `json:"namespace,omitempty"`     // of the pod
	PodContainer string `json:"pod_container,omitempty"` // the container's name in its pod
	Actor        string `json:"actor,omitempty"`         // Ray: the class of an actor, or the function of a task
	Job          string `json:"job,omitempty"`           // "name (number)", or the known part
	Rank         string `json:"rank,omitempty"`          // number as a string, like local_rank and world_size
	LocalRank    string `json:"local_rank,omitempty"`
	WorldSize    string `json:"world_size,omitempty"`
}

// NewWorkload returns nil for an unknown workload.
func NewWorkload(w ledger.Workload) *WorkloadReport {
	if w == (ledger.Workload{}) {
		return nil
	}
	return &WorkloadReport{
		Container: untrusted.Clean(w.Container), Pod: untrusted.Clean(w.Pod), Namespace: untrusted.Clean(w.Namespace), Job: untrusted.Clean(w.Job),
		PodContainer: untrusted.Clean(w.PodContainer), Actor: untrusted.Clean(w.Actor),
		Rank: format.Digits(w.Rank), LocalRank: format.Digits(w.LocalRank), WorldSize: format.Digits(w.WorldSize),
	}
}
