// SPDX-License-Identifier: Apache-2.0

package unwind

import "slices"

// maxProblems limits the list of problems.
const maxProblems = 16

// problem is a sentence about a process, or about none with pid 0.
type problem struct {
	pid  uint32
	text string
}

// problem adds a text to Problems.
func (u *Unwinder) problem(text string) { u.problemOf(0, text) }

// problemOf adds a text to Problems until Evict finds that the process has ended.
func (u *Unwinder) problemOf(pid uint32, text string) {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	if x := (problem{pid, text}); len(u.problems) < maxProblems && !slices.Contains(u.problems, x) {
		u.problems = append(u.problems, x)
	}
}
