// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
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
		Rank: digits(w.Rank), LocalRank: digits(w.LocalRank), WorldSize: digits(w.WorldSize),
	}
}

// WorkloadText is a workload in a few words: "rank 3 of 8", "pod ml/llama-0". A
// container is named where there is no pod, and a job likewise.
func WorkloadText(w ledger.Workload) []string {
	var list []string
	add := func(noun, name string) {
		if name != "" {
			list = append(list, noun+" "+fit(name, maxWord))
		}
	}
	switch rank, size := digits(w.Rank), digits(w.WorldSize); {
	case rank == "":
		add("local rank", digits(w.LocalRank))
	case size == "":
		add("rank", rank)
	default:
		add("rank", rank+" of "+size)
	}
	switch {
	case w.Pod != "" && w.Namespace != "":
		add("pod", untrusted.Clean(w.Namespace)+"/"+shortID(w.Pod))
	case w.Pod != "":
		add("pod", shortID(w.Pod))
	default:
		add("container", shortID(w.Container))
		add("job", untrusted.Clean(w.Job))
	}
	return list
}

const maxWord = 40 // columns of a name among others

// digits gives "" for what is no number.
func digits(s string) string {
	if _, err := strconv.ParseUint(s, 10, 63); err != nil {
		return ""
	}
	return s
}

// shortID is the first 12 digits of a long id, which is what Docker's users know;
// a name stays as it is.
func shortID(id string) string {
	const short = 12
	id = untrusted.Clean(id)
	if len(id) < 32 || strings.Trim(id, "0123456789abcdef-") != "" {
		return id
	}
	return id[:short]
}

// workloadLabels adds what is known to the labels of a sample. Ranks are numbers,
// since pprof takes -tagfocus=rank=3 for a range and finds no text by it; they have a unit,
// since it does not keep a 0 without one.
func workloadLabels(w *ledger.Workload, label map[string][]string, number map[string][]int64, unit map[string][]string) {
	for key, text := range map[string]string{"container": w.Container, "pod": w.Pod, "namespace": w.Namespace, "job": w.Job} {
		if text = untrusted.Clean(text); text != "" {
			label[key] = []string{text}
		}
	}
	for key, text := range map[string]string{"rank": w.Rank, "local_rank": w.LocalRank, "world_size": w.WorldSize} {
		if n, err := strconv.ParseUint(text, 10, 63); err == nil {
			number[key], unit[key] = []int64{int64(n)}, []string{key}
		}
	}
}
