// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// program is a running program; next continues it at a wait.
type program struct {
	*exec.Cmd
	t     *testing.T
	out   *bufio.Reader
	input io.WriteCloser
}

func start(t *testing.T, env []string, path string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(path, args...), t: t}
	p.Env, p.Stderr = env, os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.input, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return p
}

// until reads lines up to the first that begins with begin.
func (p *program) until(begin string) string {
	p.t.Helper()
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%s: no line %q: %v", p.Path, begin, err)
		}
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line)
		}
	}
}

func (p *program) next() { fmt.Fprintln(p.input) }

// load is one measurement of events; perSecond 0 means as fast as possible.
type load struct {
	threads, perSecond int
	tensors            bool
}

func (l load) String() string {
	what, rate := "driver calls", "as fast as possible"
	if l.tensors {
		what = "tensors, every one"
	}
	if l.perSecond > 0 {
		rate = thousands(l.perSecond) + " events/s"
	}
	return fmt.Sprintf("events of %s, %s, %d threads", what, rate, l.threads)
}

func loads() (list []load) {
	for _, tensors := range []bool{false, true} {
		for _, perSecond := range longer([]int{100_000, 0}, []int{10_000, 50_000, 100_000, 200_000, 400_000, 0}) {
			for _, threads := range longer([]int{2}, []int{1, 2, 8}) {
				list = append(list, load{threads, perSecond, tensors})
			}
		}
	}
	return list
}

// run generates the events. It returns their number, as counted by the program, and how many
// seconds they took.
func (l load) run(t *testing.T, fake fakecuda.Dir, seconds int) (made uint64, took float64, p *played) {
	t.Helper()
	env := fake.Env(t, 1, 64<<30)
	var target *program
	if l.tensors {
		script := filepath.Join(t.TempDir(), "script")
		text := fmt.Sprintf("alloc a 512\nready\nwait\nrate %d %d %d\nwait\n", l.threads, seconds, l.perSecond)
		if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		target = start(t, append(env, fake.Torch("2.6")), fake.Program("tensors_c"), script)
	} else {
		target = start(t, env, fake.Program("bench_c"), "cuda", "10", "0", "--wait", "--hold", "--paths", "64", "--live", "1",
			"--seconds", fmt.Sprint(seconds), "--threads", fmt.Sprint(l.threads), "--rate", fmt.Sprint(l.perSecond/2/l.threads))
	}
	target.until("ready ")
	s := record(t, env, "-p", fmt.Sprint(target.Process.Pid), "--sample", "0").ready()
	target.next()
	took = float64(seconds)
	if l.tensors {
		var nanoseconds uint64
		if _, err := fmt.Sscanf(target.until("rate "), "rate %d %d", &made, &nanoseconds); err != nil {
			t.Fatal(err)
		}
		took = float64(nanoseconds) / 1e9
	} else {
		if _, err := fmt.Sscanf(target.until("pairs "), "pairs %d", &made); err != nil {
			t.Fatal(err)
		}
		made *= 2
	}
	p = s.stop().played()
	target.next()
	return made, took, p
}

func TestEveryEventIsBookedOrCountedAsLost(t *testing.T) {
	needRoot(t)
	fake := fakecuda.Build(t)
	for _, l := range loads() {
		made, took, p := l.run(t, fake, longer(1, 10))
		booked, lost := p.allocEvents+p.freeEvents, p.snapshot.Stats.Lost
		uncounted := int64(made) - int64(booked) - int64(lost)
		results.add(t, l.String(), fmt.Sprintf("%s, %s a second", thousands(made), thousands(int(float64(made)/took))),
			fmt.Sprintf("%s lost per million, %s uncounted", thousands(lost*1_000_000/max(1, made)), thousands(uncounted)))
		if uncounted != 0 {
			t.Errorf("%v: %d made, %d booked, %d counted as lost", l, made, booked, lost)
		}
		if l.tensors {
			l.checkTotals(t, p, made)
		}
	}
}

// checkTotals checks that the kernel's own totals are right even if the ring lost events.
func (l load) checkTotals(t *testing.T, p *played, made uint64) {
	t.Helper()
	at := slices.IndexFunc(p.snapshot.Tensors, func(x ledger.Tensors) bool { return x.Device >= 0 })
	if at < 0 {
		t.Fatalf("%v: no totals of tensors", l)
	}
	if got := p.snapshot.Tensors[at]; got.AllocObjects != made/2 || got.LiveObjects != 0 {
		t.Errorf("%v: the totals are %+v, want %d tensors, none live", l, got, made/2)
	}
}
