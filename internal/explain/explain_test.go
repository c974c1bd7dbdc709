// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

// TestAProcessThatNeverRestsIsSaidToBeOfTwoMoments: NVML and the allocator are read until nothing
// changes between, for a while; then the books have a warning.
func TestAProcessThatNeverRestsIsSaidToBeOfTwoMoments(t *testing.T) {
	for changes, apart := range map[int]bool{0: false, 2: false, 1 << 30: true} {
		synctest.Test(t, func(t *testing.T) {
			const took = 20 * time.Millisecond
			r := reader{pid: 1, begin: clock.Now(), usage: []ledger.Usage{{PID: 1, UUID: "GPU-a", Bytes: 100}}}
			bytes, reads, begin := uint64(100), 0, time.Now()
			r.agree(context.Background(), func() ([]ledger.Usage, error) {
				if reads < changes {
					bytes++
				}
				return []ledger.Usage{{PID: 1, UUID: "GPU-a", Bytes: bytes}}, nil
			}, func() {
				reads++
				time.Sleep(took)
			})
			if r.apart != apart || !apart && reads != changes || r.usage[0].Bytes != bytes || time.Since(begin) > agreement+took {
				t.Errorf("%d changes: apart %v after %d readings in %v, %d bytes of %d", changes, r.apart, reads, time.Since(begin), r.usage[0].Bytes, bytes)
			}
			text := strings.Join(r.books().Warnings, "\n")
			if strings.Contains(text, "grew or shrank while it was read: NVML's figure and the allocator's are of different moments") != apart {
				t.Errorf("%d changes: warnings %q", changes, text)
			}
		})
	}
}

// Where NVML gave no list, no process is missing in it.
func TestNothingIsKnownForTheReasonOfNVML(t *testing.T) {
	for err, want := range map[error]string{nil: "NVML does not list it (vramprof ps", nvml.ErrBusy: "that is known: NVML does not answer, and"} {
		if got := (&reader{pid: 7, listed: err}).failure().Error(); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestAProcessThatIsOnlyReadHasNoAttach: nothing is before it, and there are no stack traces.
func TestAProcessThatIsOnlyReadHasNoAttach(t *testing.T) {
	for _, walked := range []bool{true, false} {
		r := manyTensors(10)
		r.usage[0].Bytes-- // beyond NVML's figure, which names what it is taken off
		if !walked {
			r.walked = nil
		}
		var out bytes.Buffer
		s := r.books()
		if err := text.WriteExplain(&out, s, nil, nil, report.Options{}, text.Screen{Width: 80}); err != nil {
			t.Fatal(err)
		}
		if err := reportjson.WriteExplain(&out, s, nil, nil, report.Options{}); err != nil {
			t.Fatal(err)
		}
		if said := out.String(); strings.Contains(said, "before") || strings.Contains(said, "stack traces alone") || !strings.Contains(said, "context, other CUDA") {
			t.Errorf("walked %v:\n%s", walked, said)
		}
	}
}
