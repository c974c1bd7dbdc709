// SPDX-License-Identifier: Apache-2.0

package symbolize_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// A Symbolizer takes open files, so names can be resolved after the process has exited. An address
// may be in several functions: those inlined at it, and the one that contains them.
func Example() {
	s := symbolize.New(symbolize.Options{})
	defer s.Close()

	path := "testdata/elf/dwarf5.so"
	file, err := os.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	mapping := &callstack.Mapping{Path: path}
	s.AddFile("file 1", mapping, file, "") // s closes the file

	for _, address := range []uint64{0x7b8, 0x814} {
		for _, f := range s.AppendFrames(nil, "file 1", mapping, address) {
			fmt.Printf("%s %s:%d\n", f.Function, filepath.Base(f.File), f.Line)
		}
	}
	// Output:
	// tensor::Buffer<float>::grow(unsigned long) inline.cc:15
	// tensor::Buffer<float>::Buffer(unsigned long) inline.cc:12
	// tensor::Op::run(int) inline.cc:32
	// train inline.cc:47
}

// Code of just-in-time compilers is in no file. The compilers list it in /tmp/perf-PID.map.
func ExampleSymbolizer_AddPerfMap() {
	s := symbolize.New(symbolize.Options{})
	defer s.Close()

	if err := s.AddPerfMap(4242, strings.NewReader("7f3a5c2b1000 60 py::train:/home/ada/train.py\n")); err != nil {
		fmt.Println(err)
		return
	}
	frame, ok := s.JITFrame(4242, 0x7f3a5c2b1010)
	fmt.Println(frame.Function, ok)
	// Output:
	// py::train:/home/ada/train.py true
}
