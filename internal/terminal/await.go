// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// quiet is after how long without a word a command names what it waits for.
const quiet = time.Second

// Await shows on a terminal what a command waits for, if the user has seen nothing new for a
// second, with the seconds since. end clears the line. Elsewhere nothing is shown.
//
// The newest of several is shown. An empty text shows none of them.
func Await(w io.Writer, text string) (end func()) {
	return AwaitText(w, func(since time.Duration) string {
		if text == "" {
			return ""
		}
		return fmt.Sprintf("%s, %ds", text, int(since.Seconds()))
	})
}

// AwaitText is Await for a text that changes.
func AwaitText(w io.Writer, text func(since time.Duration) string) (end func()) {
	return awaitOn(w, quiet, text)
}

func awaitOn(w io.Writer, after time.Duration, text func(since time.Duration) string) (end func()) {
	l := lineOf(w)
	if l == nil {
		return func() {}
	}
	return l.await(after, text)
}

// Advance is AwaitText for work that reports how much of it is done, after quiet without a word.
// The line is cleared when all is done, and by end. Progress is nil if w is no terminal.
func Advance(w io.Writer, quiet time.Duration, text func(done, of int64) string) (progress func(done, of int64), end func()) {
	l := lineOf(w)
	if l == nil {
		return nil, func() {}
	}
	return advanceOn(l, quiet, text)
}

func advanceOn(l *line, quiet time.Duration, text func(done, of int64) string) (progress func(done, of int64), end func()) {
	var now atomic.Pointer[[2]int64]
	stop := func() {}
	return func(done, of int64) {
		begins := now.Swap(&[2]int64{done, of}) == nil
		switch {
		case done >= of:
			stop()
			now.Store(nil)
		case begins:
			stop = l.await(quiet, func(time.Duration) string {
				if at := now.Load(); at != nil {
					return text(at[0], at[1])
				}
				return ""
			})
		}
	}, func() { stop() }
}
