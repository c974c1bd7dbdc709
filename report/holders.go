// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/holders"
)

// Holders is what one or two walks of a process found: who keeps its tensors.
type Holders struct {
	PID    uint32
	Comm   string          // name of the process
	Before *holders.Result // an earlier walk; nil: only one was made
	Result *holders.Result
	Device string // "cuda:0": only this device; "": all
}

// Lines returns the holders on the chosen devices, the largest first.
func (h *Holders) Lines() []holders.Line {
	var list []holders.Line
	for _, l := range h.Result.Lines() {
		if h.Device == "" || l.Device == h.Device {
			list = append(list, l)
		}
	}
	return list
}

// Grown returns the lines that grew between the walks, the fastest first.
func (h *Holders) Grown() []holders.Growth {
	if h.Before == nil {
		return nil
	}
	var list []holders.Growth
	for _, g := range holders.Grown(h.Before, h.Result) {
		if h.Device == "" || g.Device == h.Device {
			list = append(list, g)
		}
	}
	return list
}

// Trees returns the holders on each of the chosen devices as a tree, the device with the most bytes
// first.
func (h *Holders) Trees() []*HolderNode {
	sums := map[string]uint64{}
	for _, l := range h.Lines() {
		sums[l.Device] += l.Bytes
	}
	trees := make([]*HolderNode, 0, len(sums))
	for device := range sums {
		trees = append(trees, HolderTree(h.Result, h.Before, device))
	}
	slices.SortFunc(trees, func(a, b *HolderNode) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return trees
}

// Between returns the time between the walks, in tenths of a second; 0 if there was only one.
func (h *Holders) Between() time.Duration {
	if h.Before == nil {
		return 0
	}
	return h.Result.At.Sub(h.Before.At).Round(100 * time.Millisecond)
}

// Minutes returns the minutes between the walks; 0 if there was only one.
func (h *Holders) Minutes() float64 {
	if h.Before == nil {
		return 0
	}
	return h.Result.At.Sub(h.Before.At).Minutes()
}

// HoldersSum adds up lines.
type HoldersSum struct{ Bytes, Storages, Found, InMotion uint64 }

// SumHolders adds up lines; Found are the bytes that a path in Python holds.
func SumHolders(list []holders.Line) (sum HoldersSum) {
	for i := range list {
		sum.Bytes += list[i].Bytes
		sum.Storages += list[i].Storages
		sum.InMotion += list[i].InMotion
		if list[i].Found {
			sum.Found += list[i].Bytes
		}
	}
	return sum
}

// ContainerText describes the innermost containers of a line: "list of 1,204", "4 dicts with 12
// entries"; "" without one.
func ContainerText(l *holders.Line) string {
	switch {
	case l.Containers == 0:
		return ""
	case l.Entries < 0:
		return words.Count(uint64(l.Containers), l.Container)
	case l.Containers == 1:
		return fmt.Sprintf("%s of %s", l.Container, humanize.Comma(int64(l.Entries)))
	}
	return fmt.Sprintf("%s with %s", words.Count(uint64(l.Containers), l.Container), words.Count(uint64(l.Entries), "entry"))
}

// HolderProblems returns what the walks could not read, and doubts about their figures.
func (h *Holders) HolderProblems() []string {
	list := append([]string(nil), h.Result.Problems...)
	if n := SumHolders(h.Lines()).InMotion; n > 0 {
		list = append(list, words.Count(n, "storage")+" or their holders changed while they were read: their lines may be wrong")
	}
	if h.Result.Automatic == holders.AutomaticOff && h.Result.Loose > 0 {
		list = append(list, "Python's garbage collector does not run by itself: objects in cycles stay until gc.collect()")
	}
	return list
}
