// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// stalledAttaches imitates a Prober whose file does not answer until release is closed.
type stalledAttaches struct {
	attaches
	reads, probes bool // what hangs: reads of the code, or the kernel as it sets probes
	release       chan bool
	set           *Set
}

func (a *stalledAttaches) functions(*os.File, cudaapi.Layer) ([]probepoint.Function, error) {
	if a.reads {
		<-a.release
	}
	return nil, nil
}

func (a *stalledAttaches) Attach(*os.File, libraries.Mapped, uint32) (*Set, error) {
	if a.probes {
		<-a.release
	}
	return a.set, nil
}

// closesOnce is a link that closes a channel with itself.
type closesOnce struct {
	link.Link
	closed chan bool
}

func (l closesOnce) Close() error { close(l.closed); return nil }

// A file on a file system of its process (FUSE) held up the goroutine that probes all files.
func TestAFileWhoseReadsAreStalledHoldsUpNoOther(t *testing.T) {
	for name, prober := range map[string]*stalledAttaches{"reads of its code": {reads: true}, "its probes": {probes: true}} {
		t.Run(name, func(t *testing.T) {
			process := exec.Command("sleep", "1000") // which is left alone for a while afterwards
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { process.Process.Kill(); process.Wait() })
			pid := uint32(process.Process.Pid)
			closed := make(chan bool)
			prober.release, prober.set = make(chan bool), &Set{links: []link.Link{closesOnce{closed: closed}}}
			var again []uint32
			s := newFiles(prober, Options{
				Traced: func(uint32) bool { return true }, Owner: func(uint32) uint32 { return 1 },
				Warn: func(_ uint32, text string) { t.Error(text) }, Probed: func(libraries.Mapped, int) { t.Error("it is probed") },
				Again: func(pid uint32) { again = append(again, pid) },
			}, maxFiles)
			s.patience = time.Millisecond
			l := mapped(t, pid, cudaapi.Driver, "libcuda.so.1", "x")
			s.Probe([]libraries.Mapped{l}) // without a timeout it never returns
			if !slices.Equal(again, []uint32{pid}) || s.known[l.File] != nil || s.places.Held(pid) != 0 || s.tried[pid] != 0 {
				t.Errorf("processes %d are scanned again; it is known: %v, %d places are taken, %d were tried", again, s.known[l.File] != nil, s.places.Held(pid), s.tried[pid])
			}
			close(prober.release)
			if prober.probes {
				<-closed // what comes too late must not stay
			}
		})
	}
}
