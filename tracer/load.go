// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/allocscan"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/heapscan"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/numa"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/torchalloc"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// load loads the kernel half, and starts the verification of the programs that probe functions.
func (t *Tracer) load(kernel *btf.Spec, types *btf.Cache) (err error) {
	if t.memlock, err = bpf.LiftMemlock(kernel); err != nil {
		return err
	}
	if t.unwind, err = unwind.New(kernel, t.config.Tables, t.stacks.AddFile); err != nil {
		return err
	}
	t.stacks.Locate = t.unwind.Locate
	if err := t.loadProbes(kernel, types); err != nil {
		return err
	}
	if err := t.loadWatch(kernel, types); err != nil {
		return err
	}
	if t.discovery.mapping, err = libraries.WatchMappings(); err != nil {
		return err
	}
	if t.events.ring, err = ringbuf.NewReader(t.coll.Maps["events"]); err != nil {
		return fmt.Errorf("open the events ring: %w", err)
	}
	stackEvents, err := ringbuf.NewReader(t.coll.Maps["stack_events"])
	if err != nil {
		return fmt.Errorf("open the stacks ring: %w", err)
	}
	t.reader = stacks.Reader{Ring: stackEvents, Decode: t.unwind.Decode, UserOf: t.table.UserOf, Store: t.stacks, Defects: &t.defects}
	t.wire()
	return nil
}

// directMap returns how the kernel half reads pages that NUMA balancing has marked. Balancing may
// be switched on later, so several nodes suffice. Without it, stacks are truncated at such pages
// and counted.
func (t *Tracer) directMap() bpf.DirectMap {
	host := os.DirFS("/")
	if numa.Nodes(host) == "" && !t.config.marked {
		return bpf.DirectMap{}
	}
	m, err := numa.Prepare(host, runtime.GOARCH)
	if err != nil {
		return bpf.DirectMap{} // vramprof check reports why
	}
	return m
}

// loadProbes creates the maps, and starts to load the programs that probe functions.
func (t *Tracer) loadProbes(kernel *btf.Spec, types *btf.Cache) error {
	spec, err := bpf.LoadProbes(kernel)
	if err != nil {
		return fmt.Errorf("read the probes' objects: %w", err)
	}
	if err := spec.Variables["trace_all"].Set(t.config.everyone()); err != nil {
		return fmt.Errorf("set the filter: %w", err)
	}
	if err := torchalloc.Limit(spec, t.config.Sample, t.config.SampleLimit); err != nil {
		return err
	}
	if err := torchalloc.WantDetails(spec, t.config.Details); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	bpf.FitCPUs(spec, kernel, cpus)
	t.resize(spec)
	if err := shares.Limit(spec); err != nil {
		return err
	}
	direct := t.directMap()
	if err := bpf.SetDirectMap(spec, direct); err != nil {
		return err
	}
	blocks := bpf.TakeBlockMaps(spec)
	replacements := t.unwind.Bind(spec)
	multi := probes.Prepare(spec)
	maps := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder}
	t.coll, err = ebpf.NewCollectionWithOptions(maps, bpf.Options(types, replacements))
	if err != nil {
		return fmt.Errorf("create the probes' maps: %w", err)
	}
	for id := range cudaapi.Table {
		if err := t.coll.Maps["functions"].Put(uint32(id), cudaapi.Table[id].KernelRow()); err != nil {
			return fmt.Errorf("write the probe table: %w", err)
		}
	}
	if err := t.openTypes(blocks); err != nil {
		return err
	}
	t.unwind.SetCodes(t.coll.Maps["codes"])
	t.prober = probes.Load(spec, t.coll.Maps, types, multi,
		func(programs map[string]*ebpf.Program) error { return t.unwind.LinkStop(programs[probes.StopProgram]) },
		func() error { return t.unwind.LoadSteps(kernel, t.coll.Maps, multi, types, direct) })
	t.discovery.prober, t.discovery.files = t.prober, t.newFiles()
	return nil
}

