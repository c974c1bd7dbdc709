// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is a process to be traced.
type target struct {
	pid     int
	library string // what bpftrace, memleak and the floor probe
}

// tool is one of those that are compared.
type tool struct {
	name string // in the samples
	// start returns when its probes are in place, as far as it tells; ended it has written its files into dir.
	start func(b *bench, dir string, targets []target) (*process, error)
	// read makes its answer of what it printed and wrote, for the plane that it was to trace; nil: it has none.
	read func(printed, dir, plane string) (answer, error)
	// through: it knows names of malloc only, so its programs allocate through a library that has them; and one process.
	through bool
}

const attachLimit = 90 * time.Second

// attach starts a tool and waits until it says that it traces.
func (b *bench) attach(prefix string, env []string, name string, args ...string) (*process, error) {
	p, err := start(env, name, args...)
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, p)
	if _, err := p.expect(prefix, attachLimit); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func noTool(*bench, string, []target) (*process, error) { return nil, nil }

// floor: empty probes on the instructions that vramprof probes.
func floor(b *bench, _ string, targets []target) (*process, error) {
	libraries := []string{b.lib("libcudart.so.12"), b.lib("libcuda.so.1")}
	if b.torchC10 != "" && targets[0].library == b.torchC10 {
		libraries = []string{b.torchC10}
	}
	return b.attach("floor: ready", nil, b.floor, libraries...)
}

// vramprof with more options: a mode.
func vramprof(options ...string) func(*bench, string, []target) (*process, error) {
	return func(b *bench, dir string, targets []target) (*process, error) {
		args := append([]string{"record", "--force", "--no-oom", "-o", filepath.Join(dir, "vramprof.pb.gz")}, options...)
		for _, t := range targets {
			args = append(args, "-p", strconv.Itoa(t.pid))
		}
		return b.attach("vramprof: tracing", nil, b.vramprof, args...)
	}
}

// bpftrace with a script.
func bpftrace(script func(target) string) func(*bench, string, []target) (*process, error) {
	return func(b *bench, dir string, targets []target) (*process, error) {
		file := filepath.Join(dir, "script.bt")
		text := script(targets[0])
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
		// Room for every live block (the default is 4,096), and names also of programs that have ended.
		env := []string{"BPFTRACE_MAP_KEYS_MAX=1000000", "BPFTRACE_CACHE_USER_SYMBOLS=1"}
		p, err := b.attach("ready", env, "bpftrace", file)
		if err != nil {
			return nil, err
		}
		// The interval that says so may have been attached before the probes.
		probes := strings.Count(text, "probe:") + strings.Count(text, "interval:")
		return p, b.await(p, probes)
	}
}

// Live bytes by stack: size and stack on entry, frees matched by address. As bpftrace cannot
// go through a map, the sums are kept up to date by each call.
func liveBytes(alloc, free string) func(target) string {
	return func(t target) string {
		return fmt.Sprintf(`uprobe:%[1]s:%[2]s { @out[tid] = arg0; @size[tid] = arg1; @where[tid] = ustack; }
uretprobe:%[1]s:%[2]s /@out[tid]/ {
	if (retval == 0) {
		$p = *(uint64 *)@out[tid];
		@allocs = count();
		@bytes[$p] = @size[tid];
		@stacks[$p] = @where[tid];
		@live[@where[tid]] = sum((int64)@size[tid]);
	}
	delete(@out[tid]); delete(@size[tid]); delete(@where[tid]);
}
uprobe:%[1]s:%[3]s /@bytes[arg0]/ {
	@live[@stacks[arg0]] = sum(-(int64)@bytes[arg0]);
	delete(@bytes[arg0]); delete(@stacks[arg0]);
}
interval:ms:300 { printf("ready\n"); }
END { clear(@bytes); clear(@stacks); clear(@size); clear(@out); clear(@where); }
`, t.library, alloc, free)
	}
}

