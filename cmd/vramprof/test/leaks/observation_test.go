// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// observation is the input of the verdict: the books of one batch at several moments, and its
// stacks.
type observation struct {
	Programs []observed
	Moments  []moment
	Frames   []frame
	Stacks   map[uint64][]int // indices of Frames, leaf first

	excerpt *excerpt // while it is not stored
}

// moment is the state of the books after all programs have run for some time.
type moment struct {
	Seconds  int
	Snapshot *ledger.Snapshot
}

// observed is one program of an observation.
type observed struct {
	program
	PIDs []uint32
	Late bool // the tracer started after it
}

// frame is a callstack.Frame without addresses, which differ between runs.
type frame struct {
	Function        string
	SystemName      string `json:",omitempty"`
	File            string `json:",omitempty"`
	Line, StartLine int    `json:",omitempty"`
	Path            string `json:",omitempty"` // of the mapping
	Python          bool   `json:",omitempty"`
	Inlined         bool   `json:",omitempty"`
	Mark            bool   `json:",omitempty"`
}

func observationOf(tr *tracer.Tracer, list []*running, moments []moment) *observation {
	o := &observation{Moments: moments, Stacks: map[uint64][]int{}}
	for _, r := range list {
		o.Programs = append(o.Programs, observed{*r.program, r.PIDs, r.late})
	}
	numbers := map[frame]int{}
	for _, m := range moments {
		s := m.Snapshot
		s.Host, s.Wall = "host", time.Time{}
		for i := range s.Processes {
			s.Processes[i].Exe = withoutRoot(s.Processes[i].Exe)
		}
		for i := range s.Sites {
			s.Sites[i].History = nil // the verdict does not need it
			o.addStack(s.Sites[i].Stack, tr, numbers)
		}
	}
	return o
}

func (o *observation) addStack(id uint64, tr *tracer.Tracer, numbers map[frame]int) {
	if _, known := o.Stacks[id]; known {
		return
	}
	o.Stacks[id] = nil
	for _, f := range tr.Stack(id) {
		key := frame{f.Function, f.SystemName, withoutRoot(f.File), f.Line, f.StartLine, "", f.Python, f.Inlined, f.Mark}
		if f.Mapping != nil {
			key.Path = withoutRoot(f.Mapping.Path)
		}
		n, known := numbers[key]
		if !known {
			n = len(o.Frames)
			numbers[key], o.Frames = n, append(o.Frames, key)
		}
		o.Stacks[id] = append(o.Stacks[id], n)
	}
}

// withoutRoot removes this machine's paths from what is stored.
func withoutRoot(path string) string {
	if rest, ok := strings.CutPrefix(path, root+"/"); ok {
		return "/src/" + rest
	}
	return path
}

// Stack returns the frames of a stack, leaf first.
func (o *observation) Stack(id uint64) (list []callstack.Frame) {
	for _, n := range o.Stacks[id] {
		f := &o.Frames[n]
		full := callstack.Frame{Function: f.Function, SystemName: f.SystemName, File: f.File, Line: f.Line, StartLine: f.StartLine,
			Python: f.Python, Inlined: f.Inlined, Mark: f.Mark}
		if f.Path != "" {
			full.Mapping = &callstack.Mapping{Path: f.Path}
		}
		list = append(list, full)
	}
	return list
}

func store(path string, list []*observation) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(16<<20))
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(list); err != nil {
		return err
	}
	return z.Close()
}

func load(path string) (list []*observation, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return list, json.NewDecoder(z).Decode(&list)
}
