// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestMain(m *testing.M) {
	notify.RunHidden(os.Args)
	os.Exit(m.Run())
}

// TestTheCommandIsToldOfAGPUThatFillsWithoutALeak: what other processes have grows. The command of
// --on-leak gets it once, with the balance of the GPU, and a line that leaks has the balance, too.
func TestTheCommandIsToldOfAGPUThatFillsWithoutALeak(t *testing.T) {
	results := make(chan notify.Result, 10)
	runner, err := notify.Start(notify.Options{
		Commands: map[string]string{onLeak: "cat"}, Limit: 100, Timeout: 10 * time.Second, Self: "/proc/self/exe", Done: func(x notify.Result) { results <- x },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close(t.Context())
	var log bytes.Buffer
	s := &server{session: &session.Session{}, alerts: runner, log: slog.New(slog.NewTextHandler(&log, nil))}
	snapshot := func(step uint64, wall time.Time) *ledger.Snapshot {
		x := reporttest.Snapshot()
		x.Wall = wall
		for i := range x.GPUs {
			g := &x.GPUs[i]
			g.Past = nil
			for n := range uint64(60) {
				g.Past = append(g.Past, ledger.GPUPast{Time: x.Begin + n*4e9, Used: g.Used + n*step, Traced: g.Used})
			}
		}
		return x
	}
	planes, lines := knownPlanes{}, newKnownLeaks()
	judge := func(step uint64, wall time.Time) {
		x := snapshot(step, wall)
		j := report.Judge(x, reporttest.Stacks())
		gpus := reportjson.NewGrowth(x, s, j)
		s.tellPlanes(planes, x, j, gpus)
		s.tellLeaks(lines, x, j.Groups, gpus)
	}
	now := time.Unix(1e9, 0)
	judge(64<<20, now)
	judge(64<<20, now.Add(time.Minute)) // told already
	told := map[string]int{}
	for range len(results) + 3 {
		select {
		case x := <-results:
			var a alertReport
			if err := json.Unmarshal([]byte(x.Output), &a); err != nil || x.Error != "" {
				t.Fatalf("%v: %+v", err, x)
			}
			told[a.Event]++
			if a.GPU == nil || len(a.GPU.Planes) == 0 || a.GPU.BytesPerSecond == 0 {
				t.Errorf("%s without the balance of its GPU: %s", a.Event, x.Output)
			}
			if a.Event == onGrowth && (a.Plane != "others" || a.FullInSeconds == 0 || a.BytesPerSecond < 16e6 || !strings.HasPrefix(a.Evidence, "other processes grow: ")) {
				t.Errorf("told %s", x.Output)
			}
		case <-time.After(5 * time.Second):
		}
	}
	if told[onGrowth] == 0 || told[onGrowth] > len(snapshot(0, now).GPUs) || told[onLeak] == 0 {
		t.Errorf("told %v", told)
	}
	if !strings.Contains(log.String(), "a GPU fills without a line that leaks") {
		t.Errorf("log\n%s", log.String())
	}
	before := told[onGrowth]
	if judge(0, now.Add(2*time.Minute)); len(results) > 0 {
		t.Error("told of a GPU that does not fill")
	}
	judge(64<<20, now.Add(time.Hour)) // again, after it had stopped
	if x := <-results; !strings.Contains(x.Output, `"event":"growth"`) || before == 0 {
		t.Errorf("told %+v", x)
	}
}
