// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WorkloadReport says on whose behalf a process runs.
type WorkloadReport struct {
	Container string `json:"container,omitempty"` // id; of LXC, systemd-nspawn and Apptainer the name
	Pod       string `json:"pod,omitempty"`       // its uid where nothing tells the name
	Namespace string `json:"namespace,omitempty"` // of the pod
	Job       string `json:"job,omitempty"`       // "name (number)", or what is known of it
	Rank      string `json:"rank,omitempty"`      // digits, as the two that follow
	LocalRank string `json:"local_rank,omitempty"`
	WorldSize string `json:"world_size,omitempty"`
}

// NewWorkload gives nil if nothing is known.
func NewWorkload(w ledger.Workload) *WorkloadReport {
	if w == (ledger.Workload{}) {
		return nil
	}
	return &WorkloadReport{
		Container: untrusted.Clean(w.Container), Pod: untrusted.Clean(w.Pod), Namespace: untrusted.Clean(w.Namespace), Job: untrusted.Clean(w.Job),
		Rank: words.Digits(w.Rank), LocalRank: words.Digits(w.LocalRank), WorldSize: words.Digits(w.WorldSize),
	}
}
