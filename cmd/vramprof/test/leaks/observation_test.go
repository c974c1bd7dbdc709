// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// observation is the input of the verdict: the books of one batch, and its stacks.
type observation struct {
	Programs []observed
	Snapshot *ledger.Snapshot
	Frames   []frame
	Stacks   map[uint64][]int // indices of Frames, leaf first
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

func observationOf(tr *tracer.Tracer, list []*running) *observation {
	o := &observation{Snapshot: tr.Snapshot(), Stacks: map[uint64][]int{}}
	for _, r := range list {
		o.Programs = append(o.Programs, observed{*r.program, r.PIDs, r.late})
	}
	o.Snapshot.Host, o.Snapshot.Wall = "host", time.Time{}
	for i := range o.Snapshot.Processes {
		p := &o.Snapshot.Processes[i]
		p.Exe = withoutRoot(p.Exe)
	}
	numbers := map[frame]int{}
	for i := range o.Snapshot.Sites {
		id := o.Snapshot.Sites[i].Stack
		if _, known := o.Stacks[id]; known {
			continue
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
	return o
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
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
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
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return list, json.NewDecoder(z).Decode(&list)
}
