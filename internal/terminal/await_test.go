// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// onTerminal returns a terminal of 40 columns, and what was written to it since the last call.
func onTerminal(t *testing.T) (*shared, func() string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	s := &shared{write, &line{out: write, width: 40}}
	return s, func() string {
		s.line.mu.Lock() // nobody writes meanwhile
		defer s.line.mu.Unlock()
		fmt.Fprint(write, "\x00")
		var b [4096]byte
		n, _ := read.Read(b[:])
		return strings.TrimSuffix(string(b[:n]), "\x00")
	}
}

func TestWhatTakesLongIsNamedAndCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wrote := onTerminal(t)
		expect := func(what, want string) {
			t.Helper()
			synctest.Wait()
			if got := wrote(); got != want {
				t.Errorf("%s: wrote %q, want %q", what, got, want)
			}
		}
		end := Await(w, "reading process 42")
		time.Sleep(quiet - 1)
		expect("before a second has passed", "")
		time.Sleep(time.Millisecond + redraw)
		expect("after a second", Wipe+"reading process 42, 1s")
		time.Sleep(time.Second)
		expect("after two", Wipe+"reading process 42, 2s")
		inner := Await(w, "naming functions")
		expect("something closer", Wipe+"naming functions, 0s")
		fmt.Fprintln(w, "a message")
		expect("a message", Wipe+"a message\n")
		time.Sleep(quiet - 1)
		expect("less than a second after it", "")
		time.Sleep(time.Millisecond + redraw)
		expect("a second after it", Wipe+"naming functions, 1s")
		inner()
		inner()
		expect("that is done", Wipe)
		time.Sleep(quiet + redraw)
		expect("the outer one again", Wipe+"reading process 42, 4s")
		pause := Await(w, "")
		expect("the terminal is another program's", Wipe)
		time.Sleep(time.Minute)
		expect("and stays so", "")
		pause()
		fmt.Fprint(w, "half a line")
		time.Sleep(time.Minute)
		expect("a line of somebody else is not wiped", "half a line")
		fmt.Fprintln(w)
		time.Sleep(quiet + redraw)
		expect("until it ends", "\n"+Wipe+"reading process 42, 125s")
		end()
		end()
		expect("the end", Wipe)
		time.Sleep(time.Minute)
		expect("after the end", "")
		Await(w, "a name that is longer than this terminal is wide")
		time.Sleep(quiet + redraw)
		expect("a long text", Wipe+"a name that is longer than this termina…")
		w.line.waits = nil
		close(w.line.stop)
	})
}

func TestProgressOfWorkIsShownWhileItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, wrote := onTerminal(t)
		progress, end := advanceOn(w.line, quiet, func(done, of int64) string { return fmt.Sprintf("%d of %d", done, of) })
		step := func(after time.Duration, done int64, want string) {
			t.Helper()
			progress(done, 200)
			time.Sleep(after)
			synctest.Wait()
			if got := wrote(); got != want {
				t.Errorf("%d of 200: wrote %q, want %q", done, got, want)
			}
		}
		step(900*time.Millisecond, 1, "")
		step(0, 200, "")
		step(quiet+redraw, 60, Wipe+"60 of 200")
		step(redraw, 80, Wipe+"80 of 200")
		step(redraw, 200, Wipe)
		step(quiet+redraw, 10, Wipe+"10 of 200")
		end()
		end()
		if got := wrote(); got != Wipe {
			t.Errorf("at the end it wrote %q", got)
		}
	})
}

func TestNothingIsAwaitedWhereThereIsNoTerminal(t *testing.T) {
	var b bytes.Buffer
	out, errors := Shared(&b, &b)
	Await(errors, "nothing")()
	if progress, end := Advance(out, 0, func(int64, int64) string { return "x" }); progress != nil {
		t.Error("progress is shown")
	} else {
		end()
	}
	_, slave := openPTY(t)
	out, errors = Shared(slave, slave)
	if !Is(out) || !Is(errors) || File(errors) != slave {
		t.Errorf("a terminal is none: %v, %v", out, errors)
	}
	if errors = Plain(errors); Is(errors) {
		t.Error("what programs read is a terminal")
	}
	if end := awaitOn(errors, 0, func(time.Duration) string { t.Error("asked for a text"); return "" }); b.Len() > 0 {
		t.Errorf("wrote %q", b.String())
	} else {
		end()
	}
}
