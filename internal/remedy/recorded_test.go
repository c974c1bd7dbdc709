// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// readRecorded reads a trace that a job of testdata/remedies recorded.
func readRecorded(r io.Reader) (*Program, error) {
	t := &allocsim.Trace{}
	var frames []callstack.Frame
	var stacks [][]callstack.Frame
	ids := map[string]uint32{}
	add := func(kind allocsim.Kind, block uint32) {
		t.Ops = append(t.Ops, allocsim.Op{Kind: kind, Block: block})
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		w := strings.Fields(rest)
		number := func(i int) uint64 { n, _ := strconv.ParseUint(w[i], 10, 64); return n }
		switch kind {
		case "v":
			t.Version = rest
		case "F":
			part := strings.Split(rest, "\t")
			line, _ := strconv.Atoi(part[2])
			f := callstack.Frame{Function: part[0], Line: line, Python: part[1] != "??"}
			if f.Python {
				f.File = part[1]
			}
			frames = append(frames, f)
		case "S":
			var s []callstack.Frame
			for i := range w {
				s = append(s, frames[number(i)])
			}
			stacks = append(stacks, s)
		case "a", "x":
			b := allocsim.Block{}
			if kind == "a" {
				b = allocsim.Block{Requested: number(1), Stream: uint32(number(2)), Pool: uint32(number(3)), Address: number(4), Site: uint32(number(5))}
				ids[w[0]] = uint32(len(t.Blocks))
				add(allocsim.Malloc, uint32(len(t.Blocks)))
			} else {
				b = allocsim.Block{Requested: number(0), Stream: uint32(number(1)), Site: uint32(number(2))}
				add(allocsim.Failed, uint32(len(t.Blocks)))
			}
			t.Blocks = append(t.Blocks, b)
		case "f":
			add(allocsim.FreeRequested, ids[w[0]])
		case "c":
			add(allocsim.FreeCompleted, ids[w[0]])
		case "e":
			add(allocsim.EmptyCache, 0)
		case "s":
		case "r":
			t.Reserved = append(t.Reserved, allocsim.Reserved{Op: len(t.Ops) - 1, Bytes: number(0)})
		default:
			return nil, fmt.Errorf("line %q", lines.Text())
		}
	}
	return New(joinFrees(t), recordedStacks(stacks)), lines.Err()
}

// joinFrees writes frees that complete at once as Free.
func joinFrees(t *allocsim.Trace) *allocsim.Trace {
	ops, moved := t.Ops[:0:0], map[int]int{}
	for i := 0; i < len(t.Ops); i++ {
		op := t.Ops[i]
		if op.Kind == allocsim.FreeRequested && i+1 < len(t.Ops) && t.Ops[i+1] == (allocsim.Op{Kind: allocsim.FreeCompleted, Block: op.Block}) {
			op.Kind = allocsim.Free
			i++
		}
		moved[i] = len(ops)
		ops = append(ops, op)
	}
	for i := range t.Reserved {
		t.Reserved[i].Op = moved[t.Reserved[i].Op]
	}
	t.Ops = ops
	return t
}

type recordedStacks [][]callstack.Frame

func (s recordedStacks) Stack(id uint64) []callstack.Frame {
	if id < uint64(len(s)) {
		return s[id]
	}
	return nil
}