// What PyTorch's allocator reports: address, and size, negative where it is freed.
// Of one process, as for vramprof: others may train with the same library.
func liveTensors(t target) string {
	return fmt.Sprintf(`uprobe:%s:"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE" /pid == %d/ {
	if ((int64)arg1 > 0) {
		@allocs = count();
		@bytes[arg0] = arg1;
		@stacks[arg0] = ustack;
		@live[ustack] = sum((int64)arg1);
	} else if (@bytes[arg0]) {
		@live[@stacks[arg0]] = sum(-(int64)@bytes[arg0]);
		delete(@bytes[arg0]); delete(@stacks[arg0]);
	}
}
interval:ms:300 { printf("ready\n"); }
END { clear(@bytes); clear(@stacks); }
`, t.library, t.pid)
}

// memleak (0.26) has 20 probes, entry and return, in one library, and prints what is outstanding at the end of an interval only.
const memleakProbes = 20

func memleak(b *bench, _ string, targets []target) (*process, error) {
	p, err := start(b.memleakEnv, "memleak-bpfcc", "-p", strconv.Itoa(targets[0].pid), "-O", targets[0].library,
		"-o", "0", "-T", "100000", "1")
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, p)
	// It says nothing when they are all there.
	return p, b.await(p, memleakProbes)
}

// begin starts a tool. A peer that does not start is missing from then on: ok is false.
func (b *bench) begin(t tool, dir string, targets []target) (p *process, ok bool, err error) {
	p, err = t.start(b, dir, targets)
	if err == nil {
		return p, true, nil
	}
	if peer, _, _ := strings.Cut(t.name, "-"); peer != "bpftrace" && peer != "memleak" {
		return nil, false, err
	}
	b.miss(t.name, err.Error())
	return nil, false, nil
}

// await returns when a tool's probes run its programs. Where it has fewer than
// expected, as another version may: when no more come.
func (b *bench) await(p *process, probes int) error {
	last, since := 0, time.Now()
	for began := time.Now(); last < probes && (last == 0 || time.Since(since) < 3*time.Second); {
		if n := attachedPrograms(p.pid()); n != last {
			last, since = n, time.Now()
		}
		if time.Since(began) > attachLimit || !costOf(p.pid()).running {
			p.kill()
			return fmt.Errorf("%s attached no probes: %s", p.cmd.Args[0], p.tail())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// end ends a tool; what it printed is on disk then too, as it is all that some give.
func (b *bench) end(t tool, p *process, dir string) (printed string, took time.Duration, err error) {
	if p == nil {
		return "", 0, nil
	}
	if t.name == "memleak" {
		if err := b.lastList(p); err != nil {
			return "", 0, err
		}
	}
	began := time.Now()
	printed, err = p.stop(syscall.SIGINT, 120*time.Second)
	took = time.Since(began)
	if t.name == "memleak" { // Python's exit status after Ctrl-C
		err = nil
	}
	if err != nil {
		return printed, took, fmt.Errorf("%s: %w: %s", t.name, err, p.tail())
	}
	os.Remove(filepath.Join(dir, "script.bt"))
	if files, _ := os.ReadDir(dir); len(files) == 0 {
		err = os.WriteFile(filepath.Join(dir, "printed"), []byte(printed), 0o644)
	}
	return printed, took, err
}

// lastList returns when memleak has printed a list that it began after the call, and has begun another.
func (b *bench) lastList(p *process) error {
	for began := time.Now(); time.Since(began) < time.Second; { // those that nobody has read yet
		if _, err := p.expect("[", time.Minute); err != nil {
			return err
		}
	}
	for range 2 {
		if _, err := p.expect("[", time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// sizeOf adds up the files of a folder.
func sizeOf(dir string) (bytes int64) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// readPprof has Go's own tool read the profile.
func readPprof(_, dir, plane string) (answer, error) {
	out, err := exec.Command("go", "tool", "pprof", "-raw", filepath.Join(dir, "vramprof.pb.gz")).Output()
	if err != nil {
		return answer{}, fmt.Errorf("go tool pprof: %w", err)
	}
	return parsePprof(string(out), plane), nil
}

func readBpftrace(printed, _, _ string) (answer, error) { return parseBpftrace(printed), nil }
func readMemleak(printed, _, _ string) (answer, error)  { return parseMemleak(printed), nil }
