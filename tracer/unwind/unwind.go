// SPDX-License-Identifier: Apache-2.0

// Package unwind walks native and Python stacks in the kernel and names the Python frames.
//
// The work is done by the OpenTelemetry eBPF profiler, of which only this package knows. It takes
// the profiler's unwinding programs and its process manager, but not its tracer: loading tables is then
// a call that returns when they are in place, so that probes are enabled only after it.
package unwind

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/metrics"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/processmanager"
	pmebpf "go.opentelemetry.io/ebpf-profiler/processmanager/ebpf"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/otel/metric/noop"
)

// Unwinder loads unwind tables of processes and turns what the kernel sends
// into frames. Load and Decode may be called at the same time, each from one
// goroutine.
type Unwinder struct {
	manager *processmanager.ProcessManager
	maps    map[string]*ebpf.Map
	tables  *tables
	layouts layouts
	codes   codes
	spec    *ebpf.CollectionSpec
	cancel  context.CancelFunc

	// CodeOf says what a process has mapped as code, as the kernel has it; false if that cannot be had. InKernel gives the numbers of layouts
	// that the kernel half has now, by pid. Both may be nil.
	CodeOf   func(pid uint32) (Code, bool)
	InKernel func() map[uint32]uint32

	mu      sync.Mutex // serialises Load and Forget
	onFile  func(NewFile)
	loading uint32               // pid
	refused map[uint32]bool      // processes over whose files the profiler has panicked
	known   map[host.FileID]bool // files with an interpreter that the profiler knows
	pythons []pythonFile         // new ones of the process being loaded
	fileMu  sync.RWMutex
	files   map[libpf.FileID]string

	guardMu  sync.Mutex // never for long
	broken   bool       // the process manager does not answer any more
	memories map[uint32]*memory
	problems []string

	// Decode's.
	record    support.Trace
	raw       libpf.EbpfTrace
	trace     *libpf.Trace // set by ReportTraceEvent
	mappings  map[libpf.FrameMapping]*File
	lines     map[codeKey]*codeLines
	linesSize int // bytes
}

var startMetrics = sync.OnceFunc(func() { metrics.Start(noop.Meter{}) })

// New loads the unwinder's maps and programs into the kernel. onFile is called
// from Load for each executable file that was not seen before; kernel is the
// running kernel's BTF.
func New(kernel *btf.Spec, onFile func(NewFile)) (*Unwinder, error) {
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
	u := &Unwinder{maps: coll.Maps, spec: spec, cancel: cancel, onFile: onFile, files: map[libpf.FileID]string{}, mappings: map[libpf.FrameMapping]*File{},
		refused: map[uint32]bool{}, known: map[host.FileID]bool{}, memories: map[uint32]*memory{}, layouts: newLayouts(coll.Maps)}
	handler, err := pmebpf.LoadMaps(ctx, interpreters, coll.Maps, inner)
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("bind the unwinder's maps: %w", err)
	}
	u.tables = newTables(handler, coll.Maps, inner, u)
	u.manager, err = processmanager.New(ctx, processmanager.Config{
		InterpretersConfig:    interpreters,
		MonitorInterval:       time.Hour, // its metrics go nowhere
		ExecutableUnloadDelay: time.Minute,
		EbpfHandler:           u.tables,
		TraceReporter:         u,
		ExecutableReporter:    u,
		StackDeltaProvider:    fencedTables{elfunwindinfo.NewStackDeltaProvider()},
		FrameCacheSize:        65536,
	})
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("start the unwinder: %w", err)
	}
	return u, nil
}

// Close unloads everything.
func (u *Unwinder) Close() {
	u.cancel()
	for _, m := range u.maps {
		m.Close()
	}
}

// ReportExecutable is the process manager's call for each new file; it
// happens inside Load.
func (u *Unwinder) ReportExecutable(meta *reporter.ExecutableMetadata) {
	file, path := meta.MappingFile.Value(), strings.Clone(meta.Mapping.Path)
	u.fileMu.Lock()
	u.files[file.FileID] = path
	u.fileMu.Unlock()
	u.codes.noteFile(file.FileID, path, file.GnuBuildID)
	u.notePython(file.FileID, *meta.Mapping)
	if u.onFile == nil || meta.Mapping.IsVDSO() {
		return
	}
	u.onFile(NewFile{
		ID:      file.FileID.StringNoQuotes(),
		Path:    path,
		BuildID: file.GnuBuildID,
		PID:     u.loading,
		Start:   meta.Mapping.Vaddr,
		End:     meta.Mapping.Vaddr + meta.Mapping.Length,
	})
}

// The profiler's log is for its own developers; what our users must know is
// counted.
func init() { log.SetLogger(*slog.New(slog.DiscardHandler)) }
