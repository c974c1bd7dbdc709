// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// sitesAtOnce is how many sites StacksInUse looks at in one call, about 5 ms: more only if one
// process has more.
const sitesAtOnce = 4096

// StacksInUse calls add with the ids of all stacks that the books refer to, some more than once: of
// some processes at a time, since nothing is booked meanwhile. The first call is with 0, each
// further one with the result of the call before, until that is 0. A process that begins between
// two calls may be left out.
func (l *Ledger) StacksInUse(from int, add func(id uint64)) (next int) {
	if from == 0 {
		for _, x := range l.exports {
			add(x.owner.stack)
		}
	}
	looked := 0
	// Numbers stay, while places in the list change when processes leave the books.
	at, _ := slices.BinarySearchFunc(l.procs, uint32(from), func(p *process, n uint32) int { return cmp.Compare(p.number, n) })
	for _, p := range l.procs[at:] {
		if looked > sitesAtOnce {
			return int(p.number)
		}
		looked += 1 + p.stacksOf(add)
	}
	return 0
}

// stacksOf adds the stacks of the process, and returns how many sites it has.
func (p *process) stacksOf(add func(id uint64)) (sites int) {
	for s := range p.all() {
		add(s.stack)
	}
	for i := range p.objects.sites {
		add(p.objects.sites[i].stack)
	}
	for key := range p.failures {
		add(key.stack)
	}
	for key, list := range p.owners {
		add(key.stack)
		for _, o := range list {
			add(o.stack)
		}
	}
	if p.oom != nil {
		add(p.oom.Stack)
	}
	sites = len(p.sites) + len(p.objects.sites)
	for s := range p.unpacked() {
		add(s.stack)
		sites++
	}
	return sites
}
