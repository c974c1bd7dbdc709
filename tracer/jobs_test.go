// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"
)

// A worker that hangs in a job, or never comes to one, showed nowhere.
func TestTheAgeOfTheOldestJobCountsWhileItWaitsAndWhileItIsDone(t *testing.T) {
	j := newJobs()
	later := time.Now().Add(time.Hour)
	age := func() int { return int(j.age(later).Hours() + 0.5) }
	expect := func(when string, want int) {
		t.Helper()
		if got := age(); got != want {
			t.Errorf("%s: %d h, want %d h", when, got, want)
		}
	}
	expect("without a job", 0)
	j.add(job{jobLoad, 7})
	expect("with a job of the loader", 0)
	j.add(job{jobScan, 7})
	expect("while a job waits", 1)
	j.todo[jobScan][7] = j.todo[jobScan][7].Add(-time.Hour)
	j.add(job{jobScan, 7})
	expect("when it is added once more", 2)
	if n, ok := j.take(); !ok || n != (job{jobScan, 7}) {
		t.Fatalf("took %+v, %v", n, ok)
	}
	expect("while it is done", 2)
	j.end()
	expect("after it", 0)
	j.begin(later.Add(-3 * time.Hour))
	expect("while a timer's work is done", 3)
}
