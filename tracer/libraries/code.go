// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"io"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Code returns the executable mappings of a process and its layout, see ScanLayouts. The list is
// empty if the process has ended, or if the kernel cannot iterate over the mappings of one process
// (before Linux 6.1).
func (s *Scanner) Code(pid uint32) (list []bpf.MappedCode, layout uint64) {
	if s.code == nil {
		return nil, 0
	}
	raw, err := procfs.Call(pid, processPatience, func() (raw []byte, _ error) {
		return raw, iterateProcess(s.code, pid, func(r io.Reader) (err error) {
			raw, err = io.ReadAll(r)
			return err
		})
	})
	if err != nil {
		return nil, 0
	}
	if list, layout, err = bpf.DecodeMappedCode(raw); err != nil {
		return nil, 0
	}
	return list, layout
}