// openTypes makes what owns the kernel half's maps of processes and of PyTorch's allocators.
func (t *Tracer) openTypes(blocks bpf.BlockMaps) (err error) {
	t.table = processes.NewTable(processes.Options{
		PIDs: t.config.PIDs, Name: t.config.Name, Command: len(t.config.Command) > 0, Kernel: t.coll.Maps["processes"], Adopt: t.unwind.Adopt,
		Scan:      func(pid uint32) { t.jobs.add(job{jobScan, pid}) },
		Introduce: func(pid uint32) { t.jobs.add(job{jobIntroduce, pid}) },
	})
	t.names, t.reaper = processes.NewNames(t.table, t.sequencer, &t.defects), processes.NewReaper(t.table)
	t.usage = gpuusage.NewMonitor(gpuusage.Options{
		NVML: t.config.NVML, Sequencer: t.sequencer, Defects: &t.defects, Changed: t.table.Changed,
		LookAgain:  func(pid uint32) { t.jobs.add(job{jobIntroduce, pid}) },
		NodeMemory: procfs.NodeMemory,
		Before:     t.snapshots.markSegments,
	})
	if !t.config.NoTensors {
		t.snapshots.scanner = allocscan.New(allocscan.Options{Sequencer: t.sequencer, Defects: &t.defects, Traced: t.table.Traced, HasTorch: func(pid uint32) bool { return t.tensors.Report(pid) }, Tables: t.snapshots.tablesOf})
		if t.config.Details {
			t.snapshots.scanner.Details, t.snapshots.scanner.Version = t.setLayout, probes.TorchVersion
		}
	}
	if o := t.config.Walks; o != nil {
		t.snapshots.walker = heapscan.New(heapscan.Options{
			Every: o.Every, MaxMemory: o.MaxMemory, HideNames: o.HideNames, LastTime: o.LastTime, Progress: o.Progress, Note: t.config.Note,
			Sequencer: t.sequencer, Defects: &t.defects, Traced: t.table.Traced, UserOf: t.table.UserOf, Blocks: t.snapshots.blocksOf, Mark: t.snapshots.markSegments,
			Flush:    t.events.flush,
			HasTorch: func(pid uint32) bool { return t.tensors.Report(pid) },
		})
	}
	var walk func(pid uint32)
	if t.snapshots.walker != nil {
		walk = t.snapshots.walker.Walk
	}
	t.ooms = oom.NewQueue(oom.Options{
		Walk: walk, Tell: t.config.OOM, Capture: t.config.Capture != nil, Sequencer: t.sequencer, Defects: &t.defects, Stacks: t.stacks,
		HasTorch: func(pid uint32) bool { return t.tensors.Report(pid) }, Books: t.snapshots.running,
	})
	if t.eviction.sent, err = stacks.OpenSent(t.coll.Maps["stacks"]); err != nil {
		return err
	}
	if t.shares, err = shares.Open(t.coll.Maps["tables"], t.coll.Maps["shares"], &t.defects); err != nil {
		return err
	}
	t.tensors, err = torchalloc.New(torchalloc.Options{
		Maps: t.coll.Maps, Sequencer: t.sequencer, Processes: t.table, Begin: t.discovery.begin.Load, LeaveRoom: t.shares.LeaveRoom,
		Meter: &t.meter, Details: t.config.Details, BlockMaps: blocks, Used: func() uint64 { return t.shares.Used(bpf.TableBlocks) },
		UsesCUDA: func(pid uint32) (uses, sure bool) {
			return t.table.HasAllocated(pid) || t.usage.Lists(pid), t.usage.HasGPUs()
		},
	})
	if err != nil {
		return err
	}
	tx := t.sequencer.Begin()
	defer tx.Done()
	return t.tensors.SetSampling(tx, t.config.Sample, t.config.SampleLimit)
}

// setLayout tells the kernel half where a process has the fields of a Block.
func (t *Tracer) setLayout(pid uint32, f allocator.Fields) {
	if err := torchalloc.SetLayout(t.coll.Maps, pid, torchalloc.BlockLayout{
		Ptr: f.Ptr, Size: f.Size, Requested: f.Requested, Pool: f.Pool, Stream: f.Stream, Allocated: f.Allocated, Uses: f.Uses, Events: f.Events, Owner: f.Owner,
	}); err != nil {
		t.sequencer.Warn(pid, fmt.Sprintf("process %d: its tensors are recorded without requested sizes: %v", pid, err))
	}
}

