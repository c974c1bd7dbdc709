// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"io/fs"

	"github.com/cilium/ebpf"
)

// Env is what Check examines. It skips the checks of nil fields.
type Env struct {
	Root     fs.FS  // the root file system: proc, sys
	Arch     string // as in GOARCH
	Release  string // uname -r
	Version  string // uname -v
	Features []Feature
	Calls    []Call
	Commands bool                                            // vramprof will start programs and hold them
	SelfTest func(context.Context) error                     // see ReturnProbeSelfTest
	NVML     func(context.Context) (version string, _ error) // asks the driver for its version
	// MarkedPages proves that pages can be read which NUMA balancing has marked.
	MarkedPages func() error
}

// Feature is a part of BPF that older kernels lack.
type Feature struct {
	Name    string
	Have    func() error // nil if the kernel has it, ebpf.ErrNotSupported if not
	Needed  bool
	Without string // the consequence of not having it, unless Needed
}

// Call is a system call that tracing needs. A container's seccomp filter or security module may
// forbid it even if the capability is present.
type Call struct {
	Name string
	Try  func() error // returns EPERM, EACCES or ENOSYS if the call is forbidden
}

// read returns the trimmed content of a small file, or "" if it cannot be read.
func read(env Env, name string) string {
	b, err := fs.ReadFile(env.Root, name)
	if err != nil {
		return ""
	}
	return string(b)
}

// lacks reports whether the kernel lacks a feature.
func (env Env) lacks(feature string) bool {
	for _, f := range env.Features {
		if f.Name == feature {
			return errors.Is(f.Have(), ebpf.ErrNotSupported)
		}
	}
	return false
}
