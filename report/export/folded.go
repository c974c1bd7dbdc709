// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Sample selects which bytes of a snapshot are weighed; each value is a sample type of the pprof
// profile.
type Sample uint8

const (
	InUse     Sample = iota // inuse_space: live bytes of GPUs
	Allocated               // alloc_space: all that was ever allocated since the attach, freed or not
	Host                    // host_space: live page-locked memory, tensors in shared memory and managed memory
)

// FoldedOptions are options of Folded.
type FoldedOptions struct {
	Sample Sample
	Roots  bool // two frames at the root of each stack: "python3 [4242]", "cuda:0"
}

// Folded writes one line for each stack, root first, sorted: "main;train (train.py:42);cudaMalloc
// 1048576". The weights are bytes. As in the profile, native code has simple names, and stacks have
// no frames of PyTorch and CUDA below the code that called them, but for the one that the profile's
// label "callee" has. What no stack has is a line of its mark: "[before attach: pytorch cached]
// 4096". Below tensors from before the attach are the paths of their holders, as far as a walk
// found them: "[before attach: pytorch allocated];__main__;model;weight 4096".
//
// The shares are those of the pprof profile, each byte in one line.
func Folded(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o FoldedOptions) error {
	sum := make(map[string]uint64)
	for _, x := range heldShares(s, shares(s, o.Sample)) {
		var list []callstack.Frame
		for _, name := range slices.Backward(x.path) {
			list = append(list, callstack.Frame{Function: name, Mark: true})
		}
		if x.mark != "" {
			list = append(list, callstack.Frame{Function: x.mark, Mark: true})
		}
		if x.site != nil {
			visible := frames.Visible(st, x.site.Stack, x.site.API)
			below, callee := frames.Leaf(visible)
			if callee != "" {
				list = append(list, callstack.Frame{Function: callee})
			}
			list = append(list, visible[below:]...)
		}
		text := foldedStack(list)
		if o.Roots {
			kind := ledger.Device
			if x.site != nil {
				kind = x.site.Kind
			} else if x.device == ledger.CPUDevice {
				kind = ledger.Tensor
			}
			text = foldedName(format.Process(&s.Processes[x.process])) + ";" + format.Device(x.device, kind) + ";" + text
		}
		sum[text] += uint64(x.bytes)
	}
	b := bufio.NewWriter(w)
	for _, text := range slices.Sorted(maps.Keys(sum)) {
		fmt.Fprintf(b, "%s %d\n", text, sum[text])
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write folded stacks: %w", err)
	}
	return nil
}

// foldedStack returns the stack root first; list is leaf first.
func foldedStack(list []callstack.Frame) string {
	var b strings.Builder
	for i := len(list) - 1; i >= 0; i-- {
		b.WriteString(foldedName(frameText(&list[i])))
		if i > 0 {
			b.WriteByte(';')
		}
	}
	return b.String()
}

// foldedName takes from a frame what separates frames: g++ writes "f() [with T = int; U = long]".
func foldedName(name string) string { return strings.ReplaceAll(name, ";", ",") }

// share is what one line or segment shows: of a site, a mark, or both.
type share struct {
	process int
	device  int32
	uuid    string
	mark    string
	site    *ledger.Site
	plane   string
	bytes   int64
	older   bool     // tensors that no event gave out
	path    []string // of their holder, root first
}

// heldShares divides tensors from before the attach by holder.
func heldShares(s *ledger.Snapshot, list []share) []share {
	kept := report.KeptBy(s)
	out := make([]share, 0, len(list))
	for _, x := range list {
		var parts []report.HeldShare
		if x.older {
			parts = kept[x.process].Divide(s, &report.Holding{Mark: x.mark, Process: x.process, Device: x.device, UUID: x.uuid, Live: x.bytes})
		}
		for i := range parts {
			part := x
			if part.bytes = int64(parts[i].Bytes); parts[i].Line != nil {
				part.path = parts[i].Line.Frames
			}
			out = append(out, part)
		}
		if len(parts) == 0 {
			out = append(out, x)
		}
	}
	return out
}

// shares are those of a sample that are not 0.
func shares(s *ledger.Snapshot, sample Sample) []share {
	var list []share
	for _, h := range report.Holdings(s) {
		x := share{process: h.Process, device: h.Device, uuid: h.UUID, mark: h.Mark, site: h.Site, plane: h.Plane, bytes: h.Live, older: h.IsNameless()}
		switch {
		case sample == Allocated:
			x.bytes = allocated(&h)
		case h.Plane == report.PlaneAsleep || h.Apart() != (sample == Host):
			continue
		}
		if x.bytes != 0 {
			list = append(list, x)
		}
	}
	return list
}

// allocated is what a site ever allocated; segments have their tensors instead, and imported memory
// has its owner.
func allocated(h *report.Holding) int64 {
	if h.Site == nil || h.Plane == report.PlaneCache || h.Plane == report.PlaneAsleep || h.Site.Kind == ledger.Imported {
		return 0
	}
	return int64(min(h.Site.AllocBytes, 1<<62))
}
