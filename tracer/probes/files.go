// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// Options connect Files to the tracer. Files calls the functions in the goroutine that calls its
// methods, and holds no lock meanwhile.
type Options struct {
	NoTensors bool                                    // do not probe PyTorch's libraries
	Requests  bool                                    // probe ioctl in processes that use CUDA, too
	Prepare   func() error                            // is called before PyTorch's libraries are probed; may be nil
	Traced    func(pid uint32) bool                   // reports whether a process is traced
	Owner     func(pid uint32) uint32                 // returns the user of a process, as ledger.Process.User
	Warn      func(pid uint32, text string)           // takes a warning about a process, or about none with pid 0
	FileID    func(l libraries.Mapped) (uint64, bool) // returns the unwinder's id of a file
	Pace      Pace                                    // of Review
	Probed    func(l libraries.Mapped, rows int)      // is called after that many functions of a file were probed
	Meanwhile func() []libraries.Mapped               // returns what was mapped since the scan that Probe gets; may be nil
	Again     func(pid uint32)                        // is called for a process that must be scanned again; may be nil
	TakenBack func()                                  // is called when a file must not have probes any more; may be nil
}

// Files are the files that are probed, and those that could not be probed. Files has no lock: only
// the goroutine that looks for libraries may call its methods, because attaching takes up to 0.1 s
// for each function. Any goroutine may call HaveTensors.
type Files struct {
	prober   attacher
	options  Options
	known    map[libraries.FileKey]*file
	places   quota.ByProcess // shares of known, by process and user
	tried    map[uint32]int  // by pid: number of files that were first seen in this process
	retired  uint64          // calls of Retire
	loaders  map[libraries.FileKey]*Set
	mapped   mappedFiles // by all processes, also those that are not traced
	doubts   map[libraries.FileKey]*doubt
	apart    quota.ByProcess // shares of the probes in single processes
	requests requests
	tensors  atomic.Bool

	// Code.Find and Code.FindProbed, or imitations in tests.
	compare, compareProbed func(*patches.Code, string, []libraries.Mapped) []patches.Patch

	// A driver could not be probed: only the runtime's probes see its calls.
	driverUnseen bool

	patience time.Duration // for the probes of one file, whose reads may be stalled
}

// attacher is a Prober, or an imitation of one in tests.
type attacher interface {
	Attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error)
	AttachBrief(f *os.File, layer cudaapi.Layer, pid uint32) (*Set, error)
	CanAttachToOne() bool
	AttachLoader(f *os.File, pid uint32) (*Set, error)
	loaderFunctions(f *os.File) ([]probepoint.Function, error)
	functions(f *os.File, layer cudaapi.Layer) ([]probepoint.Function, error)
	name(set *Set, fileID func() (uint64, bool)) bool
	review(f *os.File, set *Set, fileID func() (uint64, bool), pace Pace, keep bool) error
}

// file is a file with functions of CUDA or PyTorch that a process maps.
type file struct {
	probes  *Set             // nil if it could not be probed
	version fileid.ID        // when it was probed or could not be
	origin  origin           // only if it is probed, or overwritten in a process
	code    *patches.Code    // what its probes rely on; nil if that is unknown
	patched []uint32         // pids of processes with other code in their memory: see patched.go
	noApart bool             // because of one of them, no process may be probed by itself
	apart   apart            // the probes in single processes; see apart.go
	first   libraries.Mapped // where it was first seen
	mapped  libraries.Mapped // by a traced process; zero until one does
	holder  uint32           // pid of the process in which it was first seen
	idle    uint64           // count of Retire since which no process maps it; 0: one does
}

// apart is the processes in which one file is probed by itself, by pid.
type apart map[uint32]alone

// alone is the probes in one process. The kernel removes them from its memory as the process ends.
type alone struct {
	probes  *Set
	started uint64 // of the process, as procfs.StartTicks: its pid may be used again
}

// Limits of the number of probed files. A process has about four. One that loads new copies of a
// library in a loop would otherwise exhaust the goroutine's time and the kernel's memory.
const (
	maxFilesOfProcess = 32
	maxFiles          = 1024

	// maxFilesOneByOne is maxFiles where the kernel removes one probe after the other (before Linux
	// 6.6): each takes up to 0.1 s, also after SIGKILL, and a file has some 65.
	maxFilesOneByOne = 256
)

// maxApart limits the probes in single processes, counted by process and file. At each call of a
// function, the kernel asks all probes of the function which process they are for: with 200
// processes, a pair of driver calls took 65 µs longer.
const maxApart = 128

// NewFiles returns Files that attaches with prober.
func NewFiles(prober *Prober, options Options) *Files {
	if !prober.multi {
		return newFiles(prober, options, maxFilesOneByOne)
	}
	return newFiles(prober, options, maxFiles)
}

func newFiles(prober attacher, options Options, most int) *Files {
	return &Files{
		prober: prober, options: options, known: map[libraries.FileKey]*file{}, places: quota.NewByProcess(most),
		tried: map[uint32]int{}, loaders: map[libraries.FileKey]*Set{}, mapped: mappedFiles{},
		doubts: map[libraries.FileKey]*doubt{}, apart: quota.NewByProcess(maxApart), requests: requests{},
		compare: (*patches.Code).Find, compareProbed: (*patches.Code).FindProbed, patience: attachPatience,
	}
}

func (s *Files) attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	if l.Layer == cudaapi.Torch && s.options.Prepare != nil {
		if err := s.options.Prepare(); err != nil {
			return nil, err
		}
	}
	return patiently(l.Holder(), f, s.patience, func(f *os.File) (*Set, error) { return s.prober.Attach(f, l, pid) })
}

// mappedBy notes a process that maps the file.
func (x *file) mappedBy(l libraries.Mapped) {
	if !l.IsOwn() {
		x.mapped = l
	}
}

// has reports whether a file is probed in all processes.
func (s *Files) has(key libraries.FileKey) bool {
	return s.known[key] != nil && s.known[key].probes != nil
}

// HaveTensors reports whether any PyTorch that reports its tensors was probed.
func (s *Files) HaveTensors() bool { return s.tensors.Load() }

// Functions returns the names of the probed functions of each file, in no order.
func (s *Files) Functions() (list [][]string) {
	for _, x := range s.known {
		set := x.probes
		for _, here := range x.apart {
			set = here.probes
		}
		if set == nil {
			continue
		}
		var names []string
		for _, at := range set.functions {
			names = append(names, at.Name)
		}
		list = append(list, names)
	}
	return list
}

// drop detaches the probes from files, and forgets them.
func (s *Files) drop(keys []libraries.FileKey) {
	var sets []*Set
	for _, key := range keys {
		x := s.known[key]
		sets = append(sets, s.takeProbes(x)...)
		x.origin.close()
		if x.holder != ownPID {
			s.places.Give(x.holder)
		}
		delete(s.known, key)
	}
	detach(sets...)
}

// takeProbes returns the probes of a file, which has none any more, for the caller to detach.
func (s *Files) takeProbes(x *file) (sets []*Set) {
	if x.probes != nil {
		sets = append(sets, x.probes)
	}
	for pid, here := range x.apart {
		sets = append(sets, here.probes)
		s.apart.Give(pid)
	}
	x.probes, x.apart = nil, nil
	return sets
}
