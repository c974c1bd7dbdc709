// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestWorkloadsInAFewWords(t *testing.T) {
	const id = "9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98"
	for _, c := range []struct {
		workload ledger.Workload
		want     string
	}{
		{ledger.Workload{}, ""},
		{ledger.Workload{Rank: "3", LocalRank: "1", WorldSize: "8"}, "rank 3 of 8"},
		{ledger.Workload{Rank: "3", LocalRank: "1"}, "rank 3"},
		{ledger.Workload{LocalRank: "1", WorldSize: "8"}, "local rank 1"},
		{ledger.Workload{Rank: "-3", LocalRank: "x"}, ""},
		{ledger.Workload{Rank: "0", Pod: "llama-0", Namespace: "ml", Container: id, Job: "llama"}, "rank 0, pod ml/llama-0"},
		{ledger.Workload{Pod: "019c1fe8-0d92-4aa0-b61c-4df58bdde71c"}, "pod 019c1fe8-0d9"},
		{ledger.Workload{Namespace: "ml"}, ""},
		{ledger.Workload{Rank: "1", Job: "02000000", Actor: "Trainer"}, "rank 1, job 02000000, Ray Trainer"},
		{ledger.Workload{Pod: "ray-worker-0", Namespace: "ml", PodContainer: "worker", Actor: "Train\x1b[31mer"}, "pod ml/ray-worker-0, Ray Train[31mer"},
		{ledger.Workload{Container: id, Job: "llama (123)"}, "container 9e073649debe, job llama (123)"},
		{ledger.Workload{Container: "trainer"}, "container trainer"},
		{ledger.Workload{Container: "user-1000/" + id}, "container user-1000/9e073649debe"},
		{ledger.Workload{Container: "a-container-of-lxc-with-a-name-of-32"}, "container a-container-of-lxc-with-a-name-of-32"},
		{ledger.Workload{Container: "\x1b[2J\n", Job: strings.Repeat("j", 50)}, "container [2J, job " + strings.Repeat("j", 39) + "…"},
	} {
		if got := strings.Join(WorkloadText(c.workload), ", "); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.workload, got, c.want)
		}
	}
}
