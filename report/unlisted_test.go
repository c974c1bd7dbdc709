// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// unlisted returns a session of a process with tensors that NVML listed for 3 seconds, until 5
// seconds before its end.
func unlisted() *ledger.Snapshot {
	const second, mib = uint64(time.Second), uint64(1 << 20)
	const gpu = "GPU-4d8e0f36-0000-0000-0000-000000000000"
	l := ledger.New(ledger.Options{Begin: second})
	l.Tell(ledger.GPUs{{UUID: gpu, Total: 80 << 30}})
	l.Tell(ledger.Process{PID: 7, Comm: "train", Begin: second})
	l.Tell(ledger.Devices{PID: 7, UUIDs: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * mib}}})
	l.Apply(&ledger.Event{PID: 7, Op: ledger.Alloc, Kind: ledger.Device, Device: 0, API: "cudaMalloc", Address: 4096, Size: 2048 * mib, Stack: 1, Time: 2 * second})
	l.Apply(&ledger.Event{PID: 7, Op: ledger.Alloc, Kind: ledger.Pinned, Device: 0, API: "cudaHostAlloc", Address: 8192, Size: 64 * mib, Stack: 1, Time: 2 * second})
	l.Tell(ledger.UsageReading{Time: 4 * second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 2348 * mib}}})
	l.Tell(ledger.UsageReading{Time: 8 * second})
	return l.Snapshot(9*second, time.Time{})
}

func TestMemoryOfAProcessThatNVMLNoLongerListsIsInNoSum(t *testing.T) {
	s := unlisted()
	sums := map[string]int64{}
	for _, h := range report.Holdings(s) {
		sums[h.Plane] += h.Live
	}
	for plane, want := range map[string]int64{report.PlaneAsleep: 2048 << 20, report.PlaneHost: 64 << 20} {
		if sums[plane] != want {
			t.Errorf("%s has %d bytes, want %d", plane, sums[plane], want)
		}
		delete(sums, plane)
	}
	for plane, bytes := range sums {
		if bytes != 0 {
			t.Errorf("%s has %d bytes", plane, bytes)
		}
	}
}

func TestReportsSayWhatIsCheckpointedOrUnknown(t *testing.T) {
	s, stacks := unlisted(), reporttest.Stacks()
	want := "train [7]: NVML has not listed it on GPU 4d8e0f36 for 5.0s: at least 2.00 GiB are checkpointed, or where they are is unknown; they are in no sum"
	if list := report.UnlistedTexts(s); !slices.Equal(list, []string{want}) {
		t.Errorf("the doubts are %q", list)
	}
	var page, data, samples bytes.Buffer
	if err := text.WriteSummary(&page, s, stacks, report.Options{}, text.Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(page.String()), " "); !strings.Contains(got, "checkpointed or unknown 2.00 GiB") || !strings.Contains(got, "usage 0 B") || !strings.Contains(got, want[:60]) {
		t.Errorf("the summary is\n%s", page.String())
	}
	if err := reportjson.WriteLeaks(&data, s, stacks, report.Options{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Balances []struct{ Unlisted bool }
		Parts    []struct {
			Unlisted    uint64 `json:"unlisted_bytes"`
			Unexplained int64  `json:"unexplained_bytes"`
		}
	}
	if err := json.Unmarshal(data.Bytes(), &got); err != nil || len(got.Parts) != 1 || !got.Balances[0].Unlisted || got.Parts[0].Unlisted != 2<<30 || got.Parts[0].Unexplained != 0 {
		t.Errorf("the JSON has %+v (%v)", got, err)
	}
	if err := profile.Write(&samples, s, stacks); err != nil {
		t.Fatal(err)
	}
}
