// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Walk walks the stored image of a Python with tensors. It took a quarter of a second at that time.
func Walk(t testing.TB, image string, at time.Time) *holders.Result {
	t.Helper()
	f, err := os.Open(filepath.Join("../../tracer/holders/testdata", image))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := peek.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	r, err := holders.Walk(context.Background(), m, holders.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.At, r.Times = at, holders.Times{Total: 250 * time.Millisecond}
	return r
}

// TrainingWalk is what a walk of a training job finds: a model of some layers with gradients and
// the state of its optimizer, outputs that a function collects, kept losses, and what the step
// uses.
func TrainingWalk(at time.Time, layers, outputs, losses int) *holders.Result {
	r := &holders.Result{Python: "3.13.5", Objects: 250_000, Threads: 4, At: at, Times: holders.Times{Total: 250 * time.Millisecond}}
	address := uint64(0x7d0000000000)
	keep := func(bytes uint64, root holders.Root, steps ...holders.Step) {
		address += bytes
		r.Storages = append(r.Storages, holders.Storage{Address: address, Bytes: bytes, DeviceType: 1, Holder: holders.NewHolder(root, steps...)})
	}
	step := func(kind holders.StepKind, name string) holders.Step {
		return holders.Step{Kind: kind, Name: name, Class: "object", Size: -1}
	}
	main := holders.Root{Kind: holders.RootModule, Name: "__main__"}
	for i := range layers {
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			path := []holders.Step{step(holders.StepAttr, "model"), step(holders.StepChild, "layers"), step(holders.StepChild, string(rune('0'+i))),
				step(holders.StepChild, "attention"), step(holders.StepChild, name), step(holders.StepChild, "weight")}
			keep(64<<20, main, path...)
			keep(64<<20, main, append(path[:len(path):len(path)], step(holders.StepGrad, ""))...)
		}
		for _, name := range []string{"exp_avg", "exp_avg_sq"} {
			keep(256<<20, main, step(holders.StepAttr, "optimizer"), step(holders.StepAttr, "state"), step(holders.StepKey, ""), step(holders.StepKey, name))
		}
	}
	evaluate := holders.Root{Kind: holders.RootLocal, Name: "outputs", Function: "evaluate", File: "eval.py", Line: 41}
	for range outputs {
		keep(24<<20, evaluate, step(holders.StepIndex, ""), step(holders.StepKey, "logits"))
	}
	for range losses {
		kept := []holders.Step{step(holders.StepAttr, "trainer"), step(holders.StepAttr, "losses"), step(holders.StepIndex, "")}
		keep(512, main, kept...)
		keep(40<<20, main, append(kept, step(holders.StepGraph, ""))...)
	}
	keep(128<<20, main, step(holders.StepAttr, "trainer"), step(holders.StepAttr, "ema"))
	keep(96<<20, holders.Root{Kind: holders.RootNative, Classes: "in use by the running step"})
	return r
}
