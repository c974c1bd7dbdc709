// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestReportsSayWhatIsOnNoKnownGPU(t *testing.T) {
	s := reporttest.KindsSnapshot() // the first process has memory on a GPU that NVML does not list
	s.Processes[0].Ordinals = ledger.OrdinalsDenied
	var text bytes.Buffer
	if err := WriteSummary(&text, s, reporttest.Stacks(), report.Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	parts := json.NewLeaks(s, reporttest.Stacks(), report.Options{}).Parts
	for _, want := range []string{"allocations, GPU unknown", "is unknown; it is subtracted from unexplained", "NVML lists it on other GPUs than its environment names"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if parts[0].UnplacedBytes == 0 {
		t.Errorf("the JSON has no unplaced bytes: %+v", parts[0])
	}
}
