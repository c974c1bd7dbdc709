// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
)

// Scanner asks the kernel which libraries processes map. It is constant after construction, so any
// goroutine may call its methods. A scan takes long: the goroutine that reads the rings must not
// call one.
type Scanner struct {
	iterator *link.Iter       // over all processes; nil if the kernel has no such iterators
	files    *ebpf.Program    // mapped_files, or nil
	code     *ebpf.Program    // process_code, or nil
	own      *ebpf.Collection // the programs, if Close must unload them
}

// NewScanner returns a Scanner that uses mapped_files and process_code from programs. If they are
// missing, as on kernels before 5.12, it reads /proc/PID/maps instead. The caller keeps the
// programs and closes them after the Scanner.
func NewScanner(programs map[string]*ebpf.Program) (*Scanner, error) {
	all := programs["mapped_files"]
	if all == nil {
		return &Scanner{}, nil
	}
	iterator, err := link.AttachIter(link.IterOptions{Program: all})
	if err != nil {
		return nil, fmt.Errorf("attach the iterator over mappings: %w", err)
	}
	return &Scanner{iterator: iterator, files: all, code: programs["process_code"]}, nil
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
	s, err := NewScanner(coll.Programs)
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
// There are no layouts if the kernel has no iterators over mappings.
func (s *Scanner) ScanLayouts(pid uint32) (list []Mapped, layouts map[uint32]uint64, err error) {
	if s.iterator == nil {
		list, err := readAllMaps()
		return ofCUDA(list), nil, err
	}
	var raw []byte
	if pid != 0 {
		raw, err = iterateProcess(s.files, pid)
	}
	if pid == 0 || err != nil { // before Linux 6.1
		raw, err = s.iterate()
	}
	if err != nil {
		return nil, nil, err
	}
	list, layouts, err = decodeScan(raw)
	return ofCUDA(list), layouts, err
}

func (s *Scanner) iterate() ([]byte, error) {
	r, err := s.iterator.Open()
	if err != nil {
		return nil, fmt.Errorf("scan mappings: %w", err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("scan mappings: %w", err)
	}
	return raw, nil
}

func decodeScan(raw []byte) (list []Mapped, layouts map[uint32]uint64, err error) {
	layouts = map[uint32]uint64{}
	for len(raw) > 0 {
		var record *bpf.MappedFile
		if record, raw, err = bpf.DecodeMappedFile(raw); err != nil {
			return list, layouts, fmt.Errorf("scan mappings: %w", err)
		}
		if record.Layout != 0 {
			layouts[record.Pid] = record.Inode
			continue
		}
		name, _, _ := strings.Cut(string(record.Name[:]), "\x00")
		layer, ok := LayerOf(name)
		if !ok && record.Program == 0 {
			continue
		}
		open := fmt.Sprintf("/proc/%d/map_files/%x-%x", record.Pid, record.Start, record.End)
		list = append(list, Mapped{
			PID:     record.Pid,
			File:    keyOf(record.Device, record.Inode, open),
			Layer:   layer,
			Program: !ok,
			Name:    untrusted.Clean(name),
			Address: record.Start,
			Path:    open,
		})
	}
	return list, layouts, nil
}

// ofCUDA removes the processes that map no CUDA library. A program that contains cudart loads the
// driver's library in cuInit at the latest, and PyTorch alone may run on the CPU.
func ofCUDA(list []Mapped) []Mapped {
	uses := map[uint32]bool{}
	for _, l := range list {
		uses[l.PID] = uses[l.PID] || !l.Program && l.Layer != functions.Torch
	}
	return slices.DeleteFunc(list, func(l Mapped) bool { return !uses[l.PID] })
}
