// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// TestWhatKeepsPyTorchsCacheGoesBackWhenItIsFreed: a line keeps 2 MiB of each segment. The report
// names it, and when the job frees what it names, torch.cuda.empty_cache() gives back as much as it
// shows.
func TestWhatKeepsPyTorchsCacheGoesBackWhenItIsFreed(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	env := root.Env(t, 1, 32<<30)
	j := root.Start(t, env, "fragments.py", "--begin")
	begin := j.Next("begin")
	file := filepath.Join(t.TempDir(), "fragments.vram")
	session := start(t, env, "record", "--holders=end", "-p", fmt.Sprint(begin.PID), "-o", file).ready()
	j.Go()
	fragmented := j.Next("fragmented").Devices[0]
	session.stop()
	report := func(more ...string) []byte {
		out, err := exec.Command(binary(t), append([]string{"report", file, "--view", "cache"}, more...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Logf("%s", report())
	var view reportjson.ViewReport
	if err := json.NewDecoder(bytes.NewReader(report("--json"))).Decode(&view); err != nil || len(view.Summary.Stuck) != 1 {
		t.Fatalf("%v: %+v", err, view.Summary)
	}
	c := view.Summary.Stuck[0]
	if c.StuckBytes != fragmented.Stuck || c.IdleBytes != fragmented.Idle || c.SegmentCount != fragmented.Held {
		t.Errorf("%d bytes are stuck in %d segments, %d idle; the job says %+v", c.StuckBytes, c.SegmentCount, c.IdleBytes, fragmented)
	}
	first := c.Rows[0]
	if site := realtorch.Site(t, "fragments.py", "metrics"); len(first.Lines) != 1 || fmt.Sprintf("%s:%d", filepath.Base(first.Lines[0].File), first.Lines[0].Line) != site || first.StuckBytes < c.StuckBytes/2 {
		t.Errorf("first %+v, want most of %d bytes at %s", first, c.StuckBytes, site)
	}
	if h := first.Lines[0].Holders; len(h) != 1 || !strings.Contains(h[0].Holder, "metrics\".history[*]") || h[0].Bytes != first.Lines[0].TensorBytes {
		t.Errorf("the tensors are held by %+v", h)
	}
	j.Go()
	j.Next("forgotten")
	j.Go()
	emptied := j.Next("emptied").Devices[0]
	if back := fragmented.Reserved - emptied.Reserved; back != first.SegmentBytes+c.IdleBytes {
		t.Errorf("empty_cache() gave back %d bytes, the report has %d in segments of the line and %d idle", back, first.SegmentBytes, c.IdleBytes)
	}
	if out, err := j.Finish(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
