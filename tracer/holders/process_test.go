// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

func TestProcessThatEnds(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := peek.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Symbols(peek.RuntimeSymbol); err != peek.ErrNoPython {
		t.Errorf("sleep is a Python: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	var b [8]byte
	if _, err := p.ReadAt(b[:], p.Regions()[0].Start); err == nil {
		t.Error("a process that has ended was read")
	}
	if _, err := Walk(context.Background(), p, Options{}); err == nil || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("walk of a process that has ended: %v", err)
	}
	if _, err := peek.Open(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended was opened")
	}
}

func TestWalkEndsInTime(t *testing.T) {
	m := largeJob(50000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Walk(ctx, m, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a walk that was canceled: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if _, err := Walk(ctx, m, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a walk without time: %v", err)
	}
	// A search that runs out of time keeps what it has found.
	c := peek.NewCopy(m, DefaultMemory)
	defer c.Close()
	busy := &deadline.LimitError{Limits: Limits(), Used: deadline.Use{Processor: time.Second, Total: 2 * time.Minute}}
	ctx, end := context.WithCancelCause(context.Background())
	py, err := newPython(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	s := newSearch(py, DefaultObjects)
	newRootFinder(s, privacy{}).run(nil)
	end(busy)
	s.expandAll()
	if s.stopped != "stopped: the machine is too busy: in 2m0s, the walk had a processor for 1s" || len(s.nodes) < 10 || len(s.nodes) > 20000 {
		t.Errorf("%d objects were reached: %q", len(s.nodes), s.stopped)
	}
}

func TestAWalkNamesTheMappedFileThatCannotBeRead(t *testing.T) {
	job := syntheticJob()
	delete(job.Pages, job.Named[peek.VersionSymbol]>>peek.PageShift)
	_, err := Walk(context.Background(), job, Options{})
	if !errors.Is(err, ErrPython) || strings.Contains(err.Error(), "version 0") || !strings.Contains(err.Error(), "read 0x") {
		t.Errorf("a Python whose version cannot be read: %v", err)
	}
}
