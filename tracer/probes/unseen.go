// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/libraries"
)

// maxUnseenTold: where processes come and go all the time, a line for each would hide all else.
const maxUnseenTold = 8

// Unseen counts files that a process called before they were probed. Any goroutine may call its
// methods.
type Unseen struct {
	mu            sync.Mutex // guards what follows, and is held for no call to others
	told, further int
	longest       time.Duration // of the further ones
}

// Note returns the text for one file, and "" for a further one.
func (u *Unseen) Note(l libraries.Mapped, late time.Duration) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.told < maxUnseenTold {
		u.told++
		return fmt.Sprintf("process %d called %s unseen in at most its first %v", l.PID, l.Name, late)
	}
	u.further++
	u.longest = max(u.longest, late)
	return ""
}

// Text returns what is to be said of the further files, and "" without any.
func (u *Unseen) Text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.further == 0 {
		return ""
	}
	return fmt.Sprintf("likewise, %d further files were called unseen in at most the first %v of processes", u.further, u.longest)
}
