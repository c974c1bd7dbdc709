// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
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
		{ledger.Workload{Container: id, Job: "llama (123)"}, "container 9e073649debe, job llama (123)"},
		{ledger.Workload{Container: "trainer"}, "container trainer"},
		{ledger.Workload{Container: "a-container-of-lxc-with-a-name-of-32"}, "container a-container-of-lxc-with-a-name-of-32"},
		{ledger.Workload{Container: "\x1b[2J\n", Job: strings.Repeat("j", 50)}, "container [2J, job " + strings.Repeat("j", 39) + "…"},
	} {
		if got := strings.Join(WorkloadText(c.workload), ", "); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.workload, got, c.want)
		}
	}
}

func TestAWorkloadOfNothingIsNotInTheJSON(t *testing.T) {
	text, err := json.Marshal(ProcessReport{Workload: NewWorkload(ledger.Workload{})})
	if err != nil || strings.Contains(string(text), "workload") {
		t.Errorf("got %s, %v", text, err)
	}
	text, err = json.Marshal(ProcessReport{Workload: NewWorkload(ledger.Workload{Rank: "0", WorldSize: "\x1b"})})
	if want := `"workload":{"rank":"0"}`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("got %s, %v, want %s in it", text, err, want)
	}
}

func TestTablesShowARankOnlyWhole(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 4242, Comm: "python3", End: 1, Workload: ledger.Workload{Rank: "12"}}}}
	for room, want := range map[int]string{28: "python3 [4242] ended rank 12", 27: "python3 [4242] ended"} {
		if got := ownerName(s, 0, room); got != want {
			t.Errorf("%d columns: got %q, want %q", room, got, want)
		}
	}
}
