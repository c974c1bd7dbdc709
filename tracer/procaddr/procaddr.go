// SPDX-License-Identifier: Apache-2.0

// Package procaddr asks this host's CUDA driver which functions cuGetProcAddress returns: a runtime
// calls those, so they must have a probe.
//
// A build without cgo always returns ErrUnavailable.
package procaddr

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// ErrUnavailable means that the driver cannot be asked.
var ErrUnavailable = errors.New("built without cgo")

// Answer is what cuGetProcAddress returns for a name, for a range of CUDA versions.
type Answer struct {
	Name     string
	Second   bool // asked with cuGetProcAddress_v2
	Mode     int  // the stream mode: an index into Modes
	From, To int  // first and last version of the range: 12040 is 12.4
	Function string
	Offset   uint64 // of the function, from the library's first mapping: the value of its ELF symbol
}

// Modes are the stream modes of cuGetProcAddress.
var Modes = [...]string{"default", "legacy", "per-thread"}

// Answers are all answers of one library.
type Answers struct {
	Path string // of the library
	List []Answer
}

const (
	patience  = 20 * time.Second
	maxOutput = 4 << 20
	maxName   = 128
)

// Ask runs a command that prints the driver's answers for some names, as Print does. It asks the
// libcuda.so.1 that the dynamic loader finds for this process, never the library of another
// process: that library's code may be an attacker's.
func Ask(ctx context.Context, names []string, command ...string) (*Answers, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], names...)...)
	cmd.WaitDelay = time.Second
	out, said := &untrusted.Buffer{Room: maxOutput}, &untrusted.Buffer{Room: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(string(said.Text)); text != "" {
			return nil, errors.New(text)
		}
		return nil, fmt.Errorf("ask cuGetProcAddress: %w", err)
	}
	return parse(out.Text)
}

func parse(text []byte) (*Answers, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	if !lines.Scan() {
		return nil, fmt.Errorf("cuGetProcAddress gave no answer")
	}
	a := &Answers{Path: lines.Text()}
	for lines.Scan() {
		var x Answer
		var second int
		if _, err := fmt.Sscan(lines.Text(), &x.Name, &second, &x.Mode, &x.From, &x.To, &x.Offset, &x.Function); err != nil {
			return nil, fmt.Errorf("answer %.100q: %w", lines.Text(), err)
		}
		if x.Mode < 0 || x.Mode >= len(Modes) || len(x.Name) > maxName {
			return nil, fmt.Errorf("answer %.100q", lines.Text())
		}
		x.Second = second != 0
		a.List = append(a.List, x)
	}
	return a, lines.Err()
}

// suffix is what exported names have and names in cuda.h lack.
var suffix = regexp.MustCompile(`(_v[0-9]+)?(_ptsz|_ptds)?$`)

// Names returns the names to ask for, sorted: those of exported functions, and those that cuda.h
// gives them.
func Names(exported []string) (list []string) {
	for _, name := range exported {
		list = append(list, name, suffix.ReplaceAllString(name, ""))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// dispensable are functions that need no probe, and which cuGetProcAddress returns for names that
// need one: cuCtxGetDevice_v2 (CUDA 13) tells the device of any context, not of the current one.
var dispensable = []string{"cuCtxGetDevice_v2"}

// Summary compares the answers with the functions that have a probe.
type Summary struct {
	Names     int      // names with an answer
	Functions []string // functions with a probe that were returned
	Never     []string // functions with a probe that were not returned for any name
	// Answers that need a probe and have none, each once: "cuMemAlloc (legacy stream):
	// cuMemAlloc_v3".
	Unprobed []string
}

// Summarize compares the answers with the probed functions, by their Offset.
func (a *Answers) Summarize(probed map[uint64]string) Summary {
	var s Summary
	names, given, wrong := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, x := range a.List {
		names[x.Name] = true
		if got := probed[x.Offset]; got != "" && suffix.ReplaceAllString(got, "") == suffix.ReplaceAllString(x.Name, "") {
			given[got] = true
			continue
		}
		if slices.Contains(dispensable, x.Function) {
			continue
		}
		wrong[fmt.Sprintf("%s (%s stream): %s", x.Name, Modes[x.Mode], x.Function)] = true
	}
	s.Names = len(names)
	for _, name := range probed {
		if given[name] {
			s.Functions = append(s.Functions, name)
		} else {
			s.Never = append(s.Never, name)
		}
	}
	for text := range wrong {
		s.Unprobed = append(s.Unprobed, text)
	}
	slices.Sort(s.Functions)
	slices.Sort(s.Never)
	slices.Sort(s.Unprobed)
	return s
}
