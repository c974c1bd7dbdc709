// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"

	"go.opentelemetry.io/ebpf-profiler/support"
)

func TestOffsetsAreCorrectedOnlyForVersionsThatNeedIt(t *testing.T) {
	for version := uint16(0x0306); version <= 0x030f; version++ {
		info := support.PyProcInfo{Version: version, NoneStructAddr: 0x1000, PyFrameObject_f_lasti: 56}
		want := info
		if version == 0x030a {
			info.PyFrameObject_f_lasti, want.PyFrameObject_f_lasti = 0, 96
		}
		if version == 0x030e {
			want.NoneStructAddr = 0x1001
		}
		if correctOffsets(&info); info != want {
			t.Errorf("version %#x: %+v, want %+v", version, info, want)
		}
	}
}

func TestShimsAreRecognized(t *testing.T) {
	for _, c := range []struct {
		frame Frame
		shim  bool
	}{
		{Frame{Function: "<interpreter trampoline>", Source: "<shim>"}, true},
		{Frame{Function: "<interpreter trampoline>", Source: "program.py"}, false},
		{Frame{Function: "<module>", Source: "<shim>"}, false},
		{Frame{Address: 1}, false},
	} {
		if isShim(c.frame) != c.shim {
			t.Errorf("%+v: want %v", c.frame, c.shim)
		}
	}
}
