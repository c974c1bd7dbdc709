// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
)

func TestWalksAtTheEndAreShownAtOnce(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	progress := walksTo(&out, func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		done  int64
		want  string
	}{
		{0, 0, terminal.Wipe + "reading who keeps the tensors: 0 of 802 processes (Ctrl-C skips)"},
		{time.Millisecond, 1, ""},
		{time.Second, 400, terminal.Wipe + "reading who keeps the tensors: 400 of 802 processes (Ctrl-C skips)"},
		{0, 802, terminal.Wipe},
	} {
		out.Reset()
		now = now.Add(step.after)
		if progress(step.done, 802); out.String() != step.want {
			t.Errorf("%d of 802: wrote %q, want %q", step.done, out.String(), step.want)
		}
	}
}
