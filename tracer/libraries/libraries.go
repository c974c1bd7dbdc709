// SPDX-License-Identifier: Apache-2.0

// Package libraries finds CUDA's and PyTorch's libraries in the address spaces of processes. A
// Scanner lists the mappings that exist now, MappingEvents reports new ones, and Ahead maps the
// driver's library before any process loads it. The package attaches nothing.
package libraries

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// FileKey identifies a file by its inode below overlayfs, as uprobes do: containers of one image
// share it. Btrfs snapshots have different inodes with the same number, so Subvolume tells them
// apart.
type FileKey struct {
	Device    uint32
	Inode     uint64
	Subvolume uint64
}

// keyOf returns the key of a file from the numbers in the kernel's lists of mappings; open is a
// path to the file. It looks up a subvolume only on file systems without a block device, as btrfs
// has none.
func keyOf(device uint32, inode uint64, open string) FileKey {
	key := FileKey{Device: device, Inode: inode}
	if device>>20 == 0 {
		if id, err := fileid.StatPath(open); err == nil {
			key.Subvolume = id.Subvolume
		}
	}
	return key
}

// Mapped is a library of CUDA or PyTorch that a process maps, or the program that it executes.
type Mapped struct {
	PID     uint32
	File    FileKey
	Layer   cudaapi.Layer
	Program bool   // the program that the process executes, which may contain cudart
	Name    string // the base name of the file: untrusted, but without control characters
	Address uint64 // where a part of its code begins in the process
	For     uint32 // a mapping of Ahead's: the process for whose sake it is; else 0
	Path    string // a path under /proc that leads to the file even if it was renamed or deleted
}

var ownPID = uint32(os.Getpid())

// processPatience limits the look at the mappings of one process: some 0.1 ms, but a busy machine
// delays it by half a second.
const processPatience = 2 * time.Second

// Version returns the version of the mapped file. It returns deadline.ErrStuck as OpenFile does.
func (l Mapped) Version() (fileid.ID, error) {
	return procfs.Call(l.PID, processPatience, func() (fileid.ID, error) { return fileid.StatPath(l.Path) })
}

// IsOwn reports whether this process maps the library, because of Ahead.
func (l Mapped) IsOwn() bool { return l.PID == ownPID }

// Python wheels rename the libraries that they bundle: libcudart-80664282.so.10.2.
var (
	runtimeName = regexp.MustCompile(`^libcudart[.-].*so|^libcudart\.so`)
	torchName   = regexp.MustCompile(`^libc10\.so`)
	driverName  = regexp.MustCompile(`^libcuda\.so`)
	ncclName    = regexp.MustCompile(`^libnccl[.-].*so`)
)

// Holder returns the process on whose account the library is probed: the one that maps it, or that
// will load it.
func (l Mapped) Holder() uint32 {
	if l.IsOwn() && l.For != 0 {
		return l.For
	}
	return l.PID
}

// LayerOf returns the layer of a library with this base name, and false if it is none of CUDA's,
// PyTorch's or NCCL.
func LayerOf(name string) (cudaapi.Layer, bool) {
	switch {
	case runtimeName.MatchString(name):
		return cudaapi.Runtime, true
	case driverName.MatchString(name):
		return cudaapi.Driver, true
	case torchName.MatchString(name):
		return cudaapi.Torch, true
	case ncclName.MatchString(name):
		return cudaapi.NCCL, true
	}
	return 0, false
}

// OpenFile opens the mapped file. Links in map_files lead to regular files only, which OpenRegular
// checks. It returns deadline.ErrStuck if the process stalls it: see procfs.Call.
func (l Mapped) OpenFile() (*os.File, error) {
	f, err := procfs.Call(l.PID, processPatience, func() (*os.File, error) { return untrusted.OpenRegular(l.Path) })
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err // users do not know paths in map_files
	}
	if err != nil {
		return nil, fmt.Errorf("open %s of process %d: %w", l.Name, l.PID, err)
	}
	return f, nil
}
