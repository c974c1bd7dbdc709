// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	RunHidden(os.Args)
	os.Exit(m.Run())
}

const nobody = 65534

// start starts a Runner whose results go into a channel.
func start(t *testing.T, o Options) (*Runner, chan Result) {
	t.Helper()
	results := make(chan Result, 10)
	o.Self, o.Done = "/proc/self/exe", func(x Result) { results <- x }
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	r, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(t.Context()) })
	return r, results
}

func TestACommandGetsTheEventAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	r, results := start(t, Options{Commands: map[string]string{"oom": "id -u; id -g; id -G; cat; pwd; kill -0 $PPID && echo can signal root"}, UID: nobody, GID: nobody, Limit: 2})
	if !r.Tell("oom", map[string]int{"pid": 42}) || r.Tell("leak", 1) {
		t.Fatal("not only the event with a command is told")
	}
	got := <-results
	if want := fmt.Sprintf("%d\n%d\n%d\n{\"pid\":42}\n/\n", nobody, nobody, nobody); got.Output != want+"can signal root\n" || got.Error != "" {
		// The parent of the shell is the helper, which is the same user.
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestACommandThatHangsIsKilledWithItsChildren(t *testing.T) {
	r, results := start(t, Options{Commands: map[string]string{"oom": "sleep 1000 & echo started; wait"}, Limit: 9, Timeout: 300 * time.Millisecond})
	r.Tell("oom", 1)
	r.Tell("oom", 2)
	for range 2 { // the second one runs although the first one hung
		if got := <-results; !strings.Contains(got.Error, "killed after") || got.Output != "started\n" {
			t.Errorf("%+v", got)
		}
	}
}

func TestAtMostSoManyEventsAMinute(t *testing.T) {
	r, results := start(t, Options{Commands: map[string]string{"oom": "exit 3"}, Limit: 2})
	for range 5 {
		r.Tell("oom", "x")
	}
	for range 2 {
		if got := <-results; got.Error != "exit status 3" {
			t.Errorf("%+v", got)
		}
	}
	if r.Skipped() != 3 {
		t.Errorf("skipped %d, want 3", r.Skipped())
	}
	l := limit{most: 1}
	now := time.Now()
	if !l.take(now) || l.take(now.Add(59*time.Second)) || !l.take(now.Add(time.Minute)) {
		t.Error("the limit is not one a minute")
	}
}

func TestLongOutputIsCut(t *testing.T) {
	r, results := start(t, Options{Commands: map[string]string{"oom": `head -c 100000 /dev/zero | tr '\0' '\377'`}, Limit: 1})
	r.Tell("oom", 1)
	if got := <-results; len(got.Output) > 4*maxOutput || got.Error != "" {
		t.Errorf("%d bytes, %s", len(got.Output), got.Error)
	}
}

func TestClosingEndsTheRunner(t *testing.T) {
	r, _ := start(t, Options{Commands: map[string]string{"oom": "sleep 1000"}, Limit: 1, Timeout: time.Hour})
	r.Tell("oom", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Close(ctx)
	if r.Tell("oom", 2) {
		t.Error("an event after the end is told")
	}
	var none *Runner
	none.Close(ctx)
	if none.Tell("oom", 1) || none.Skipped() != 0 {
		t.Error("a Runner without commands does something")
	}
}
