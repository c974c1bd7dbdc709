// SPDX-License-Identifier: Apache-2.0

package frames_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func TestMineIsWhatMatches(t *testing.T) {
	linear := reporttest.Script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 1)
	train := reporttest.Script("step", "/home/ada/train.py", 1)
	alloc := reporttest.Native("c10::alloc", reporttest.Torch, 1)
	handle := reporttest.Native("handle", reporttest.Infer, 1)
	mark := callstack.Frame{Function: "[truncated: train.py]", Mark: true}
	stack := []callstack.Frame{reporttest.Native("cudaMalloc", reporttest.CUDART, 1), alloc, linear, handle, train, mark}
	for _, c := range []struct {
		name, re string
		own      []string // functions
		headline string
	}{
		{"the source file", "/ada/", []string{"step"}, "step"},
		{"the source file of a library", "torch/nn", []string{"Linear.forward"}, "Linear.forward"},
		{"the mapped file", "libc10_cuda", []string{"c10::alloc"}, "c10::alloc"},
		{"the function", "^handle$", []string{"handle"}, "handle"},
		{"Python comes first", "train|handle", []string{"handle", "step"}, "step"},
		{"nothing: the headline is as without", "nowhere", nil, "step"},
	} {
		st := frames.Mine(reporttest.StackMap{1: stack}, regexp.MustCompile(c.re))
		list := st.Stack(1)
		var own []string
		for i := range list {
			if frames.IsUser(&list[i]) {
				own = append(own, list[i].Function)
			}
			if class := frames.ClassOf(&list[i]); (class == frames.UserPython || class == frames.UserNative) != frames.IsUser(&list[i]) {
				t.Errorf("%s: class %d of %s", c.name, class, list[i].Function)
			}
		}
		if head := list[frames.Headline(list)].Function; !slices.Equal(own, c.own) || head != c.headline {
			t.Errorf("%s: own code %q, headline %s; want %q, %s", c.name, own, head, c.own, c.headline)
		}
		if again := st.Stack(1); &again[0] != &list[0] {
			t.Errorf("%s: the stack is marked at each call", c.name)
		}
	}
	if stack[4].Whose != callstack.Unsaid {
		t.Error("Mine changed the stack of its source")
	}
}

// A session names stacks late: at first there is none.
func TestMineFollowsItsSource(t *testing.T) {
	source := reporttest.StackMap{}
	st := frames.Mine(source, regexp.MustCompile("train"))
	if st.Stack(1) != nil {
		t.Error("a stack of an unknown id")
	}
	source[1] = []callstack.Frame{reporttest.Script("f", "/home/ada/train.py", 1)}
	if list := st.Stack(1); len(list) != 1 || list[0].Whose != callstack.Mine {
		t.Errorf("got %+v, want the stack that its source has by now", list)
	}
	source[1] = []callstack.Frame{reporttest.Script("g", "/home/ada/eval.py", 1)}
	if list := st.Stack(1); len(list) != 1 || list[0].Whose != callstack.NotMine {
		t.Errorf("got %+v, want the later stack", list)
	}
	if frames.Mine(source, nil).(reporttest.StackMap) == nil {
		t.Error("without an expression, Mine is more than its source")
	}
}

func BenchmarkMine(b *testing.B) {
	source := reporttest.StackMap{}
	for id := range uint64(1000) {
		for k := range 40 {
			source[id] = append(source[id], reporttest.Native("at::native::f", reporttest.TorchCPU, id*uint64(k)))
		}
	}
	st := frames.Mine(source, regexp.MustCompile("myproject|^mine::"))
	for i := 0; b.Loop(); i++ {
		st.Stack(uint64(i % 1000))
	}
}

func BenchmarkHeadline(b *testing.B) {
	var list []callstack.Frame
	for range 30 {
		list = append(list, reporttest.Native("at::native::f", reporttest.TorchCPU, 1))
	}
	for range 10 {
		list = append(list, reporttest.Native("handle", reporttest.Infer, 1))
	}
	for b.Loop() {
		frames.Headline(list)
	}
}
