// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// startFlood starts flood_c as a user.
func startFlood(t *testing.T, program string, env []string, user uint32, stacks, live int) *target {
	t.Helper()
	for _, v := range env {
		if shm, ok := strings.CutPrefix(v, "FAKECUDA_SHM="); ok {
			_ = os.Chmod(shm, 0o666)
		}
	}
	cmd := exec.Command(program, fmt.Sprint(stacks), fmt.Sprint(live))
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	p := startCommand(t, cmd)
	p.expectReady()
	return p
}

// peakOf tracks the peak resident memory of a process until it exits.
func peakOf(pid int) (peak func() uint64) {
	var most atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil || !strings.Contains(string(text), "VmHWM") {
				return
			}
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
					if kib, err := strconv.ParseUint(fields[1], 10, 50); err == nil {
						most.Store(kib << 10)
					}
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return func() uint64 { <-done; return most.Load() }
}

// TestFloodLeavesAnotherUsersJobExact: processes of one user create far more sites and live
// allocations than fit into memory, beside a job of another user.
func TestFloodLeavesAnotherUsersJobExact(t *testing.T) {
	dir := setup(t)
	const limit, stacks, live = 176 << 20, 30_000, 300_000
	good := startWellBehaved(t, dir)
	var floods []*target
	args := []string{"-p", fmt.Sprint(good.pid())}
	for range 3 {
		p := startFlood(t, dir.Program("flood_c"), dir.Env(t, 1, 64<<30), 65534, stacks, live)
		floods = append(floods, p)
		args = append(args, "-p", fmt.Sprint(p.pid()))
	}
	s := startRecord(t, dir.Env(t, 1, 8<<30), append([]string{"-f", "pprof", "-f", "capture", "--max-memory", fmt.Sprint(limit)}, args...)...).ready()
	peak := peakOf(s.cmd.Process.Pid)
	for _, p := range floods {
		p.next()
	}
	good.half()
	for _, p := range floods {
		p.expect("done")
	}
	good.done()
	s.stop()
	if most := peak(); most > limit/10*11 {
		t.Errorf("vramprof used up to %d MiB, want at most %d MiB", most>>20, limit>>20)
	} else {
		t.Logf("vramprof used up to %d MiB of %d", most>>20, limit>>20)
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(s.stdout.String()+s.stderr.String(), "tracing ended early") {
		t.Errorf("the session ended before it was stopped: exit code %d", code)
	}

	snapshot := replay(t, openCapture(t, s.capture()))
	var honest, flooded ledger.Site
	var marked, evicted uint64
	for _, x := range snapshot.Sites {
		switch p := &snapshot.Processes[x.Process]; {
		case int(p.PID) == good.pid():
			honest.LiveBytes += x.LiveBytes
			honest.AllocObjects += x.AllocObjects
			honest.AllocBytes += x.AllocBytes
			if x.Stack == 0 || x.Evicted != 0 || x.Crowded != 0 || len(p.Beyond) != 0 || p.Lost != 0 {
				t.Errorf("the honest job: %+v of %+v", x, p)
			}
		default:
			flooded.AllocObjects += x.AllocObjects
			marked += x.Crowded
			evicted += x.Evicted
		}
	}
	if honest.LiveBytes != 123 || honest.AllocObjects != 902 || honest.AllocBytes != 300*71000+5000+300*1000+123 {
		t.Errorf("the honest job has %+v", honest)
	}
	if marked == 0 || evicted == 0 {
		t.Errorf("of the flood's %d allocations, %d are marked as merged sites, %d as missing", flooded.AllocObjects, marked, evicted)
	}
	var counts [2][3]uint64 // of the profile, by process: the flood, the honest job
	complete := true
	for _, x := range s.profile().Sample {
		if len(x.NumLabel["pid"]) == 0 {
			continue
		}
		who := 0
		if int(x.NumLabel["pid"][0]) == good.pid() {
			who = 1
			complete = complete && len(x.Label["incomplete"]) == 0
		}
		counts[who][0] += uint64(x.Value[0])
		counts[who][1] += uint64(x.Value[1])
		counts[who][2] += uint64(x.Value[3])
	}
	if !complete || counts[1] != [3]uint64{902, honest.AllocBytes, 123} || counts[0][0] != flooded.AllocObjects {
		t.Errorf("the profile has %v (honest job complete: %v), the capture %d of the flood", counts, complete, flooded.AllocObjects)
	}
	for _, p := range floods {
		p.next()
		p.Wait()
	}
	good.end()
}
