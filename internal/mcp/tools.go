// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tools are the questions. Each is a command with --json that reads and changes nothing.
var tools = []interface{ add(*sdk.Server, *answerer) }{
	question[session]{
		name: "report", title: "Where the GPU's memory is",
		text:      "Returns which lines of code, processes and kinds of memory hold the GPUs' memory, at a moment or as a difference of two. Without a file, asks the running vramprof serve.",
		arguments: session.report,
	},
	question[leaksOf]{
		name: "leaks", title: "Which lines leak",
		text:      "Returns the lines whose memory grows without end, with the evidence, who keeps the memory, and what to change. Without a file, asks the running vramprof serve.",
		arguments: leaksOf.leaks,
	},
	question[purposes]{
		name: "explain", title: "What the memory is for",
		text:      "Returns what each process's GPU memory is for: weights, gradients, optimizer state, activations, caches, libraries, context. It reads a running process without a session, or a capture.",
		arguments: purposes.explain,
	},
	question[replay]{
		name: "whatif", title: "The same job with other settings or changes",
		text:      "Replays PyTorch's allocator as a capture of \"record --for whatif\" or PyTorch's history has it, with other settings or a changed program, and returns the peaks. It refuses what it cannot prove.",
		arguments: replay.whatif,
	},
	question[room]{
		name: "fit", title: "What makes a job fit a GPU",
		text:      "Returns the shortest list of settings and changes with which a recorded job fits a GPU of that size, or that none of them does.",
		arguments: room.fit,
	},
	question[process]{
		name: "holders", title: "Who keeps the tensors",
		text:      "Reads the memory of a running PyTorch process from outside, without stopping it, and returns the Python variables that keep its tensors.",
		arguments: process.holders,
	},
	question[columns]{
		name: "compare", title: "Captures or ranks next to each other",
		text:      "Puts captures, or the processes of one, next to each other line by line, and returns which are unlike the others.",
		arguments: columns.compare,
	},
	question[struct{}]{
		name: "ps", title: "The processes that use CUDA",
		text:      "Returns the processes of this machine that use CUDA, with the GPU memory that the driver reports for each.",
		arguments: func(struct{}) ([]string, error) { return []string{"ps", "--json"}, nil },
	},
}

// question is a tool whose arguments a client sends as In; its fields' tags describe them to the
// client.
type question[In any] struct {
	name, title, text string
	arguments         func(In) ([]string, error)
}

func (q question[In]) add(s *sdk.Server, a *answerer) {
	closed := false
	t := &sdk.Tool{Name: q.name, Title: q.title, Description: q.text, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &closed}}
	sdk.AddTool(s, t, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		arguments, err := q.arguments(in)
		if err != nil {
			return nil, nil, err
		}
		result, err := a.answer(ctx, arguments)
		return result, nil, err
	})
}

type session struct {
	File    string `json:"file,omitempty" jsonschema:"a capture (FILE.vram), a memory snapshot of PyTorch (FILE.pickle) or an archive (a folder); none: the running vramprof serve"`
	View    string `json:"view,omitempty" jsonschema:"summary (the default), tree, table, stats, timeline or cache"`
	At      string `json:"at,omitempty" jsonschema:"the moment: a time since the session began (12m30s), begin, peak, end, or a time of day (2026-11-22 03:12); none: the end, and the list of sessions of an archive"`
	Between string `json:"between,omitempty" jsonschema:"two moments, A,B, for the views stats and timeline: what changed"`
	Process string `json:"process,omitempty" jsonschema:"only the process with this pid or name"`
	Top     int    `json:"top,omitempty" jsonschema:"at most so many of each list, 10 by default"`
}

func (s session) report() ([]string, error) {
	a := arguments{list: []string{"report", "--json"}}
	a.flag("view", s.View)
	a.flag("at", s.At)
	a.flag("between", s.Between)
	a.flag("process", s.Process)
	a.number("top", s.Top)
	return a.fileOrServe(s.File)
}

type leaksOf struct {
	File string `json:"file,omitempty" jsonschema:"a capture; none: the running vramprof serve"`
	At   string `json:"at,omitempty" jsonschema:"the moment at which the capture is judged; none: its end"`
	Top  int    `json:"top,omitempty" jsonschema:"at most so many lines"`
}

func (l leaksOf) leaks() ([]string, error) {
	a := arguments{list: []string{"leaks", "--json"}}
	a.flag("at", l.At)
	a.number("top", l.Top)
	return a.fileOrServe(l.File)
}

