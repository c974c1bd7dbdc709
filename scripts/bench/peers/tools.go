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

// target is a process to trace.
type target struct {
	pid     int
	library string // what bpftrace, memleak and the floor probe
}

// tool is one of the compared tools.
type tool struct {
	name string // in the samples
	// start returns once the tool's probes are attached, as far as the tool reports it. When the
	// tool ends, it has written its files to dir.
	start func(b *bench, dir string, targets []target) (*process, error)
	// read parses the tool's output and files for the plane that it traced. nil: nothing to parse.
	read func(printed, dir, plane string) (answer, error)
	// through: the tool only knows names of malloc and traces one process. Its programs allocate
	// through a library with those names.
	through bool
}

const attachLimit = 90 * time.Second

// attach starts a tool and waits for the message that it traces.
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

// floor attaches empty probes to the instructions that vramprof probes after the first seconds.
func floor(b *bench, _ string, targets []target) (*process, error) {
	libraries := []string{b.lib("libcuda.so.1")}
	if b.torchC10 != "" && targets[0].library == b.torchC10 {
		libraries = []string{b.torchC10}
	}
	return b.attach("floor: ready", nil, b.floor, libraries...)
}

// vramprof returns a mode of vramprof with more options.
func vramprof(options ...string) func(*bench, string, []target) (*process, error) {
	return func(b *bench, dir string, targets []target) (*process, error) {
		args := append([]string{"record", "--force", "--no-oom", "-o", filepath.Join(dir, "vramprof.pb.gz")}, options...)
		for _, t := range targets {
			args = append(args, "-p", strconv.Itoa(t.pid))
		}
		return b.attach("vramprof: tracing", nil, b.vramprof, args...)
	}
}

// bpftrace returns a mode of bpftrace with a script.
func bpftrace(script func(target) string) func(*bench, string, []target) (*process, error) {
	return func(b *bench, dir string, targets []target) (*process, error) {
		file := filepath.Join(dir, "script.bt")
		text := script(targets[0])
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
		// Space for every live allocation (the default is 4,096), and names of programs that have
		// exited.
		env := []string{"BPFTRACE_MAP_KEYS_MAX=1000000", "BPFTRACE_CACHE_USER_SYMBOLS=1"}
		p, err := b.attach("ready", env, "bpftrace", file)
		if err != nil {
			return nil, err
		}
		// The interval probe that prints the message may be attached before the uprobes.
		probes := strings.Count(text, "probe:") + strings.Count(text, "interval:")
		return p, b.await(p, probes)
	}
}

// liveBytes returns a script that sums live bytes by stack. It takes size and stack on entry, and
// matches frees by address. bpftrace cannot iterate over a map, so each call updates the sums.
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

// liveTensors returns a script for what PyTorch's allocator reports: address and size, negative if
// freed. It traces one process, as vramprof does: others may train with the same library.
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

// memleak (0.26) has 20 probes, entry and return, in one library. It prints outstanding allocations
// only at the end of an interval.
const memleakProbes = 20

func memleak(b *bench, _ string, targets []target) (*process, error) {
	p, err := start(b.memleakEnv, "memleak-bpfcc", "-p", strconv.Itoa(targets[0].pid), "-O", targets[0].library,
		"-o", "0", "-T", "100000", "1")
	if err != nil {
		return nil, err
	}
	b.processes = append(b.processes, p)
	// memleak prints nothing when all probes are attached.
	return p, b.await(p, memleakProbes)
}

// begin starts a tool. If a peer does not start, it is missing from then on and ok is false.
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

// await returns when a tool's probes run its programs. If the tool has fewer probes than expected,
// as another version may, it returns when the number stops growing.
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

// end ends a tool and writes its output to disk, for tools that have no other result.
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

// lastList returns when memleak has printed a list that began after the call.
func (b *bench) lastList(p *process) error {
	for began := time.Now(); time.Since(began) < time.Second; { // lines not read yet
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

// sizeOf returns the total size of the files in a folder.
func sizeOf(dir string) (bytes int64) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// readPprof parses the profile with Go's own tool.
func readPprof(_, dir, plane string) (answer, error) {
	out, err := exec.Command("go", "tool", "pprof", "-raw", filepath.Join(dir, "vramprof.pb.gz")).Output()
	if err != nil {
		return answer{}, fmt.Errorf("go tool pprof: %w", err)
	}
	return parsePprof(string(out), plane), nil
}

func readBpftrace(printed, _, _ string) (answer, error) { return parseBpftrace(printed), nil }
func readMemleak(printed, _, _ string) (answer, error)  { return parseMemleak(printed), nil }
