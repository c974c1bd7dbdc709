// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/allocator"
)

// Summary writes what the snapshot has, and whether it is exact, as a few lines for the user.
func (s *Snapshot) Summary(w io.Writer) error {
	var active, segments sum
	for i := range s.state.Blocks {
		if b := &s.state.Blocks[i]; b.State == allocator.Active {
			active.add(b.Size)
		}
	}
	for i := range s.state.Segments {
		segments.add(s.state.Segments[i].Size)
	}
	what := fmt.Sprintf("%s in %s, %s allocated, %s cached", format.Count(active.blocks, "block"), format.Count(segments.blocks, "segment"),
		format.Bytes(active.bytes), format.Bytes(segments.bytes-min(segments.bytes, active.bytes)))
	if s.state.Backend != allocator.Native {
		what = fmt.Sprintf("%s of the %s allocator, %s allocated", format.Count(active.blocks, "block"), s.state.Backend, format.Bytes(active.bytes))
	}
	_, err := fmt.Fprintf(w, "%s (%d): %s; read in %v\n", untrusted.Clean(s.state.Comm), s.state.PID, what, s.took.Round(time.Millisecond/10))
	known := func(what string, of sum) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s: known for %s of %s, %s of the bytes\n",
				what, humanize.Comma(int64(of.blocks)), format.Count(active.blocks, "block"), format.Share(of.bytes, active.bytes))
		}
	}
	if s.state.Made != nil {
		known("stack traces", s.made)
	}
	if s.state.Keepers != nil {
		known("holders", s.held)
	}
	if err == nil && s.state.Exact() {
		proof := "exact: the allocator was at rest, and sums, chains and counters agree"
		if s.state.Backend != allocator.Native {
			proof = "exact: two readings in a row agree"
		}
		_, err = fmt.Fprintln(w, proof)
	}
	for _, text := range s.state.Warnings {
		if err == nil {
			_, err = fmt.Fprintln(w, "!", untrusted.Clean(text))
		}
	}
	return err
}

// inMotion describes how far the figures of devices in motion may be off.
func (s *Snapshot) inMotion() string {
	var blocks, bytes uint64
	for i := range s.state.Devices {
		if d := &s.state.Devices[i]; !d.Exact {
			blocks, bytes = blocks+d.OffBlocks, bytes+d.OffBytes
		}
	}
	return fmt.Sprintf("in motion: the process allocated during all readings of %v; at most %s and %s off", motion, format.Count(blocks, "block"), format.Bytes(bytes))
}