type process struct {
	Pid    uint32 `json:"pid" jsonschema:"the process"`
	Device string `json:"device,omitempty" jsonschema:"only tensors on this device: cuda:0, cpu; none: all GPUs"`
	Top    int    `json:"top,omitempty" jsonschema:"at most so many holders"`
}

func (p process) holders() ([]string, error) {
	a := arguments{list: []string{"holders", "--json", "--pid=" + strconv.FormatUint(uint64(p.Pid), 10)}}
	a.flag("device", p.Device)
	a.number("top", p.Top)
	return a.list, a.err
}

type purposes struct {
	Pid  uint32 `json:"pid,omitempty" jsonschema:"a running process; or else file"`
	File string `json:"file,omitempty" jsonschema:"a capture; or else pid"`
	At   string `json:"at,omitempty" jsonschema:"the moment of the capture: 12m30s, peak, end; none: its end"`
}

func (p purposes) explain() ([]string, error) {
	a := arguments{list: []string{"explain", "--json"}}
	a.flag("at", p.At)
	switch {
	case (p.Pid == 0) == (p.File == ""):
		return nil, errors.New("name either a process or a file (pid, file)")
	case p.Pid != 0:
		a.number("pid", int(p.Pid))
	default:
		a.file(p.File)
	}
	return a.list, a.err
}

type replay struct {
	File       string   `json:"file" jsonschema:"a capture of record --for whatif, or a memory snapshot of PyTorch with its history"`
	GPU        string   `json:"gpu,omitempty" jsonschema:"the size of a GPU, such as 24GiB: whether it fits there"`
	Set        []string `json:"set,omitempty" jsonschema:"settings of PYTORCH_CUDA_ALLOC_CONF to try, such as expandable_segments:True"`
	Without    string   `json:"without,omitempty" jsonschema:"FILE:LINE whose memory is not kept"`
	Checkpoint string   `json:"checkpoint,omitempty" jsonschema:"the function whose activations are recomputed"`
	Offload    string   `json:"offload,omitempty" jsonschema:"the function, or FILE:LINE, whose saved activations wait on the host"`
}

func (r replay) whatif() ([]string, error) {
	a := arguments{list: []string{"whatif", "--json"}}
	a.flag("gpu", r.GPU)
	for _, s := range r.Set {
		a.flag("set", s)
	}
	a.flag("without", r.Without)
	a.flag("checkpoint", r.Checkpoint)
	a.flag("offload", r.Offload)
	a.file(r.File)
	return a.list, a.err
}

type room struct {
	File string `json:"file" jsonschema:"a capture of record --for whatif, or a memory snapshot of PyTorch with its history"`
	GPU  string `json:"gpu" jsonschema:"the size of the GPU, such as 24GiB"`
}

func (r room) fit() ([]string, error) {
	a := arguments{list: []string{"fit", "--json"}}
	a.flag("gpu", r.GPU)
	a.file(r.File)
	return a.list, a.err
}

type columns struct {
	Files []string `json:"files" jsonschema:"captures, memory snapshots of PyTorch or profiles; one capture is compared by its processes; FILE@MOMENT is a moment of a capture"`
	At    string   `json:"at,omitempty" jsonschema:"the moment of all: 12m30s, peak (each column's own) or end"`
	By    string   `json:"by,omitempty" jsonschema:"a column for each process or file"`
	Top   int      `json:"top,omitempty" jsonschema:"at most so many lines"`
}

func (c columns) compare() ([]string, error) {
	a := arguments{list: []string{"compare", "--json"}}
	a.flag("at", c.At)
	a.flag("by", c.By)
	a.number("top", c.Top)
	if len(c.Files) == 0 {
		return nil, errors.New("files is empty (name captures to compare)")
	}
	for _, f := range c.Files {
		a.file(f)
	}
	return a.list, a.err
}

// arguments is a command line. Values never become flags.
type arguments struct {
	list []string
	err  error
}

func (a *arguments) flag(name, value string) {
	if value != "" {
		a.list = append(a.list, "--"+name+"="+value)
	}
}

func (a *arguments) number(name string, value int) {
	if value != 0 {
		a.flag(name, strconv.Itoa(value))
	}
}

func (a *arguments) file(name string) {
	if strings.HasPrefix(name, "-") { // a flag, or standard input, which is the client's
		a.err = errors.Join(a.err, fmt.Errorf("%q is not the name of a file (write ./%[1]s)", name))
	}
	a.list = append(a.list, name)
}

func (a *arguments) fileOrServe(name string) ([]string, error) {
	if name == "" {
		a.list = append(a.list, "--connect")
	} else {
		a.file(name)
	}
	return a.list, a.err
}
