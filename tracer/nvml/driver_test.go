// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// slow is a library that answers only when released.
type slow struct {
	release chan struct{}
	calls   atomic.Int32
}

func (s *slow) gpus() ([]ledger.GPU, map[string]partition, error) {
	s.calls.Add(1)
	<-s.release
	return []ledger.GPU{{UUID: "GPU-0"}}, nil, nil
}
func (s *slow) usage() (usageResult, error) { panic("slice bounds out of range") }
func (s *slow) stop() error                 { return nil }

func TestHangingCallsReturnAndDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{release: make(chan struct{})}
		d := &Driver{library: s, calls: make(chan func()), closed: make(chan struct{})}
		go d.serve()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		for range 100 {
			if _, err := d.GPUs(ctx); !errors.Is(err, ErrBusy) || err.Error() != "NVML does not answer" {
				t.Fatalf("got %v", err)
			}
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		if n := s.calls.Load(); n != 1 {
			t.Errorf("the driver got %d calls", n)
		}
		close(s.release)
		synctest.Wait()
		if gpus, err := d.GPUs(t.Context()); err != nil || len(gpus) != 1 {
			t.Errorf("after the answer: %v, %v", gpus, err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := d.GPUs(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestPanicInALibraryCallIsAnError(t *testing.T) {
	d := &Driver{library: &slow{}, calls: make(chan func()), closed: make(chan struct{})}
	go d.serve()
	if _, err := d.Usage(t.Context()); err == nil {
		t.Error("no error")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenWithoutLibraryIsUnavailable(t *testing.T) {
	if _, err := Open(t.Context(), t.TempDir()+"/libnvidia-ml.so.1"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