// loadWatch loads and attaches the programs that watch processes, and creates the scanner.
func (t *Tracer) loadWatch(kernel *btf.Spec, types *btf.Cache) error {
	spec, err := bpf.LoadProcess(kernel)
	if err != nil {
		return fmt.Errorf("read the process watch's objects: %w", err)
	}
	if err := spec.Variables["trace_children"].Set(t.config.Name != nil); err != nil {
		return fmt.Errorf("set whether children are traced: %w", err)
	}
	if err := spec.Variables["inherit"].Set(t.config.everyone() && t.config.Name == nil); err != nil {
		return fmt.Errorf("set whether children have their parent's tables: %w", err)
	}
	if err := spec.Variables["thread_maker"].Set(cudaapi.MakesThread); err != nil {
		return fmt.Errorf("set the function that makes threads: %w", err)
	}
	if err := spec.Variables["layout_secret"].Set(rand.Uint64()); err != nil {
		return fmt.Errorf("set the secret of layouts: %w", err)
	}
	t.resize(spec)
	replacements := map[string]*ebpf.Map{}
	for _, shared := range []string{"events", "processes", "threads", "counters", "shares", "tables"} {
		replacements[shared] = t.coll.Maps[shared]
	}
	if t.watch.programs, err = ebpf.NewCollectionWithOptions(spec, bpf.Options(types, replacements)); err != nil {
		return fmt.Errorf("load the process watch: %w", err)
	}
	if err := t.watch.attach(); err != nil {
		return err
	}
	if t.discovery.scanner, err = libraries.NewScanner(t.watch.programs.Programs, t.discovery.stalled.scanAgain); err != nil {
		return err
	}
	t.unwind.CodeOf, t.unwind.InKernel = t.codeOf, func() map[uint32]uint32 { return layoutsIn(t.coll.Maps["processes"]) }
	return nil
}

// codeOf returns the executable mappings of a process for the unwinder, and false if they are
// unknown.
func (t *Tracer) codeOf(pid uint32) (unwind.Code, bool) {
	list, layout := t.discovery.scanner.Code(pid)
	if len(list) == 0 {
		return unwind.Code{}, false
	}
	code := unwind.Code{Layout: layout, Files: make(map[uint64]unwind.CodeFile, len(list))}
	for _, r := range list {
		code.Files[r.Start] = unwind.CodeFile{Device: r.Device, Inode: r.Inode, Address: r.Address, Size: r.Size, Changed: r.Changed}
	}
	return code, true
}

// kernelHalf is what is loaded into the kernel. Only New, Detach and Close change it.
type kernelHalf struct {
	coll    *ebpf.Collection // maps of the programs that probe functions
	prober  *probes.Prober   // these programs
	watch   processWatch
	memlock *unix.Rlimit // of this process as it was, if it was lifted
}

// processWatch owns the programs that report when processes fork, call execve and exit. It has no
// lock: only New, Detach and Close use it.
type processWatch struct {
	programs *ebpf.Collection // also those of the scanner
	links    []link.Link
}

func (w *processWatch) attach() error {
	for program, tracepoint := range map[string]string{
		"process_exit": "sched_process_exit", "process_exec": "sched_process_exec", "process_fork": "sched_process_fork",
	} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: w.programs.Programs[program]})
		if err != nil {
			return fmt.Errorf("watch %s: %w", tracepoint, err)
		}
		w.links = append(w.links, l)
	}
	return nil
}

func (w *processWatch) detach() {
	for _, l := range w.links {
		l.Close()
	}
	w.links = nil
}

func (w *processWatch) close() {
	w.detach()
	if w.programs != nil {
		w.programs.Close()
	}
}

// resize sets the sizes of maps from Config.entries.
func (t *Tracer) resize(spec *ebpf.CollectionSpec) {
	for name, m := range spec.Maps {
		if n, ok := t.config.entries[name]; ok {
			bpf.Resize(m, n)
		}
	}
}

// LoadPrograms loads all programs into the kernel as a session does, and unloads them. It takes a
// few seconds of processor time, because the kernel verifies them. The error names the program that
// the kernel rejects. It needs the capabilities of tracing.
func LoadPrograms() error {
	t, err := New(Config{})
	if err != nil {
		return err
	}
	defer t.Close()
	return t.prober.Wait()
}
