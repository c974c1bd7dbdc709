// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// ProbeLoader probes the dynamic loader f, unless it is probed already: held processes stop each
// time it has loaded libraries. Nearly all processes of the machine map it. If one has other code
// there in its memory, only the process pid, which is to become the command, is probed.
func (s *Files) ProbeLoader(f *os.File, pid uint32) error {
	var key libraries.FileKey
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		key = libraries.FileKey{Device: uint32(st.Dev), Inode: st.Ino}
	}
	if s.loaders[key] != nil {
		return nil
	}
	functions, err := s.prober.loaderFunctions(f)
	if err != nil {
		return err
	}
	code, err := patches.Read(f, functions)
	if err != nil {
		return err
	}
	mapped, stalling, err := libraries.Everywhere(key.Inode)
	if err != nil {
		return err
	}
	list := s.compare(code, pathOf(f), mapped)
	for _, pid := range stalling {
		list = append(list, patches.Patch{PID: pid, Err: deadline.ErrStuck})
	}
	var in uint32
	if len(list) > 0 {
		who := fmt.Sprintf("process %d (%s) %v", list[0].PID, untrusted.Clean(procfs.Comm(list[0].PID)), list[0])
		if slices.ContainsFunc(list, func(p patches.Patch) bool { return p.Trap }) || !s.prober.CanAttachToOne() {
			return errors.New(who)
		}
		in = pid
		s.options.Warn(0, fmt.Sprintf("%s: %s is probed in the command alone. The first calls of its children after they load a library may be missing", who, untrusted.Clean(filepath.Base(f.Name()))))
	}
	set, err := s.prober.AttachLoader(f, in)
	if err == nil {
		s.loaders[key] = set
	}
	return err
}

// HaveLoaders reports whether any dynamic loader is probed.
func (s *Files) HaveLoaders() bool { return len(s.loaders) > 0 }
