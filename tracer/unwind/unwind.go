// SPDX-License-Identifier: Apache-2.0

// Package unwind walks native and Python stacks in the kernel and names the Python frames.
//
// The OpenTelemetry eBPF profiler does the work, and only this package imports it. It uses the
// profiler's unwinding programs and its process manager, but not its tracer: so loading tables is a
// call that returns when they are in the kernel, and probes are enabled after it.
package unwind

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/metrics"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/processmanager"
	pmebpf "go.opentelemetry.io/ebpf-profiler/processmanager/ebpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// Unwinder loads unwind tables of processes and decodes the stacks that the kernel sends. Load and
// Decode may run at the same time, each on one goroutine.
type Unwinder struct {
	manager *processmanager.ProcessManager
	maps    map[string]*ebpf.Map
	tables  *tables
	layouts layouts
	codes   codes
	spec    *ebpf.CollectionSpec
	cancel  context.CancelFunc

	// CodeOf returns a process's mappings of code as the kernel lists them; false if they are
	// unknown. InKernel returns the numbers of layouts in the kernel half's processes, by pid. Both
	// may be nil.
	CodeOf   func(pid uint32) (Code, bool)
	InKernel func() map[uint32]uint32

	mu      sync.Mutex // serializes Load and Forget
	onFile  func(NewFile)
	loading uint32          // pid
	refused map[uint32]bool // processes whose files made the profiler panic
	pythons pythons
	epoch   int64 // rises when the profiler is to report all files again
	fileMu  sync.RWMutex
	files   map[libpf.FileID]string

	broken   atomic.Bool // the process manager no longer answers
	memories memories
	problems problems

	// Used by Decode only.
	record   support.Trace
	raw      libpf.EbpfTrace
	trace    *libpf.Trace // set by ReportTraceEvent
	mappings cache[libpf.FrameMapping, *File]
	lines    lineCache
}

var startMetrics = sync.OnceFunc(func() { metrics.Start(noop.Meter{}) })

// New loads the unwinder's maps and programs into the kernel. Load calls onFile for each new
// executable file. kernel is the running kernel's BTF. cache keeps tables for later sessions; it
// may be nil.
func New(kernel *btf.Spec, cache *unwindcache.Dir, onFile func(NewFile)) (*Unwinder, error) {
	startMetrics()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the CPUs: %w", err)
	}
	interpreters := interpreterconfig.NoInterpreters()
	interpreters.Python.Disabled = false
	spec, err := loadMaps(kernel, &interpreters, cpus)
	if err != nil {
		return nil, err
	}
	if err := setVariables(spec, kernel); err != nil {
		return nil, err
	}
	inner := spec.Maps["exe_id_to_8_stack_deltas"].InnerMap.Copy()
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the unwinder: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	u := &Unwinder{maps: coll.Maps, spec: spec, cancel: cancel, onFile: onFile, files: map[libpf.FileID]string{},
		refused: map[uint32]bool{}, layouts: newLayouts(coll.Maps)}
	handler, err := pmebpf.LoadMaps(ctx, interpreters, coll.Maps, inner)
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("bind the unwinder's maps: %w", err)
	}
	u.tables = newTables(handler, coll.Maps, inner, u, cache)
	u.manager, err = processmanager.New(ctx, processmanager.Config{
		InterpretersConfig:    interpreters,
		MonitorInterval:       time.Hour, // nobody reads its metrics
		ExecutableUnloadDelay: time.Minute,
		EbpfHandler:           u.tables,
		TraceReporter:         u,
		ExecutableReporter:    u,
		StackDeltaProvider:    fencedTables{keptTables{checkedTables{elfunwindinfo.NewStackDeltaProvider()}, &u.tables.kept}},
		FrameCacheSize:        65536,
	})
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("start the unwinder: %w", err)
	}
	return u, nil
}

// Close removes the maps and programs.
func (u *Unwinder) Close() {
	u.cancel()
	if u.tables != nil {
		u.tables.kept.writing.Wait()
	}
	for _, m := range u.maps {
		m.Close()
	}
}

// Problems returns at most 16 texts, each with a process whose stacks are truncated or missing, and
// the reason. The texts contain untrusted names.
func (u *Unwinder) Problems() []string {
	list := u.problems.texts()
	list = append(list, u.memories.stuck(maxProblems-len(list))...)
	if u.tables != nil {
		list = append(list, u.tables.shares.refused(maxProblems-len(list))...)
	}
	list = append(list, u.layouts.refused(maxProblems-len(list))...)
	slices.Sort(list)
	return list
}

// Discard the profiler's log, which is for its developers: this package counts and reports
// problems.
func init() { log.SetLogger(*slog.New(slog.DiscardHandler)) }
