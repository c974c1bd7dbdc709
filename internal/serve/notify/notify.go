// SPDX-License-Identifier: Apache-2.0

// Package notify runs user-configured commands on events, as an unprivileged user.
//
// They run in a helper process that is started before vramprof gives up its privileges, and that
// gives up its own at once: an attacker who takes over vramprof later can have these commands run,
// and no others.
package notify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/ratelimit"
	"github.com/vramprof/vramprof/tracer/sandbox"
)

const (
	// Hidden is the first argument of the helper process.
	Hidden = "run-alerts"

	maxInput  = 256 << 10 // bytes of one event
	maxWait   = 16        // events that wait for the command
	maxOutput = 4 << 10   // bytes of a command's output in the log
)

// Options are the commands, by kind of event, and who runs them.
type Options struct {
	Commands map[string]string // for sh -c
	UID, GID int               // of the commands; 0: those of the caller
	Limit    int               // runs per minute and kind: see ratelimit.Halved
	Timeout  time.Duration     // of one run
	Self     string            // path of this program
	Done     func(Result)      // gets each result from one goroutine; may be nil
}

// Result is how one run ended.
type Result struct {
	Kind   string `json:"kind"`
	Error  string `json:"error,omitempty"`
	Output string `json:"output,omitempty"` // its beginning; untrusted
}

// Runner has events told to the helper process. Its methods may be called from any goroutine, and
// on nil.
type Runner struct {
	options Options
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	events  chan event
	done    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	ended   bool
	limits  map[string]*ratelimit.Limiter
	skipped uint64
	waiting map[uint32]int // events by user
}

// Source is the process that an event is about.
type Source struct{ PID, User uint32 }

type event struct {
	Kind  string          `json:"kind"`
	Input json.RawMessage `json:"input"`

	user uint32
}

// setup is the first line that the helper reads.
type setup struct {
	Commands map[string]string `json:"commands"`
	UID, GID int
	Timeout  time.Duration
}

// Start starts the helper process. It returns nil if there is no command.
func Start(o Options) (*Runner, error) {
	if len(o.Commands) == 0 {
		return nil, nil
	}
	r := &Runner{options: o, events: make(chan event, maxWait), limits: map[string]*ratelimit.Limiter{}, waiting: map[uint32]int{}}
	r.cmd = exec.Command(o.Self, Hidden)
	r.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	r.cmd.Dir = "/"
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the runner of alerts: %w", err)
	}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the runner of alerts: %w", err)
	}
	results := bufio.NewReaderSize(out, 4*maxOutput)
	if err := r.begin(results); err != nil {
		r.stdin.Close()
		_ = r.cmd.Wait()
		return nil, fmt.Errorf("start the runner of alerts: %w", err)
	}
	r.done.Go(r.send)
	r.done.Go(func() { r.hear(results) })
	return r, nil
}

// begin tells the helper its commands, and waits until it has dropped its privileges.
func (r *Runner) begin(results *bufio.Reader) error {
	line, err := json.Marshal(setup{r.options.Commands, r.options.UID, r.options.GID, r.options.Timeout})
	if err != nil {
		return err
	}
	if _, err := r.stdin.Write(append(line, '\n')); err != nil {
		return err
	}
	var first Result
	answer, err := results.ReadBytes('\n')
	if err != nil || json.Unmarshal(answer, &first) != nil {
		return errors.New("it ended")
	}
	if first.Error != "" {
		return errors.New(first.Error)
	}
	return nil
}

// Tell has the command for a kind of event run with input as JSON on its standard input. It never
// waits, and reports whether the command will run: not beyond the limit or the share of the process
// or user that the event is about, and not if there is none.
func (r *Runner) Tell(kind string, about Source, input any) bool {
	if r == nil || r.options.Commands[kind] == "" {
		return false
	}
	text, err := json.Marshal(input)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	if r.limits[kind] == nil {
		r.limits[kind] = ratelimit.New(ratelimit.Halved(r.options.Limit))
	}
	room := len(r.events) < maxWait && r.waiting[about.User] < maxWait/2
	if err != nil || len(text) > maxInput || !room || !r.limits[kind].Allow(time.Now(), about.PID, about.User) {
		r.skipped++
		return false
	}
	r.waiting[about.User]++
	r.events <- event{kind, text, about.User} // there is room
	return true
}

// Skipped returns how many events had no command run, as there were too many.
func (r *Runner) Skipped() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *Runner) send() {
	defer r.stdin.Close()
	for e := range r.events {
		r.mu.Lock()
		if r.waiting[e.user]--; r.waiting[e.user] == 0 {
			delete(r.waiting, e.user)
		}
		r.mu.Unlock()
		line, err := json.Marshal(e)
		if err != nil {
			continue
		}
		if _, err := r.stdin.Write(append(line, '\n')); err != nil {
			return // the helper is gone
		}
	}
}

func (r *Runner) hear(results *bufio.Reader) {
	for {
		line, err := results.ReadBytes('\n')
		if err != nil {
			return
		}
		var x Result
		if json.Unmarshal(line, &x) == nil && r.options.Done != nil {
			r.options.Done(x)
		}
	}
}

// Close ends the helper process after the run that is under way, which it waits for until ctx ends.
func (r *Runner) Close(ctx context.Context) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if !r.ended {
		r.ended = true
		close(r.events)
	}
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = r.cmd.Process.Kill() })
	defer stop()
	r.done.Wait()
	_ = r.cmd.Wait()
}

// RunHidden is the helper process, and exits if args ask for it.
func RunHidden(args []string) {
	if len(args) != 2 || args[1] != Hidden {
		return
	}
	if err := runCommands(os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// runCommands drops privileges and runs a command for each line, until in ends.
func runCommands(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // a command ends with the thread that started it: Pdeathsig
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 2*maxInput)
	results := json.NewEncoder(out)
	var s setup
	if !lines.Scan() {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		return err
	}
	if err := drop(s.UID, s.GID); err != nil {
		return errors.Join(err, results.Encode(Result{Error: err.Error()}))
	}
	if err := results.Encode(Result{}); err != nil {
		return err
	}
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		if err := results.Encode(s.run(e)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// drop becomes another user for good, and gives up all capabilities: those of an ordinary user who
// may trace are ambient, so that the commands would have them. Signals of the terminal are for
// vramprof alone.
func drop(uid, gid int) error {
	if _, err := unix.Setsid(); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("become a session: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if uid != 0 {
		if err := become(uid, gid); err != nil {
			return err
		}
	}
	if err := sandbox.Drop(0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}

func become(uid, gid int) error {
	if err := unix.Setgroups(nil); err != nil {
		return fmt.Errorf("drop the groups of root: %w (it needs CAP_SETGID)", err)
	}
	if err := unix.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("become group %d: %w (it needs CAP_SETGID)", gid, err)
	}
	if err := unix.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("become user %d: %w (it needs CAP_SETUID)", uid, err)
	}
	return nil
}
