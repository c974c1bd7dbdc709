// SPDX-License-Identifier: Apache-2.0

package ledger

// sitesAtOnce is how many sites StacksInUse looks at in one call, about 5 ms: more only if one
// process has more.
const sitesAtOnce = 4096

// StacksInUse calls add with the ids of all stacks that the books refer to, some more than once: of
// some processes at a time, since nothing is booked meanwhile. The first call is with 0, each
// further one with the result of the call before, until that is 0. A process that begins between
// two calls may be left out.
func (l *Ledger) StacksInUse(from int, add func(id uint64)) (next int) {
	if from == 0 {
		l.sharedStacks(add)
	}
	looked := 0
	for n := from; n < len(l.procs); n++ {
		if looked > sitesAtOnce {
			return n
		}
		looked += 1 + l.stacksOf(&l.procs[n], uint32(n), add)
	}
	return 0
}

// sharedStacks adds the stacks in tables of all processes.
func (l *Ledger) sharedStacks(add func(id uint64)) {
	for key := range l.failures {
		add(key.stack)
	}
	for _, x := range l.exports {
		add(x.owner.stack)
	}
	for key, list := range l.owners {
		add(key.stack)
		for _, o := range list {
			add(o.stack)
		}
	}
}

// stacksOf adds the stacks of a process, and returns how many sites it has.
func (l *Ledger) stacksOf(p *process, number uint32, add func(id uint64)) (sites int) {
	for _, n := range p.sites {
		add(l.sites[n].stack)
	}
	for i := range p.objects.sites {
		add(p.objects.sites[i].stack)
	}
	if p.oom != nil {
		add(p.oom.Stack)
	}
	sites = len(p.sites) + len(p.objects.sites)
	for u := (unpacker{in: p.archived, apis: l.apis.names, groups: map[uint64]*cohorts{}}); len(u.in) > 0; sites++ {
		s := u.site(number)
		add(s.stack)
	}
	return sites
}
