// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// allocated is an allocation of a thread without a device.
func allocated(thread uint32, at time.Duration) *ledger.Event {
	return &ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Device: ledger.UnknownDevice, TID: thread, Time: uint64(at)}
}

func TestBriefProbesAreAskedForLessAndLessOften(t *testing.T) {
	var l Learner
	want := func(thread uint32, at time.Duration, asked bool) {
		t.Helper()
		if got := l.Want(allocated(thread, at), false); got != asked {
			t.Errorf("thread %d at %v: asked %v, want %v", thread, at, got, asked)
		}
	}
	want(1, time.Minute, true)
	want(1, time.Minute, false) // already requested
	l.setActive(false)
	want(1, time.Minute+LearnFor+learnPause-1, false)
	want(2, time.Minute+LearnFor+newLearnPause, true) // another thread waits less
	l.setActive(false)
	again := time.Minute + LearnFor + newLearnPause + LearnFor
	want(1, again+2*learnPause-1, false)
	want(1, again+2*learnPause, true)
	l.setActive(false)
	told := again + 2*learnPause + LearnFor
	l.Want(&ledger.Event{Op: ledger.Learn, TID: 1, Time: uint64(told)}, false) // resets the pause
	want(2, told+LearnFor+learnPause, true)
}

func TestAllocationsThatNeedNoDeviceAskForNothing(t *testing.T) {
	var l Learner
	known, physical, pinned, free := allocated(1, 0), allocated(1, 0), allocated(1, 0), allocated(1, 0)
	known.Device, physical.Space, pinned.Kind, free.Op = 0, ledger.Physical, ledger.Pinned, ledger.Free
	for i, e := range []*ledger.Event{known, physical, pinned, free} {
		if l.Want(e, false) {
			t.Errorf("event %d asks for brief probes", i)
		}
	}
	if l.Want(allocated(1, 0), true) {
		t.Error("a process with a single GPU asks for brief probes")
	}
}

func TestBriefProbesAreSetInProbedFilesUntilTheEnd(t *testing.T) {
	var x told
	s := x.files(false)
	driver, torch := mapped(t, 1, cudaapi.Driver, "libcuda.so.1", "x"), mapped(t, 1, cudaapi.Torch, "libc10.so", "x")
	s.Probe([]libraries.Mapped{driver, torch})
	x.done = nil
	other := mapped(t, 1, cudaapi.Runtime, "libcudart.so.12", "x") // not probed
	scan := func() ([]libraries.Mapped, error) { return []libraries.Mapped{driver, torch, other, driver}, nil }
	var l Learner
	for range 2 { // the second call does nothing
		if err := l.Begin(false, s, scan, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"brief 1 in 0"}; !slices.Equal(x.done, want) || len(l.sets) != 1 {
		t.Errorf("%q, want %q", x.done, want)
	}
	if l.End(); len(l.sets) != 0 || l.active {
		t.Error("brief probes are attached after End")
	}
	if err := l.Begin(true, s, scan, func() {}); err != nil || len(l.sets) != 0 {
		t.Errorf("with a single GPU %d files have brief probes, %v", len(l.sets), err)
	}
}

// TestBriefProbesStayAfterTheyWereAttached: their time begins when they are attached, however long
// that takes.
func TestBriefProbesStayAfterTheyWereAttached(t *testing.T) {
	var l Learner
	ended := make(chan struct{})
	attach := func() ([]libraries.Mapped, error) {
		select {
		case <-ended:
			t.Error("the probes are taken back while they are attached")
		case <-time.After(LearnFor + LearnFor/2):
		}
		return nil, nil
	}
	if err := l.Begin(false, nil, attach, func() { close(ended) }); err != nil {
		t.Fatal(err)
	}
	<-ended
}
