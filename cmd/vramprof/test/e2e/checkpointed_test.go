// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestAProcessThatNVMLNoLongerListsIsCheckpointedOrUnknown has NVML stop to list a running process
// that holds memory, as it does after cuda-checkpoint.
func TestAProcessThatNVMLNoLongerListsIsCheckpointedOrUnknown(t *testing.T) {
	dir := setup(t)
	env, set := faulty(t, dir)
	p := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "ready\nwait\nmalloc a 1073741824\nprint done\nwait\n"))
	p.expectReady()
	s := startBoth(t, env, "-p", fmt.Sprint(p.pid())).ready()
	p.next()
	p.expect("done")
	time.Sleep(1500 * time.Millisecond) // NVML lists it
	set("checkpointed")
	time.Sleep(1500 * time.Millisecond)
	s.stop()
	s.said("at least 1.00 GiB are checkpointed, or where they are is unknown; they are in no sum")
	if text := s.stdout.String(); strings.Contains(text, "-1.00 GiB") || !strings.Contains(text, "checkpointed or unknown") {
		t.Errorf("the summary is\n%s", text)
	}
	out, err := exec.Command(binary(t), "leaks", "--json", s.capture()).Output()
	var report struct {
		Parts []struct {
			Unlisted    uint64 `json:"unlisted_bytes"`
			Usage       uint64 `json:"usage_bytes"`
			Unexplained int64  `json:"unexplained_bytes"`
		}
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Parts) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if x := report.Parts[0]; x.Unlisted != 1<<30 || x.Usage != 0 || x.Unexplained != 0 {
		t.Errorf("parts %+v", x)
	}
	if err != nil {
		t.Error(err)
	}
}
