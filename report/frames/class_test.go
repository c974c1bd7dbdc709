// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

func TestClassSaysWhoseCodeAFrameIs(t *testing.T) {
	in := func(path string) *callstack.Mapping { return &callstack.Mapping{Path: path} }
	for _, c := range []struct {
		frame callstack.Frame
		want  Class
	}{
		{callstack.Frame{Python: true, File: "/home/ada/llm/train.py"}, UserPython},
		{callstack.Frame{Python: true, File: "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"}, LibraryPython},
		{callstack.Frame{Python: true, File: "/usr/lib/python3.11/threading.py"}, LibraryPython},
		{callstack.Frame{Python: true, File: "<frozen importlib._bootstrap>"}, LibraryPython},
		{callstack.Frame{Function: "handle", Mapping: in("/srv/infer/bin/infer")}, UserNative},
		{callstack.Frame{Function: "jitted", Address: 7}, UserNative},
		{callstack.Frame{Function: "_start", Mapping: in("/srv/infer/bin/infer")}, LibraryNative},
		{callstack.Frame{Function: "at::empty", Mapping: in("/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so")}, LibraryNative},
		{callstack.Frame{Function: "malloc", Mapping: in("/lib/x86_64-linux-gnu/libc.so.6")}, LibraryNative},
		{callstack.Frame{Function: "_PyEval_EvalFrameDefault", Mapping: in("/usr/bin/python3.11")}, LibraryNative},
		{callstack.Frame{Function: "cudaMalloc"}, LibraryNative},
		{callstack.Frame{Function: "[truncated: too deep]", Mark: true}, Remark},
	} {
		if got := ClassOf(&c.frame); got != c.want {
			t.Errorf("%+v: class %d, want %d", c.frame, got, c.want)
		}
	}
}
