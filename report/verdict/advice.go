// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Advise searches for patterns in a snapshot and its verdicts, which Judge returned. The advice
// about most bytes comes first; advice about as many is in the order of processes.
func Advise(s *ledger.Snapshot, st callstack.Stacks, verdicts []Verdict) []Advice {
	a := adviser{judge: newJudge(s, st), verdicts: verdicts, byProcess: make([][]int, len(s.Processes)), largest: map[int]uint64{}, users: map[string][]int{}, caches: fragmentation.Caches(s, st)}
	for i := range s.Sites {
		p := s.Sites[i].Process
		a.byProcess[p] = append(a.byProcess[p], i)
	}
	for i := range s.Failures {
		if f := &s.Failures[i]; f.Result == outOfMemory {
			a.largest[f.Process] = max(a.largest[f.Process], f.LastBytes)
		}
	}
	for i := range s.Balances {
		a.users[s.Balances[i].UUID] = append(a.users[s.Balances[i].UUID], i)
	}
	for p := range s.Processes {
		a.process(p)
	}
	slices.SortStableFunc(a.list, func(x, y Advice) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return a.list
}

func (a *adviser) process(p int) {
	var devices []int32
	backward := false
	for _, i := range a.byProcess[p] {
		x := &a.s.Sites[i]
		if !slices.Contains(devices, x.Device) {
			devices = append(devices, x.Device)
		}
		backward = backward || isBackward(a.verdicts[i].Object)
	}
	slices.Sort(devices)
	for _, d := range devices {
		a.graphs(p, d, backward)
		a.containers(p, d)
		a.zeroGrad(p, d)
		a.fragmentation(p, d)
	}
	a.pinned(p)
	for _, d := range devices {
		a.checkpointing(p, d)
		a.emptyCache(p, d)
	}
}

// zeroGrad detects gradients that survive steps: zero_grad() is not called, or keeps them.
func (a *adviser) zeroGrad(p int, device int32) {
	kept := uint64(0)
	list := a.sites(p, device, func(x *ledger.Site, v *Verdict) bool {
		if !isBackward(v.Object) || v.Class >= Growing || x.Kind != ledger.Tensor {
			return false
		}
		w := newSeries(x, a.lives[p])
		n := len(w.w)
		if n < 4 || w.lastAlloc() < n-2 {
			return false
		}
		first, all := w.sum(0, max(n/4, 1)), w.sum(0, n)
		if all.windows == 0 || first.bytes < 0.8*all.bytes || first.bytes < 1<<20 {
			return false
		}
		kept += uint64(first.bytes)
		return true
	})
	if len(list) > 0 {
		a.say(ZeroGrad, p, device, list, "gradients live from step to step: call optimizer.zero_grad() in each, without set_to_none=False",
			format.Bytes(kept)+" of the first backward passes were never freed, while further ones ran")
	}
}

// pinned detects growth of page-locked host memory.
func (a *adviser) pinned(p int) {
	var list []int
	for _, i := range a.byProcess[p] {
		if x := &a.s.Sites[i]; x.Kind.OnHost() && a.verdicts[i].Class >= Growing {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(i, k int) int {
		return cmp.Compare(a.verdicts[k].Rate.Value, a.verdicts[i].Rate.Value)
	})
	v := &a.verdicts[list[0]]
	advice := a.say(PinnedGrowth, p, a.s.Sites[list[0]].Device, list, pinnedText(&a.s.Sites[list[0]], v.Object),
		format.Count(uint64(len(list)), "stack")+" of page-locked memory, the first: "+v.Evidence)
	if v.User {
		advice.Line = v.Line
	}
}

// pinnedText returns what to do about page-locked memory that grows, by who locked it.
func pinnedText(x *ledger.Site, object Object) string {
	switch {
	case x.Kind == ledger.Registered:
		return "page-locked memory of the host grows: unregister it (cudaHostUnregister) before it is freed, or register one buffer and use it again"
	case object == objectPinned || object == objectPrefetched:
		return "page-locked memory of the host grows: fill one pinned buffer again and again, and keep no result of pin_memory()"
	}
	return "page-locked memory of the host grows: free it (cudaFreeHost) when it is no longer used, or use one buffer again"
}
