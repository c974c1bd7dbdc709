// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Scanner asks the kernel which libraries processes map. It is constant after construction, so any
// goroutine may call its methods. A scan takes long: the goroutine that reads the rings must not
// call one.
//
// A process can stall a look at its mappings: see procfs.Call. A scan leaves it out.
type Scanner struct {
	iterator *link.Iter       // over all processes; nil if the kernel has no such iterators
	files    *ebpf.Program    // mapped_files, or nil
	code     *ebpf.Program    // process_code, or nil
	own      *ebpf.Collection // the programs, if Close must unload them
	skipped  func(pid uint32) // is told of processes that a scan left out; may be nil
}

const (
	// allPatience limits the iterator over all processes, some 5 ms for 1,000, and the look at each
	// alone if one of them holds the iterator. One that is left out by mistake is scanned a second
	// later.
	allPatience = 500 * time.Millisecond
	// together is how many processes are looked at at the same time.
	together = 4
)

// NewScanner returns a Scanner that uses mapped_files and process_code from programs. If they are
// missing, as on kernels before 5.12, it reads /proc/PID/maps instead. The caller keeps the
// programs and closes them after the Scanner. skipped is told of processes that a scan left out
// because they stall it, in the goroutine of the scan or another one; it may be nil.
func NewScanner(programs map[string]*ebpf.Program, skipped func(pid uint32)) (*Scanner, error) {
	if skipped == nil {
		skipped = func(uint32) {}
	}
	all := programs["mapped_files"]
	if all == nil {
		return &Scanner{skipped: skipped}, nil
	}
	iterator, err := link.AttachIter(link.IterOptions{Program: all})
	if err != nil {
		return nil, fmt.Errorf("attach the iterator over mappings: %w", err)
	}
	return &Scanner{iterator: iterator, files: all, code: programs["process_code"], skipped: skipped}, nil
}

// OpenScanner loads the programs and returns a Scanner that owns them, for callers without a
// tracer.
func OpenScanner() (*Scanner, error) {
	types := btf.NewCache()
	kernel, err := bpf.KernelTypes(types)
	if err != nil {
		return nil, err
	}
	if _, err := bpf.LiftMemlock(kernel); err != nil {
		return nil, err
	}
	spec, err := bpf.LoadProcess(kernel)
	if err != nil {
		return nil, fmt.Errorf("read the process watch's objects: %w", err)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, bpf.Options(types, nil))
	if err != nil {
		return nil, fmt.Errorf("load the process watch: %w", err)
	}
	s, err := NewScanner(coll.Programs, nil)
	if err != nil {
		coll.Close()
		return nil, err
	}
	s.own = coll
	return s, nil
}

// Close closes the iterator, and unloads the programs of OpenScanner.
func (s *Scanner) Close() {
	if s.iterator != nil {
		s.iterator.Close()
	}
	if s.own != nil {
		s.own.Close()
	}
}

// Scan lists the libraries of all CUDA processes, and the programs that these processes execute,
// ordered by pid.
func (s *Scanner) Scan() ([]Mapped, error) {
	list, _, err := s.ScanLayouts(0)
	return list, err
}

// ScanLayouts scans one process, or all with pid 0. It also returns the layout of each process:
// processes with equal layouts map the same code at the same addresses, as forked children do.
// There are no layouts if the kernel has no iterators over mappings. A process that stalls the scan
// is left out.
func (s *Scanner) ScanLayouts(pid uint32) ([]Mapped, map[uint32]uint64, error) {
	if pid != 0 {
		found := scanEach([]uint32{pid}, processPatience, s.look, s.skipped)
		return found.list, found.layouts, nil
	}
	if s.iterator != nil {
		found, err := procfs.Call(0, allPatience, s.all)
		if !errors.Is(err, deadline.ErrStuck) {
			return found.list, found.layouts, err
		}
	}
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, nil, fmt.Errorf("scan mappings: %w", err)
	}
	found := scanEach(pids, allPatience, s.look, s.skipped)
	return found.list, found.layouts, nil
}

// all runs the iterator over all processes.
func (s *Scanner) all() (scan, error) {
	r, err := s.iterator.Open()
	if err != nil {
		return scan{}, fmt.Errorf("scan mappings: %w", err)
	}
	defer r.Close()
	return readScan(whole{r})
}

// look scans one process, from /proc/PID/maps before Linux 6.1.
func (s *Scanner) look(pid uint32) (found scan, err error) {
	if s.files != nil {
		err = iterateProcess(s.files, pid, func(r io.Reader) (err error) {
			found, err = readScan(r)
			return err
		})
		if err == nil {
			return found, nil
		}
	}
	return lookAtMaps(pid)
}

// scanEach looks at each process, at some together. It leaves out those that stall it.
func scanEach(pids []uint32, limit time.Duration, look func(pid uint32) (scan, error), skipped func(pid uint32)) scan {
	each := make([]scan, len(pids))
	var next atomic.Int64
	var wait sync.WaitGroup
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(pids)); i = next.Add(1) - 1 {
			found, err := procfs.Call(pids[i], limit, func() (scan, error) { return look(pids[i]) })
			if errors.Is(err, deadline.ErrStuck) {
				skipped(pids[i])
			} else if err == nil { // else the process has ended
				each[i] = found
			}
		}
	}
	for range min(together, len(pids)) - 1 {
		wait.Go(work)
	}
	work()
	wait.Wait()
	found := scan{layouts: map[uint32]uint64{}}
	for _, x := range each {
		found.list = append(found.list, x.list[:min(len(x.list), roomFor(len(found.list)))]...)
		maps.Copy(found.layouts, x.layouts)
	}
	return found
}
