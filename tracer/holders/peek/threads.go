// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	maxTasks   = 4096
	maxStacks  = 4 << 20  // bytes of all stacks
	stackRoom  = 64 << 20 // a mapping that is larger is no stack
	guardRoom  = 1 << 20
	arenaStart = 64 << 20 // malloc's arenas begin at a multiple of it
)

// stackPointers returns those of the threads that wait in the kernel. A thread that runs keeps its
// own to itself.
func (p *Process) stackPointers() (pointers []uint64) {
	tasks, err := os.ReadDir(p.proc("task"))
	if err != nil {
		return nil
	}
	for _, task := range tasks[:min(len(tasks), maxTasks)] {
		text, err := os.ReadFile(p.proc(fmt.Sprintf("task/%s/syscall", task.Name())))
		if err != nil {
			continue
		}
		if sp, ok := parseSyscall(string(text)); ok {
			pointers = append(pointers, sp)
		}
	}
	return pointers
}

// parseSyscall returns the stack pointer of "0 0x3 0x7f10 0x400 0x0 0x0 0x0 0x7ffd10 0x7f20": the
// number of the call, arguments, the stack pointer, the program counter. It says "running" of a
// thread that runs.
func parseSyscall(text string) (uint64, bool) {
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return 0, false
	}
	sp, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-2], "0x"), 16, 64)
	return sp, err == nil && sp > 1<<16 && sp < AddressEnd
}

// LiveStacks returns the parts of the threads' stacks that are in use: from the stack pointer on,
// and of threads that ran all that is resident.
func (c *Copy) LiveStacks() (stacks []Span) {
	var known []uint64 // ends
	for _, sp := range c.pointers {
		if r, ok := regionAt(c.regions, sp); ok && r.Own() && !slices.Contains(known, r.End) {
			known = append(known, r.End)
			stacks = append(stacks, Span{sp &^ 7, r.End})
		}
	}
	for i, r := range c.regions {
		if slices.Contains(known, r.End) || r.Path != "[stack]" && (i == 0 || !isStack(c.regions[i-1], r)) {
			continue
		}
		from := r.End
		for from > r.Start && r.End-from < maxStacks && c.Page(from-PageSize) != nil {
			from -= PageSize
		}
		if from < r.End {
			stacks = append(stacks, Span{from, r.End})
		}
	}
	return cutStacks(stacks)
}

// cutStacks bounds all stacks together.
func cutStacks(stacks []Span) []Span {
	left := uint64(maxStacks)
	for i := range stacks {
		stacks[i].End = stacks[i].Start + min(stacks[i].Bytes(), left)
		left -= stacks[i].Bytes()
	}
	return stacks
}

// isStack reports whether a mapping can be a thread's stack: anonymous, behind pages that may not
// be touched.
func isStack(guard, r Region) bool {
	return r.Own() && r.Path == "" && r.End-r.Start <= stackRoom && r.Start%arenaStart != 0 &&
		guard.End == r.Start && !guard.Readable && !guard.Writable && guard.End-guard.Start <= guardRoom
}
