// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stepStacks are the stacks of Steps.
var stepStacks = StackMap{
	1: {stepFrame("torch/nn/modules/linear.py", "Linear.forward", 1), stepFrame("torch/nn/modules/module.py", "Module._call_impl", 1), stepFrame("train.py", "main", 30)},
	2: {{Function: "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)"}},
	3: {stepFrame("torch/optim/adamw.py", "AdamW.step", 1), stepFrame("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 1), stepFrame("train.py", "main", 40)},
	4: {stepFrame("torch/nn/modules/linear.py", "Linear.forward", 1), stepFrame("torch/nn/modules/module.py", "Module._call_impl", 1), stepFrame("train.py", "validate", 60)},
	5: {{Function: "at::_ops::to_dtype_layout::call"}, stepFrame("train.py", "main", 29)},
}

func stepFrame(file, function string, line int) callstack.Frame {
	return callstack.Frame{File: "/opt/" + file, Function: function, Line: line, Python: true}
}

// Steps are those of the job of Held: 57 steps of a second, of which the 41st has most and each
// keeps 12 MiB, and two evaluations.
func Steps() *steps.Session {
	j := stepJob{time: 1001 * Second, total: 30 * GiB}
	j.f = steps.NewFinder(stepStacks, []uint64{1060 * Second, 1000*Second + 43*Second + 320*Second/1000})
	for step := range uint64(57) {
		most := 2 * GiB
		if step == 40 {
			most = 6 * GiB
		}
		j.alloc(5, 64*MiB)
		saved := []uint64{j.alloc(1, most/2), j.alloc(1, most/4), j.alloc(1, most/4)}
		j.alloc(1, 12*MiB)
		var gradients []uint64
		for i := range saved {
			gradients = append(gradients, j.alloc(2, 128*MiB))
			j.free(saved[len(saved)-1-i])
		}
		scratch := j.alloc(3, 512*MiB)
		j.free(scratch)
		for _, g := range append(gradients, j.first) {
			j.free(g)
		}
		if step%20 == 19 {
			for range 3 {
				j.free(j.alloc(4, 1*GiB))
			}
		}
	}
	return &steps.Session{List: j.f.Steps()}
}

type stepJob struct {
	f                  *steps.Finder
	time, total, first uint64
	address            uint64
	sizes              map[uint64]uint64
}

func (j *stepJob) send(op ledger.Op, address, size, stack uint64) {
	j.time += Second / 16
	j.f.Apply(&ledger.Event{
		Op: op, Kind: ledger.Tensor, Space: ledger.Blocks, PID: heldPID, Time: j.time, Address: address, Size: size, Stack: stack,
		Told: ledger.ToldAllocated, Allocated: j.total, Reserved: j.total,
	})
}

func (j *stepJob) alloc(stack, size uint64) uint64 {
	if j.sizes == nil {
		j.sizes = map[uint64]uint64{}
	}
	j.address += GiB
	j.sizes[j.address], j.total = size, j.total+size
	j.send(ledger.Alloc, j.address, size, stack)
	if stack == 5 {
		j.first = j.address
	}
	return j.address
}

func (j *stepJob) free(address uint64) {
	j.total -= j.sizes[address]
	j.send(ledger.Free, address, 0, 0)
}
