// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	RunHidden(os.Args)
	if len(os.Args) == 2 && os.Args[1] == ambient {
		runWithAmbient()
		os.Exit(0)
	}
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
	if !r.Tell("oom", Source{1, 1}, map[string]int{"pid": 42}) || r.Tell("leak", Source{1, 1}, 1) {
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
	r.Tell("oom", Source{1, 1}, 1)
	r.Tell("oom", Source{1, 1}, 2)
	for range 2 { // the second one runs although the first one hung
		if got := <-results; !strings.Contains(got.Error, "killed after") || got.Output != "started\n" {
			t.Errorf("%+v", got)
		}
	}
}

// A process that runs out of memory in a loop, and a user who starts such programs, leave runs to
// others.
func TestALoopLeavesRunsForOthers(t *testing.T) {
	r, results := start(t, Options{Commands: map[string]string{"oom": "exit 3"}, Limit: 6})
	told := map[uint32]int{} // by user
	tell := func(pid, user uint32) {
		if r.Tell("oom", Source{pid, user}, "x") {
			told[user]++
			if got := <-results; got.Error != "exit status 3" {
				t.Errorf("%+v", got)
			}
		}
	}
	for range 20 {
		tell(1, 1)
	}
	if told[1] != 2 {
		t.Errorf("one process has %d of 6 runs", told[1])
	}
	for pid := range uint32(20) {
		tell(100+pid, 1)
	}
	if tell(2, 2); told[1] != 3 || told[2] != 1 {
		t.Errorf("the user of the loop has %d of 6 runs, the other process %d", told[1], told[2])
	}
	if r.Skipped() != 41-4 {
		t.Errorf("skipped %d, want 37", r.Skipped())
	}
}

func TestAQueueOfOneUsersEventsTakesThoseOfAnother(t *testing.T) {
	r, _ := start(t, Options{Commands: map[string]string{"oom": "sleep 1000"}, Limit: 1000, Timeout: time.Hour})
	big := strings.Repeat("x", maxInput-10) // fills the pipe to the helper
	n := 0
	for pid := range uint32(100) {
		if r.Tell("oom", Source{pid, 1}, big) {
			n++
		}
	}
	if n >= 100 || !r.Tell("oom", Source{200, 2}, 1) {
		t.Errorf("%d events of one user were taken, and none of another", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Close(ctx)
}

// A user who may trace has ambient capabilities. The commands have none, in no set.
func TestACommandHasNoCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("ambient capabilities need root")
	}
	program := exec.Command("/proc/self/exe", ambient)
	program.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE},
	}
	out, err := program.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := ""
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		want += set + ":\t0000000000000000\n"
	}
	if string(out) != want+"unreadable\n" {
		t.Errorf("the command has\n%s", out)
	}
}

// ambient is the argument with which the test program runs a command with its capabilities.
const ambient = "with-ambient-capabilities"

func runWithAmbient() {
	done := make(chan Result, 1)
	r, err := Start(Options{
		Commands: map[string]string{"oom": "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status; cat /etc/shadow 2>/dev/null || echo unreadable"},
		Limit:    1, Timeout: 10 * time.Second, Self: "/proc/self/exe", Done: func(x Result) { done <- x },
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	r.Tell("oom", Source{1, 1}, 1)
	fmt.Print((<-done).Output)
	r.Close(context.Background())
}

func TestLongOutputIsCut(t *testing.T) {
	r, results := start(t, Options{Commands: map[string]string{"oom": `head -c 100000 /dev/zero | tr '\0' '\377'`}, Limit: 1})
	r.Tell("oom", Source{1, 1}, 1)
	if got := <-results; len(got.Output) > 4*maxOutput || got.Error != "" {
		t.Errorf("%d bytes, %s", len(got.Output), got.Error)
	}
}

func TestClosingEndsTheRunner(t *testing.T) {
	r, _ := start(t, Options{Commands: map[string]string{"oom": "sleep 1000"}, Limit: 1, Timeout: time.Hour})
	r.Tell("oom", Source{1, 1}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Close(ctx)
	if r.Tell("oom", Source{1, 1}, 2) {
		t.Error("an event after the end is told")
	}
	var none *Runner
	none.Close(ctx)
	if none.Tell("oom", Source{}, 1) || none.Skipped() != 0 {
		t.Error("a Runner without commands does something")
	}
}
