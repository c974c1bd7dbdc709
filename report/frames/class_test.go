// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"testing"

	"github.com/vramprof/vramprof/symbolize"
)

func TestClassSaysWhoseCodeAFrameIs(t *testing.T) {
	in := func(path string) *symbolize.Mapping { return &symbolize.Mapping{Path: path} }
	for _, c := range []struct {
		frame symbolize.Frame
		want  Class
	}{
		{symbolize.Frame{Python: true, File: "/home/ada/llm/train.py"}, UserPython},
		{symbolize.Frame{Python: true, File: "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py"}, LibraryPython},
		{symbolize.Frame{Python: true, File: "/usr/lib/python3.11/threading.py"}, LibraryPython},
		{symbolize.Frame{Python: true, File: "<frozen importlib._bootstrap>"}, LibraryPython},
		{symbolize.Frame{Function: "handle", Mapping: in("/srv/infer/bin/infer")}, UserNative},
		{symbolize.Frame{Function: "jitted", Address: 7}, UserNative},
		{symbolize.Frame{Function: "_start", Mapping: in("/srv/infer/bin/infer")}, LibraryNative},
		{symbolize.Frame{Function: "at::empty", Mapping: in("/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so")}, LibraryNative},
		{symbolize.Frame{Function: "malloc", Mapping: in("/lib/x86_64-linux-gnu/libc.so.6")}, LibraryNative},
		{symbolize.Frame{Function: "_PyEval_EvalFrameDefault", Mapping: in("/usr/bin/python3.11")}, LibraryNative},
		{symbolize.Frame{Function: "cudaMalloc"}, LibraryNative},
		{symbolize.Frame{Function: "[truncated: too deep]", Mark: true}, Remark},
	} {
		if got := ClassOf(&c.frame); got != c.want {
			t.Errorf("%+v: class %d, want %d", c.frame, got, c.want)
		}
	}
}
