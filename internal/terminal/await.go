// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// awaitQuiet is after how long a command names what it waits for.
const awaitQuiet = time.Second

// Await shows on a terminal what a command waits for, if that takes longer than a second, with the
// seconds since. end clears the line. Elsewhere nothing is shown.
func Await(w io.Writer, text string) (end func()) {
	if !Is(w) {
		return func() {}
	}
	return await(w, awaitQuiet, text)
}

func await(w io.Writer, quiet time.Duration, text string) (end func()) {
	begin, stop := time.Now(), make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				if n > 1 {
					fmt.Fprint(w, Wipe)
				}
				return
			case <-time.After(quiet):
				fmt.Fprintf(w, "%s%s, %ds", Wipe, text, int(time.Since(begin).Seconds()))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		shown.Wait()
	})
}
