// SPDX-License-Identifier: Apache-2.0

// Package libraries finds CUDA's and PyTorch's libraries as processes map them: a Scanner lists
// what is mapped now, MappingEvents reports new mappings, and Ahead maps the driver's library
// before any process has loaded it. Nothing is probed here.
package libraries

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/functions"
)

// FileKey names a file by its real inode, below overlayfs, as the kernel's
// probes do: containers of one image share it. Snapshots of btrfs have inodes of their own with one number.
type FileKey struct {
	Device    uint32
	Inode     uint64
	Subvolume uint64
}

// keyOf makes the key of a file from the numbers that the kernel's own lists have; open leads to it. File systems with subvolumes
// have no device, so of others nothing is asked.
func keyOf(device uint32, inode uint64, open string) FileKey {
	key := FileKey{Device: device, Inode: inode}
	if device>>20 == 0 {
		if id, err := fileid.At(open); err == nil {
			key.Subvolume = id.Subvolume
		}
	}
	return key
}

// Mapped is a CUDA library in one process.
type Mapped struct {
	PID     uint32
	File    FileKey
	Layer   functions.Layer
	Program bool   // not a library but what the process executes: it may hold cudart
	Name    string // as the traced process named it, untrusted
	Path    string // path under /proc that leads to the file whatever its name has become
}

var ownPID = uint32(os.Getpid())

// IsOwn reports whether this process maps the library, see Ahead.
func (l Mapped) IsOwn() bool { return l.PID == ownPID }

// Wheels rename what they bundle: libcudart-80664282.so.10.2.
var (
	runtimeName = regexp.MustCompile(`^libcudart[.-].*so|^libcudart\.so`)
	torchName   = regexp.MustCompile(`^libc10\.so`)
	driverName  = regexp.MustCompile(`^libcuda[.-].*so|^libcuda\.so`)
)

func LayerOf(name string) (functions.Layer, bool) {
	switch {
	case runtimeName.MatchString(name):
		return functions.Runtime, true
	case driverName.MatchString(name):
		return functions.Driver, true
	case torchName.MatchString(name):
		return functions.Torch, true
	}
	return 0, false
}

// scanner asks the kernel which processes map which CUDA library.
type Scanner struct {
	iterator *link.Iter       // nil: the kernel has none
	files    *ebpf.Program    // mapped_files; nil likewise
	code     *ebpf.Program    // process_code; nil likewise
	own      *ebpf.Collection // nil: the programs are a tracer's
}

// NewScanner takes the programs mapped_files and process_code, which some kernels cannot have.
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

// OpenScanner is for those who do not trace.
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
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
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

func (s *Scanner) Close() {
	if s.iterator != nil {
		s.iterator.Close()
	}
	if s.own != nil {
		s.own.Close()
	}
}

// scan lists the CUDA libraries of all processes, and the programs of those
// processes, in the order of their pids.
func (s *Scanner) Scan() ([]Mapped, error) {
	list, _, err := s.ScanLayouts(0)
	return list, err
}

// ScanLayouts looks at one process, or with pid 0 at all. It gives the layouts of processes as well: those with the same one have the
// same code at the same places, as a process has that has forked, and its children. None where the kernel has no iterator.
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
			Path:    open,
		})
	}
	return list, layouts, nil
}

// ofCUDA leaves out the processes without a CUDA library: a program that holds cudart
// itself loads the driver's library, at the latest in cuInit, and PyTorch may run on the CPU alone.
func ofCUDA(list []Mapped) []Mapped {
	uses := map[uint32]bool{}
	for _, l := range list {
		uses[l.PID] = uses[l.PID] || !l.Program && l.Layer != functions.Torch
	}
	return slices.DeleteFunc(list, func(l Mapped) bool { return !uses[l.PID] })
}

// openLibrary opens the mapped file itself. The link under map_files never
// leads to a FIFO or a device: only regular files are mapped executable, and
// OpenRegular makes sure.
func (l Mapped) OpenFile() (*os.File, error) {
	f, err := untrusted.OpenRegular(l.Path)
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err // the path says nothing to a person
	}
	if err != nil {
		return nil, fmt.Errorf("open %s of process %d: %w", l.Name, l.PID, err)
	}
	return f, nil
}
