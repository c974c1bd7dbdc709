// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// HelperStacks are the stacks of Helper.
type HelperStacks struct{}

// Stack returns the frames of a stack.
func (HelperStacks) Stack(id uint64) []callstack.Frame {
	const modules = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/"
	call := func(module string) []callstack.Frame {
		return []callstack.Frame{
			Script(module, modules+"linear.py", 125), Script("Module._call_impl", modules+"module.py", 1750), Script("Module._wrapped_call_impl", modules+"module.py", 1739),
		}
	}
	list := []callstack.Frame{Native("cudaMalloc", CUDART, 1)}
	main := Script("main", "/home/ada/gpt/main.py", 40)
	helper := Script("to_gpu", "/home/ada/gpt/utils.py", 8)
	switch id {
	case 1:
		return append(list, helper, Script("Buffer.keep", "/home/ada/gpt/buffer.py", 20), main)
	case 2:
		return append(list, helper, Script("Loader.next", "/home/ada/gpt/data.py", 31), main)
	case 3:
		return append(list, helper, Script("load", "/home/ada/gpt/weights.py", 12), main)
	case 4:
		list = append(append(list, call("GELU.forward")...), call("Sequential.forward")...)
	case 5:
		list = append(append(list, call("Linear.forward")...), call("Sequential.forward")...)
	case 6:
		list = append(list, call("LayerNorm.forward")...)
	}
	return append(list, Script("Block.forward", "/home/ada/gpt/gpt.py", 25), main)
}

// Helper is a training in which a helper allocates for three callers, of which one leaks; and a
// line of a model below which PyTorch calls three modules.
func Helper() *ledger.Snapshot {
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	l.Tell(ledger.Process{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin})
	event := func(op ledger.Op, at, address, size, stack uint64) {
		l.Apply(&ledger.Event{Op: op, Kind: ledger.Device, PID: 4242, TID: 4242, Time: begin + at*Second/10, Address: address << 32, Size: size, Stack: stack, API: "cudaMalloc"})
	}
	for i := range uint64(8) { // weights
		event(ledger.Alloc, 1, 1+i, 64*MiB, 3)
	}
	for stack := range uint64(3) { // activations that stay
		event(ledger.Alloc, 2, 100+stack, (512-128*stack)*MiB, 4+stack)
	}
	for i := range uint64(300) { // a leak of 20 MiB each second, and batches
		event(ledger.Alloc, 10+2*i, 1000+i, 4*MiB, 1)
		event(ledger.Alloc, 10+2*i, 5000+i, 32*MiB, 2)
		if i > 0 {
			event(ledger.Free, 11+2*i, 5000+i-1, 0, 0)
		}
	}
	return l.Snapshot(begin+61*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}

// Modelled is the session of Helper, of which a walk has found that a line of the model keeps the
// weights of a module's parts, and the helper's line those of two models.
func Modelled() *ledger.Snapshot {
	s := Helper()
	w := ledger.Walked{Time: s.End}
	paths := []string{"model.blocks.*.mlp.fc.weight", "model.blocks.*.mlp.proj.weight", "encoder.fc.weight", `local "decoder".fc.bias of main() (main.py:40)`}
	for _, path := range paths {
		h := ledger.Held{Holder: ledger.Holder{Path: path, Found: true}}
		w.Held = append(w.Held, h)
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Stack < 3 {
			continue
		}
		first := 0
		if x.Stack == 3 {
			first = 2
		}
		for k, n := range []uint64{x.LiveBytes - x.LiveBytes/4, x.LiveBytes / 4} {
			x.Holders = append(x.Holders, ledger.SiteHolder{Holder: first + k, Bytes: n})
			h := &w.Held[first+k]
			h.Bytes, h.Storages, h.Driver = h.Bytes+n, h.Storages+1, h.Driver+n
			h.Parts[modelpart.Weight] += n
		}
	}
	s.Walks = []ledger.Walked{w}
	return s
}
