// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/libraries"
)

// maxUnseenTold limits the warnings: with many short processes they would hide all others.
const maxUnseenTold = 8

// Unseen counts the libraries that were in use before they were probed. Any goroutine may call its
// methods, which do not wait.
type Unseen struct {
	mu            sync.Mutex    // guards the fields below
	told, further int           // libraries with and without a warning of their own
	longest       time.Duration // of the further ones
}

// Note counts a library that was in use for up to late before it was probed. It returns a warning,
// or "" after the first few.
func (u *Unseen) Note(l libraries.Mapped, late time.Duration) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told < maxUnseenTold {
		u.told++
		return fmt.Sprintf("process %d: %s was in use for up to %v before being probed", l.PID, l.Name, late)
	}
	u.further++
	u.longest = max(u.longest, late)
	return ""
}

// Text returns a warning about the libraries for which Note returned none, or "".
func (u *Unseen) Text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.further == 0 {
		return ""
	}
	return fmt.Sprintf("%d more libraries were in use for up to %v before being probed", u.further, u.longest)
}
