// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// churn starts and ends short CUDA processes: of stacks of their own, with libraries of their own
// as containers have, and forked by dozens.
type churn struct {
	t      *testing.T
	dir    fakecuda.Dir
	env    []string
	folder string
	ended  atomic.Int64
	failed atomic.Int64
}

// run starts processes one after the other until ctx ends.
func (c *churn) run(ctx context.Context, worker uint64) {
	random := rand.New(rand.NewPCG(worker, 7))
	for n := 0; ctx.Err() == nil; n++ {
		env := c.env
		folder := ""
		if n%4 == 0 {
			folder = filepath.Join(c.folder, fmt.Sprintf("%d-%d", worker, n))
			env = append(slices.Clone(env), "LD_LIBRARY_PATH="+folder)
			c.copyLibraries(folder)
		}
		switch n % 5 {
		case 0:
			c.start(env, 21, "storm_c", "forks", "20", "4")
		case 1, 2:
			c.start(env, 1, "storm_c", "once")
		default:
			c.start(env, 1, "calls_c", "--random", fmt.Sprint(random.Uint32()), "200")
		}
		if folder != "" {
			os.RemoveAll(folder)
		}
	}
}

func (c *churn) start(env []string, processes int64, program string, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.dir.Program(program), args...)
	cmd.Env, cmd.Stdin = env, strings.NewReader("\n\n") // two waits at most
	if out, err := cmd.CombinedOutput(); err != nil {
		c.failed.Add(1)
		c.t.Logf("%s %v: %v: %.200s", program, args, err, out)
	}
	c.ended.Add(processes)
}

// copyLibraries makes other files of the fake CUDA: what is behind the end makes them differ.
func (c *churn) copyLibraries(folder string) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		c.t.Error(err)
	}
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
		text, err := os.ReadFile(c.dir.Lib(name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), append(text, folder...), 0o755)
		}
		if err != nil {
			c.t.Error(err)
		}
	}
}

// serveSample is what serve has at one time.
type serveSample struct {
	at     time.Duration
	ended  int64
	rss    int64 // bytes
	maps   int64 // bytes of its BPF maps
	tables int   // unwind tables in the kernel, of all tracers of the machine
	files  int
}

func (s serveSample) String() string {
	return fmt.Sprintf("| %s | %d | %.1f | %.1f | %d | %d |", s.at.Round(time.Second), s.ended, float64(s.rss)/1e6, float64(s.maps)/1e6, s.tables, s.files)
}

// unwindTables counts the maps of that name.
func unwindTables() (n int) {
	for id, err := ebpf.MapGetNextID(0); err == nil; id, err = ebpf.MapGetNextID(id) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && info.Name == "unwind_table" {
			n++
		}
		m.Close()
	}
	return n
}

// TestServeStaysAsLargeAsItIs runs serve under short processes for VRAMPROF_SERVE_SOAK: 10m. What a
// process leaves goes after --keep and at most four minutes, so the level is compared after six.
func TestServeStaysAsLargeAsItIs(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("VRAMPROF_SERVE_SOAK"))
	if err != nil {
		t.Skip("run by scripts/soak-serve.sh")
	}
	dir := setupAlone(t)
	c := &churn{t: t, dir: dir, env: dir.Env(t, 1, 64<<30), folder: t.TempDir()}
	x := startServe(t, c.env, "--keep", "20s", "--holders", "off", "--archive-size", "64MiB")
	x.waitFor(`"msg":"tracing"`)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wait sync.WaitGroup
	for worker := range uint64(3) {
		wait.Go(func() { c.run(ctx, worker) })
	}
	began := time.Now()
	var samples []serveSample
	sample := func() {
		v := vitalsOf(x.cmd.Process.Pid)
		samples = append(samples, serveSample{time.Since(began), c.ended.Load(), v.rss, v.kernel, unwindTables(), v.files})
	}
	for every := max(length/100, time.Second); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-time.After(every):
			sample()
		}
	}
	wait.Wait()
	metrics := x.get("/metrics")
	x.cmd.Process.Signal(unix.SIGTERM)
	x.wait()
	x.checkCalm()
	report := "\n| time | processes | RSS, MB | kernel maps, MB | unwind tables | descriptors |\n|---|---|---|---|---|---|\n"
	for i := 0; i < len(samples); i += max(len(samples)/20, 1) {
		report += samples[i].String() + "\n"
	}
	t.Log(report)
	for line := range bytes.Lines(metrics) {
		if counted.Match(line) {
			t.Logf("%s", bytes.TrimSpace(line))
		}
	}
	if n := c.failed.Load(); n > 0 {
		t.Errorf("%d of %d programs failed", n, c.ended.Load())
	}
	for _, grown := range growth(samples, length) {
		t.Error(grown)
	}
}

var counted = regexp.MustCompile(`^vramprof_(events|lost_events|forgotten_processes|missing_stacks|truncated_stacks|own_memory|kernel_memory|processes)[a-z_]*[{ ]`)

// growth compares the last fifth of a run with that which ends at three fifths. It allows a tenth
// more, and a dozen more of what is counted: some processes run at every moment.
func growth(samples []serveSample, length time.Duration) (grown []string) {
	n := len(samples)
	early, late := samples[n*2/5:n*3/5], samples[n*4/5:]
	for name, of := range map[string]func(serveSample) int64{
		"RSS":           func(s serveSample) int64 { return s.rss },
		"kernel maps":   func(s serveSample) int64 { return s.maps },
		"unwind tables": func(s serveSample) int64 { return int64(s.tables) },
		"descriptors":   func(s serveSample) int64 { return int64(s.files) },
	} {
		mean := func(list []serveSample) (sum int64) {
			for _, s := range list {
				sum += of(s)
			}
			return sum / int64(max(len(list), 1))
		}
		if before, after := mean(early), mean(late); after > before+max(before/10, 12) {
			grown = append(grown, fmt.Sprintf("%s: %d on average before three fifths of %v, %d at the end", name, before, length, after))
		}
	}
	return grown
}
