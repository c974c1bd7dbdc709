// SPDX-License-Identifier: Apache-2.0

package realtorch

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Point is a job's own report at one point, from PyTorch's counters. testdata/realtorch/jobs.py
// documents each field.
type Point struct {
	Point   string
	Step    int
	PID     int
	Devices []Device
	Pinned  uint64
	Lines   []Line
	// Only for purpose.py: bytes by what they are for.
	Purposes map[string]uint64
	Modules  map[string]uint64 // at "forward", of what autograd saves: bytes by the innermost module that was called
}

// Device is what PyTorch and the driver report for one device, as counted by the job.
type Device struct {
	Device              int
	Allocated, Reserved uint64
	Free, Total         uint64

	// Only for attach.py: what is left of the segments of point "old", and how much of it no tensor
	// uses.
	OlderReserved uint64 `json:"older_reserved"`
	OlderFree     uint64 `json:"older_free"`

	// Of the other segments: how many have both tensors and free memory, this memory, and the bytes
	// of those without tensors. Each mapping of expandable segments counts as one.
	Held, Stuck, Idle uint64
	// Likewise of all segments.
	AllHeld  uint64 `json:"all_held"`
	AllStuck uint64 `json:"all_stuck"`
	AllIdle  uint64 `json:"all_idle"`
}

// Line is the memory that one call path of the job holds on one device. Frames read "train.py:41
// step". Without --history, and on threads of a backward pass, there are none.
type Line struct {
	Device                 int
	Own                    []string // the job's own frames, innermost first
	Leaf                   string   // the innermost frame of the whole stack
	Bytes, Blocks, Reached uint64
}

// At sums the memory allocated at a line ("train.py:41") or by its callees.
func (p Point) At(site string) (sum Line) {
	for _, l := range p.Lines {
		if slices.ContainsFunc(l.Own, func(frame string) bool { return strings.HasPrefix(frame, site+" ") }) {
			sum.Bytes += l.Bytes
			sum.Blocks += l.Blocks
			sum.Reached += l.Reached
		}
	}
	return sum
}

// Job is a running job that stops at each of its points.
type Job struct {
	*exec.Cmd
	t      testing.TB
	stdin  io.WriteCloser
	points chan Point
	output strings.Builder // all other output; complete when points is closed
}

const patience = 2 * time.Minute // from one point to the next

// Start runs a job with --wait. The job is killed when the test ends.
func (r Root) Start(t testing.TB, env []string, script string, args ...string) *Job {
	t.Helper()
	j := &Job{Cmd: r.Command(env, script, append(args, "--wait")...), t: t, points: make(chan Point)}
	stdin, err := j.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.stdin, j.Stdout, j.Stderr = stdin, end, end
	err = j.Cmd.Start()
	end.Close()
	if err != nil {
		t.Fatal(err)
	}
	go j.read(output)
	t.Cleanup(func() {
		j.Process.Kill()
		for range j.points { // until the end of the output
		}
		if j.ProcessState == nil {
			j.Cmd.Wait()
		}
	})
	return j
}

func (j *Job) read(from io.ReadCloser) {
	defer close(j.points)
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadString('\n')
		var p Point
		if strings.HasPrefix(text, `{"point"`) && json.Unmarshal([]byte(text), &p) == nil {
			j.points <- p
		} else {
			j.output.WriteString(text)
		}
		if err != nil {
			return
		}
	}
}

// Next waits for the job to stop at its next point and checks the point's name.
func (j *Job) Next(name string) Point {
	j.t.Helper()
	select {
	case p, ok := <-j.points:
		if !ok {
			j.t.Fatalf("the job ended before point %q:\n%s", name, j.output.String())
		}
		if p.Point != name {
			j.t.Fatalf("the job is at point %q, want %q", p.Point, name)
		}
		return p
	case <-time.After(patience):
		j.t.Fatalf("no point %q within %v", name, patience)
	}
	panic("unreachable")
}

// Go resumes the job from its current point.
func (j *Job) Go() {
	j.t.Helper()
	if _, err := io.WriteString(j.stdin, "\n"); err != nil {
		j.t.Fatal(err)
	}
}

// Finish runs the job to its end, past all points, and returns the rest of its output.
func (j *Job) Finish() (string, error) {
	j.stdin.Close()
	for range j.points {
	}
	err := j.Cmd.Wait()
	return j.output.String(), err
}
