// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// server is a session without an end, and who asks for it.
type server struct {
	session  *session.Session
	memory   *ceiling.Watch // of the session
	ooms     *oom.Recorder  // nil: none
	host     string
	pages    atomic.Pointer[web.Server]
	stacks   callstack.Stacks // with --mine
	log      *slog.Logger
	verdicts *watch.Watcher
	archive  *archive.Writer // nil: none
	alerts   *notify.Runner  // nil: none
	keep     atomic.Int64    // ns: --keep
	relief   relief
	ready    atomic.Bool  // clients are answered
	tracing  atomic.Bool  // there are books
	began    atomic.Int64 // wall clock, ns
	kernel   kernelMemory
	jobAge   func() time.Duration // Tracer.JobAge, or an imitation of one in tests
}

func (s *server) tracer() *tracer.Tracer { return s.session.Tracer() }

// Stack returns the frames of a stack, leaf first.
func (s *server) Stack(id uint64) []callstack.Frame {
	if !s.tracing.Load() {
		return nil
	}
	return s.stacks.Stack(id)
}

// tensorBlocks returns the live tensors of a process, and whether it is traced.
func (s *server) tensorBlocks(pid uint32) ([]ledger.TensorBlock, bool) {
	if !s.tracing.Load() {
		return nil, false
	}
	return s.tracer().TensorBlocks(pid)
}

// Glance returns the books, which are empty before tracing has begun.
func (s *server) Glance() *ledger.Snapshot {
	if !s.tracing.Load() {
		return s.nothing()
	}
	return s.session.Glance()
}

// Snapshot is Glance with the stuck cache and the peaks.
func (s *server) Snapshot() *ledger.Snapshot {
	if !s.tracing.Load() {
		return s.nothing()
	}
	return s.session.Snapshot()
}

func (*server) nothing() *ledger.Snapshot {
	host, _ := os.Hostname()
	now := clock.Now()
	return &ledger.Snapshot{Host: host, Begin: now, End: now, Wall: time.Now()}
}

// relief is how often detail was dropped because memory was scarce: see reliefs.
type relief struct {
	steps  atomic.Int64
	forgot time.Time // when ended processes were forgotten early
}

// kernelMemory is the memory of the tracer's BPF maps, as the kernel counts it.
type kernelMemory struct {
	mu    sync.Mutex // guards what follows
	read  time.Time
	total uint64
}

const kernelMemoryAge = time.Minute // there are some hundred maps

func (k *kernelMemory) bytes(t *tracer.Tracer) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); k.read.IsZero() || now.Sub(k.read) >= kernelMemoryAge {
		maps, tables := session.KernelMemory(t)
		k.read, k.total = now, maps+tables
	}
	return k.total
}
