// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// process is a started program: one of the benchmark's, or a tool. lines delivers the lines of both
// outputs.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	all   strings.Builder // the lines read so far
	pipe  *os.File
	began time.Time
	once  sync.Once
	err   error
}

// start starts a program. The caller must call stop or kill.
func start(env []string, name string, args ...string) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(name, args...), lines: make(chan string), pipe: read, began: time.Now()}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = write, write
	// A terminal's Ctrl-C must reach only this program, which ends the others.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	write.Close()
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.read()
	return p, nil
}

// read reads lines of at most 1 MiB and buffers all of them, so that the process never blocks on a
// full pipe.
func (p *process) read() {
	defer close(p.lines)
	read := make(chan string)
	go func() {
		defer close(read)
		scanner := bufio.NewScanner(p.pipe)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			read <- scanner.Text()
		}
		io.Copy(io.Discard, p.pipe)
	}()
	var queue []string
	for read != nil || len(queue) > 0 {
		var out chan string
		var first string
		if len(queue) > 0 {
			out, first = p.lines, queue[0]
		}
		select {
		case line, ok := <-read:
			if ok {
				queue = append(queue, line)
			} else {
				read = nil
			}
		case out <- first:
			queue = queue[1:]
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// expect returns the first line with this prefix.
func (p *process) expect(prefix string, limit time.Duration) (string, error) {
	timeout := time.After(limit)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("%s ended without %q: %s", p.cmd.Args[0], prefix, p.tail())
			}
			p.all.WriteString(line + "\n")
			if strings.HasPrefix(line, prefix) {
				return line, nil
			}
		case <-timeout:
			return "", fmt.Errorf("%s: no %q within %s: %s", p.cmd.Args[0], prefix, limit, p.tail())
		}
	}
}

// ask writes a line and returns the words of the answer, "served WORD…".
func (p *process) ask(limit time.Duration, question string) ([]string, error) {
	if _, err := io.WriteString(p.in, question+"\n"); err != nil {
		return nil, err
	}
	line, err := p.expect("served", limit)
	return strings.Fields(strings.TrimPrefix(line, "served")), err
}

// tail returns the end of the output.
func (p *process) tail() string {
	text := strings.TrimSpace(p.all.String())
	return text[max(0, len(text)-600):]
}

func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

// total returns the CPU time of a process that has exited.
func (p *process) total() time.Duration {
	if s := p.cmd.ProcessState; s != nil {
		return s.UserTime() + s.SystemTime()
	}
	return 0
}

// wait waits for the process to exit and returns its output.
func (p *process) wait(limit time.Duration) (string, error) {
	timeout := time.After(limit)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.reap()
				return p.all.String(), p.err
			}
			p.all.WriteString(line + "\n")
		case <-timeout:
			p.kill()
			return p.all.String(), fmt.Errorf("%s did not end within %s", p.cmd.Args[0], limit)
		}
	}
}

// stop sends a signal and waits for the process to exit.
func (p *process) stop(s syscall.Signal, limit time.Duration) (string, error) {
	p.signal(s)
	return p.wait(limit)
}

// kill kills a process, which may already have exited.
func (p *process) kill() {
	syscall.Kill(-p.pid(), syscall.SIGKILL)
	for range p.lines {
	}
	p.reap()
}

func (p *process) reap() {
	p.once.Do(func() {
		p.err = p.cmd.Wait()
		p.pipe.Close()
		var exit *exec.ExitError
		if errors.As(p.err, &exit) && exit.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			p.err = nil // killed by us
		}
	})
}

// cost is what a process has used so far.
type cost struct {
	cpu     time.Duration // user and system, in steps of 10 ms
	rss     uint64        // peak, bytes
	maps    uint64        // memory of its BPF maps, bytes
	running bool
}

// costOf reads /proc. The cost of an exited process is zero.
func costOf(pid int) (c cost) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	_, after, ok := strings.Cut(string(stat), ") ") // a name may contain spaces
	fields := strings.Fields(after)
	if err != nil || !ok || len(fields) < 13 {
		return c
	}
	user, _ := strconv.ParseUint(fields[11], 10, 64)
	system, _ := strconv.ParseUint(fields[12], 10, 64)
	c = cost{cpu: time.Duration(user+system) * 10 * time.Millisecond, running: true}
	status, _ := os.ReadFile(dir + "/status")
	c.rss = 1024 * field(string(status), "VmHWM:")
	infos, _ := os.ReadDir(dir + "/fdinfo")
	seen := make(map[uint64]bool) // a map may have several descriptors
	for _, info := range infos {
		text, _ := os.ReadFile(dir + "/fdinfo/" + info.Name())
		if id := field(string(text), "map_id:"); id != 0 && !seen[id] {
			seen[id] = true
			c.maps += field(string(text), "memlock:")
		}
	}
	return c
}

// field returns the number after a name at the start of a line: "VmHWM:    1234 kB".
func field(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				n, _ := strconv.ParseUint(words[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// attachedPrograms counts a process's perf events that already run a BPF program.
func attachedPrograms(pid int) (n int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		to, _ := os.Readlink(dir + "/" + f.Name())
		fd, err := strconv.ParseUint(f.Name(), 10, 32)
		if err != nil || !strings.HasPrefix(to, "anon_inode:[perf_event]") {
			continue
		}
		query := struct { // union bpf_attr, task_fd_query
			pid, fd, flags, length uint32
			buffer                 uint64
			program, kind          uint32
			offset, address        uint64
		}{pid: uint32(pid), fd: uint32(fd)}
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_TASK_FD_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
		if errno == 0 && query.program != 0 {
			n++
		}
	}
	return n
}
