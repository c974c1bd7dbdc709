// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

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
