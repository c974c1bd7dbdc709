// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
)

// TestReadingShowsProgressOnlyWhenItTakesLong, and clears the line at the end.
func TestReadingShowsProgressOnlyWhenItTakesLong(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	progress, end := readingTo(&out, "a\x1b[31m.vram", func() time.Time { return now })
	step := func(after time.Duration, done int64, want string) {
		t.Helper()
		out.Reset()
		now = now.Add(after)
		if progress(done, 200); out.String() != want {
			t.Errorf("%d of 200: wrote %q, want %q", done, out.String(), want)
		}
	}
	step(0, 1, "")
	step(900*time.Millisecond, 50, "")
	step(0, 200, "")
	step(100*time.Millisecond, 60, terminal.Wipe+"reading a[31m.vram: 30 %")
	step(50*time.Millisecond, 70, "")
	step(50*time.Millisecond, 80, terminal.Wipe+"reading a[31m.vram: 40 %")
	step(0, 200, terminal.Wipe)
	step(0, 200, "")
	step(200*time.Millisecond, 10, terminal.Wipe+"reading a[31m.vram: 5 %")
	out.Reset()
	if end(); out.String() != terminal.Wipe {
		t.Errorf("at the end it wrote %q", out.String())
	}
	if progress, _ := showReading(&out, "x"); progress != nil {
		t.Error("it is shown where there is no terminal")
	}
}
