// SPDX-License-Identifier: Apache-2.0

// Package unwind walks native and Python stacks in the kernel and names the Python frames.
//
// The work is done by the OpenTelemetry eBPF profiler, of which only this package knows. It takes
// the profiler's unwinding programs and its process manager, but not its tracer: loading tables is then
// a call that returns when they are in place, so that probes are enabled only after it.
package unwind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/metrics"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/pacmask"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/processmanager"
	pmebpf "go.opentelemetry.io/ebpf-profiler/processmanager/ebpf"
	"go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/times"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

// Slots of the chain's program array that are in use.
const (
	nativeProgram = "kprobe_unwind_native"
	pythonProgram = "kprobe_unwind_python"
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

// loadMaps describes the maps on a machine with so many possible CPUs.
func loadMaps(kernel *btf.Spec, interpreters *interpreterconfig.Config, cpus int) (*ebpf.CollectionSpec, error) {
	spec, err := support.LoadCollectionSpec()
	if err != nil {
		return nil, fmt.Errorf("read the unwinder's objects: %w", err)
	}
	reduce(spec, interpreters)
	bpf.FitCPUs(spec, kernel, cpus)
	return spec, nil
}

// Memory computes what the maps take in the kernel on a machine with so many possible CPUs, by name. Tables of files are
// in the growth of one of those that hold them.
func Memory(kernel *btf.Spec, cpus int) (map[string]bpf.Memory, error) {
	interpreters := interpreterconfig.NoInterpreters()
	interpreters.Python.Disabled = false
	spec, err := loadMaps(kernel, &interpreters, cpus)
	if err != nil {
		return nil, err
	}
	list := map[string]bpf.Memory{}
	for name, m := range spec.Maps {
		x := bpf.MemoryOf(m, cpus)
		if name == "exe_id_to_8_stack_deltas" { // the limit is one for all sizes
			x.Growth += maxRows * uint64(m.InnerMap.ValueSize)
		}
		list[name] = x
	}
	return list, nil
}

// reduce leaves only the maps that native and Python stacks need.
func reduce(spec *ebpf.CollectionSpec, interpreters *interpreterconfig.Config) {
	clear(spec.Programs)
	for name, m := range spec.Maps {
		switch {
		case !interpreters.IsMapEnabled(name):
			delete(spec.Maps, name)
		case strings.HasPrefix(name, "exe_id_to_"):
			m.MaxEntries = maxFiles
		case name == "pid_page_to_mapping_info":
			m.MaxEntries = maxPrefixes
		case name == "py_procs":
			m.MaxEntries = maxPythons
		case name == "stack_delta_page_to_info":
			m.MaxEntries = 1 << 17
		case m.Type == ebpf.RingBuf:
			m.MaxEntries = 4096 // trace_events: our last step has its own ring
		case name == "pid_events" || name == "reported_pids" || name == "traces_ctx_v1" || name == "sched_times":
			m.MaxEntries = 1 // of programs that are not loaded
		}
	}
}

// setVariables tells the programs where the running kernel keeps a thread's
// TLS base (task_struct.thread), and how pointers are signed.
func setVariables(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	offset, err := tlsBaseOffset(kernel)
	if err != nil {
		return fmt.Errorf("find the TLS base in task_struct: %w", err)
	}
	for name, value := range map[string]any{"tpbase_offset": offset, "inverse_pac_mask": ^pacmask.GetPACMask()} {
		v := spec.Variables[name]
		if v == nil {
			return fmt.Errorf("the unwinder has no variable %s", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// Bind lets the maps and variables of spec that have the unwinder's names be
// the unwinder's own. It returns the replacements for ebpf.CollectionOptions.
func (u *Unwinder) Bind(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if own, ok := u.maps[name]; ok && !strings.HasPrefix(name, ".") {
			spec.Maps[name] = u.spec.Maps[name].Copy()
			replacements[name] = own
		}
	}
	for name, v := range spec.Variables {
		if own, ok := u.spec.Variables[name]; ok {
			v.Value = own.Value
		}
	}
	return replacements
}

// Maps are the unwinder's, by name.
func (u *Unwinder) Maps() map[string]*ebpf.Map { return u.maps }

// LoadSteps puts those steps of a walk into the chain that are not the probes' own. They note what they read in
// the map recording of the probes' maps. With multi all are of the attach type of uprobe_multi links, as those of probes must be.
func (u *Unwinder) LoadSteps(kernel *btf.Spec, probes map[string]*ebpf.Map, multi bool, types *btf.Cache) error {
	spec, err := bpf.LoadWalk(kernel)
	if err != nil {
		return fmt.Errorf("read the unwinder's steps: %w", err)
	}
	for name := range spec.Programs {
		if name != nativeProgram && name != pythonProgram {
			delete(spec.Programs, name)
		}
	}
	if multi {
		for _, program := range spec.Programs {
			program.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	replacements := u.Bind(spec)
	// Each takes the verifier some 80,000 steps of its million.
	if err := spec.Variables["python_frames_per_program"].Set(uint32(6)); err != nil {
		return fmt.Errorf("set python_frames_per_program: %w", err)
	}
	for _, shared := range []string{"recording", "codes", "found_code"} {
		if spec.Maps[shared] != nil {
			spec.Maps[shared].MaxEntries = probes[shared].MaxEntries()
			replacements[shared] = probes[shared]
		}
	}
	steps, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements, Cache: types})
	if err != nil {
		return fmt.Errorf("load the unwinder's steps: %w", err)
	}
	defer steps.Close()
	if err := u.link(support.ProgUnwindNative, steps.Programs[nativeProgram]); err != nil {
		return err
	}
	return u.link(support.ProgUnwindPython, steps.Programs[pythonProgram])
}

// LinkStop puts the last step of a walk into the chain, a program of the probes.
func (u *Unwinder) LinkStop(stop *ebpf.Program) error { return u.link(support.ProgUnwindStop, stop) }

func (u *Unwinder) link(slot uint32, program *ebpf.Program) error {
	if err := u.maps["perf_progs"].Put(slot, uint32(program.FD())); err != nil {
		return fmt.Errorf("link step %d of the unwinder: %w", slot, err)
	}
	return nil
}

// CodeFile is a file that is mapped as code, as the kernel knows it, below overlays.
type CodeFile struct {
	Device  uint32 // the kernel's dev_t
	Inode   uint64
	Address uint64 // of the inode in the kernel's memory
	Size    uint64
	Changed uint64 // ns, of its content or its owner
}

// Code is what a process has mapped as code.
type Code struct {
	Files  map[uint64]CodeFile // by where the mapping begins
	Layout uint64              // by which the kernel's scan tells that processes have the same; 0: unknown
}

// Load brings the kernel's tables for one process up to date and returns when
// they are in place, with the number of the process's layout: what the kernel half has to have in its struct process; 0 where its
// stacks cannot be walked. It is cheap when no executable mapping changed. Processes
// that are gone are not an error, nor are files and memory that cannot be read, nor is it that there is no room: the
// stacks are cut or missing then, and Problems says why. layout is what a scan has just said of the process, 0 if unknown.
func (u *Unwinder) Load(pid uint32, layout uint64) (number uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.isBroken() || u.refused[pid] {
		return 0
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(pid)), memory: u.memoryOf(pid), u: u}
	if u.CodeOf != nil {
		if code, ok := u.CodeOf(pid); ok {
			p.code, layout = code, code.Layout
		}
	}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	u.judgePythons(p)
	_ = p.Close()
	u.tables.wait()
	over := u.layouts.draft.over
	u.codes.note(u.layouts.draft, p.code.Files)
	at := u.layouts.commit(pid, userOf(pid), layout)
	if over > 0 {
		u.problem(fmt.Sprintf("stacks of process %d are cut: its mappings need more than the %d entries that one process may have", pid, maxPrefixesOfProcess))
	}
	if at == nil {
		return 0
	}
	if at.number == 0 { // the layouts of before, which nobody has any more, may take the room
		u.layouts.sweep(u.inKernel())
		u.layouts.settle()
	}
	return at.number
}

func (u *Unwinder) inKernel() map[uint32]uint32 {
	if u.InKernel == nil {
		return nil
	}
	return u.InKernel()
}

// Share gives a process the layout that a scan has found it to have, if another process has the same one and its tables are loaded.
func (u *Unwinder) Share(pid uint32, layout uint64) (number uint32, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.layouts.byHash[layout]
	if at == nil || at.number == 0 || layout == 0 {
		return 0, false
	}
	u.layouts.join(pid, at, false)
	return at.number, true
}

// Adopt notes that the kernel half has given a process the layout of that number, its parent's; false if that is not loaded any more.
func (u *Unwinder) Adopt(pid, number uint32) bool { return u.layouts.adopt(pid, number) }

// learn makes the profiler know a process as one with a layout that is loaded: nothing of it is read for that. u.mu is held.
func (u *Unwinder) learn(pid uint32, at *layout) {
	if u.isBroken() || u.refused[pid] {
		return
	}
	defer u.survive(pid)
	u.loading = pid
	p := guarded{Process: process.New(libpf.PID(pid), libpf.PID(pid)), memory: u.memoryOf(pid), u: u, like: at}
	u.layouts.begin(pid)
	u.manager.SynchronizeProcess(p)
	u.layouts.draft = nil
	_ = p.Close()
	u.layouts.join(pid, at, true)
}

// Forget releases the tables of processes that have ended. Frames of their
// stacks cannot be asked for afterwards. It returns the pids of processes for whose tables there is room only now.
func (u *Unwinder) Forget() (settled []uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	gone := func(pid uint32) bool { return unix.Kill(int(pid), 0) == unix.ESRCH }
	u.forgetGuards()
	if u.isBroken() {
		return nil
	}
	inKernel := u.inKernel()
	for pid, number := range inKernel {
		u.layouts.adopt(pid, number)
	}
	for pid, at := range u.layouts.heirs(gone) {
		u.learn(pid, at)
	}
	u.layouts.forget(gone)
	u.layouts.sweep(inKernel)
	u.manager.CleanupPIDs()
	u.manager.ProcessedUntil(times.GetKTime())
	u.layouts.settle()
	settled, u.layouts.settled = u.layouts.settled, nil
	return settled
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

// ReportTraceEvent is the process manager's answer to HandleTrace.
func (u *Unwinder) ReportTraceEvent(trace *libpf.Trace, _ *samples.TraceEventMeta) error {
	u.trace = trace
	return nil
}

// Stack is what the kernel sends once per distinct stack.
type Stack struct {
	ID       uint64
	PID, TID uint32
	Frames   []Frame // leaf first
}

// ErrBusy says that a stack cannot be decoded now, since tables are being loaded.
var ErrBusy = errors.New("unwind tables are being loaded")

// Decode turns a record of the stacks ring into frames. Python frames are
// named now, from the process's memory: a process that is gone by then leaves
// frames with an Error. With ErrBusy, it is to be called again.
func (u *Unwinder) Decode(raw []byte) (Stack, error) {
	// The kernel sends what is filled of a Trace: up to its last frame.
	t := &u.record
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t)), raw)
	head := int(unsafe.Offsetof(t.Frame_data))
	if n < head {
		return Stack{}, fmt.Errorf("stack of %d bytes: too short", len(raw))
	}
	words := int(t.Frame_data_len)
	if words > len(u.raw.FrameDataBuf) || n < head+8*words {
		return Stack{}, fmt.Errorf("stack of %d bytes with %d words: too short", len(raw), words)
	}
	u.raw.PID, u.raw.TID = libpf.PID(t.Pid), libpf.PID(t.Tid)
	u.raw.NumFrames = t.Num_frames
	u.raw.FrameData = u.raw.FrameDataBuf[:words]
	copy(u.raw.FrameData, t.Frame_data[:])
	if !wellFormed(u.raw.FrameData) {
		return Stack{}, fmt.Errorf("stack of process %d: frame lengths do not add up", t.Pid)
	}
	if !u.know(t.Pid, uint32(t.Ktime)) {
		return Stack{}, ErrBusy
	}
	s := Stack{ID: t.Value, PID: t.Pid, TID: t.Tid}
	if err := u.handle(); err != nil {
		s.Frames = []Frame{{Error: err.Error()}}
		return s, nil
	}
	if u.trace == nil {
		return s, nil
	}
	s.Frames = make([]Frame, 0, len(u.trace.Frames))
	for _, f := range u.trace.Frames {
		s.Frames = append(s.Frames, u.frame(f.Value()))
	}
	u.findFiles(&s)
	u.correctLines(&s)
	s.Frames = slices.DeleteFunc(s.Frames, isShim)
	return s, nil
}

// know makes the profiler know a process that has the layout of another one, by the number that its stack came with. It does not
// wait: false means that it has to be tried again.
func (u *Unwinder) know(pid, number uint32) bool {
	at, known := u.layouts.layoutOf(pid)
	if known {
		return true
	}
	if at == nil {
		u.layouts.adopt(pid, number)
		at, _ = u.layouts.layoutOf(pid)
	}
	if at == nil {
		return true // its frames have no files
	}
	if !u.mu.TryLock() {
		return false
	}
	defer u.mu.Unlock()
	u.learn(pid, at)
	return true
}

// handle lets the process manager make frames of u.raw.
func (u *Unwinder) handle() (err error) {
	if u.trace = nil; u.isBroken() {
		return errBroken
	}
	defer func() {
		if r := recover(); r != nil {
			u.problem(fmt.Sprintf("a stack of process %d could not be read: panic: %v", u.raw.PID, r))
			err = errors.New("the stack could not be read")
		}
	}()
	u.manager.HandleTrace(&u.raw, nil)
	return nil
}

// wellFormed checks the walk over variable-length frames that the process
// manager makes without looking at bounds.
func wellFormed(words []uint64) bool {
	for frames := libpf.EbpfFrame(words); len(frames) > 0; {
		n := int(frames.Length())
		if n <= 0 || n > len(frames) {
			return false
		}
		frames = frames[n:]
	}
	return true
}

// The profiler's log is for its own developers; what our users must know is
// counted.
func init() { log.SetLogger(*slog.New(slog.DiscardHandler)) }
