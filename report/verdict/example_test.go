// SPDX-License-Identifier: Apache-2.0

package verdict_test

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// server has the stacks of a program in Python, leaf first.
type server struct{}

func (server) Stack(id uint64) []callstack.Frame {
	return []callstack.Frame{
		{Function: "cudaMalloc", Mapping: &callstack.Mapping{Path: "/usr/lib/libcudart.so.12"}},
		{Function: []string{"Server.remember", "Server.answer"}[id-1], File: "/srv/serve.py", Line: int(20 * id), Python: true},
	}
}

// In each second a server keeps one buffer, and frees another one that it has used.
func Example() {
	const second = uint64(time.Second)
	books := ledger.New(ledger.Options{})
	books.Tell(ledger.Process{PID: 42, Comm: "python3"})
	event := func(op ledger.Op, at, address, stack uint64) {
		books.Apply(&ledger.Event{Op: op, Kind: ledger.Device, PID: 42, Time: at, Address: address, Size: 16 << 20, Stack: stack, API: "cudaMalloc"})
	}
	for i := range uint64(120) {
		event(ledger.Alloc, i*second, 2*i+1, 1)
		event(ledger.Alloc, i*second+1, 2*i+2, 2)
		event(ledger.Free, i*second+2, 2*i+2, 0)
	}
	snapshot := books.Snapshot(120*second, time.Unix(1_790_000_000, 0))

	verdicts := verdict.Judge(snapshot, server{})
	for _, line := range verdict.JudgeLines(snapshot, verdicts) { // the worst first
		fmt.Printf("%s:%d %s is %s\n", line.Line.File, line.Line.Line, line.Line.Function, line.Class)
		fmt.Println(line.Evidence)
	}
	// Output:
	// /srv/serve.py:20 Server.remember is leaking
	// +959 MiB/min over 2m00s (923 to 996 MiB/min), 120 survivors in 14 of 14 windows, up to 2m00s old, 100% of allocated bytes never freed, 14 high-water marks
	// /srv/serve.py:40 Server.answer is steady
	// 0% of allocated bytes never freed, 1 high-water mark
}
