// SPDX-License-Identifier: Apache-2.0

// Package mcp answers questions of programs that speak the Model Context Protocol over stdin and
// stdout. Each tool is a command of vramprof that reads and changes nothing; the command's JSON is
// the answer.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
)

const (
	maxAnswer  = 4 << 20         // bytes of JSON: more is of no use to who asks
	maxErrors  = 64 << 10        // bytes of what a command writes to stderr
	maxTime    = 5 * time.Minute // of one question
	maxAtOnce  = 2               // questions that are answered at the same time; others wait
	afterwards = 5 * time.Second // from SIGINT to SIGKILL of a command whose question was withdrawn
)

const instructions = "vramprof is a heap profiler for CUDA memory. Ask with a capture (FILE.vram), a memory snapshot of PyTorch (FILE.pickle), " +
	"the archive of vramprof serve (/var/lib/vramprof), or no file for the running vramprof serve. Start with report or leaks. Sizes are bytes, names that end in _ns are nanoseconds. " +
	"Answers say in \"warnings\" what is missing or not exact: repeat it with the figures that it affects."

// Options is what Serve needs.
type Options struct {
	Version string
	// Run runs a command line of vramprof without its first word. It writes the result to stdout
	// and messages to stderr, and returns an error that has no text beside what it has written.
	Run func(ctx context.Context, arguments []string, stdout, stderr io.Writer) error
}

// Serve answers the client at the other end of t until it leaves or ctx ends.
func Serve(ctx context.Context, t sdk.Transport, o Options) error {
	s := sdk.NewServer(&sdk.Implementation{Name: "vramprof", Title: "vramprof: a heap profiler for CUDA memory", Version: o.Version},
		&sdk.ServerOptions{Instructions: instructions, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	a := &answerer{run: o.Run, room: make(chan struct{}, maxAtOnce)}
	for _, q := range tools {
		q.add(s, a)
	}
	if err := s.Run(ctx, t); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("answer over the Model Context Protocol: %w", err)
	}
	return nil
}

// Itself runs a command line of this program in another process, so that what a file or a process
// costs ends with the answer.
func Itself(ctx context.Context, arguments []string, stdout, stderr io.Writer) error {
	c := exec.CommandContext(ctx, "/proc/self/exe", arguments...)
	c.Args[0] = "vramprof"
	c.Env = append(os.Environ(), "COLUMNS=120", "NO_COLOR=1")
	c.Stdout, c.Stderr = stdout, stderr
	c.Cancel = func() error { return c.Process.Signal(unix.SIGINT) }
	c.WaitDelay = afterwards
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c.Run()
}

// answerer runs the command of a question.
type answerer struct {
	run  func(ctx context.Context, arguments []string, stdout, stderr io.Writer) error
	room chan struct{}
}

func (a *answerer) answer(ctx context.Context, arguments []string) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	select {
	case a.room <- struct{}{}:
		defer func() { <-a.room }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	stdout, stderr := &limited{most: maxAnswer}, &limited{most: maxErrors}
	err := a.run(ctx, arguments, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: no answer within %v", arguments[0], maxTime)
	case stdout.beyond:
		return nil, fmt.Errorf("the answer is longer than %d MiB (ask for less: top, process)", maxAnswer>>20)
	case !json.Valid(stdout.kept.Bytes()): // ps without a process is an error with a result
		text := strings.TrimSpace(stderr.kept.String())
		if text == "" && err != nil {
			text = err.Error()
		}
		return nil, errors.New(untrusted.Clean(strings.TrimPrefix(text, "vramprof: ")))
	}
	answer := bytes.TrimSpace(stdout.kept.Bytes())
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: string(answer)}}, // for clients from before structured results
		StructuredContent: json.RawMessage(answer),
	}, nil
}

// limited keeps the first bytes that are written to it. Its buffer is no embedded field: io.Copy
// would read into that without a limit.
type limited struct {
	kept   bytes.Buffer
	most   int
	beyond bool
}

func (l *limited) Write(p []byte) (int, error) {
	n := len(p)
	if room := l.most - l.kept.Len(); n > room {
		l.beyond, p = true, p[:room]
	}
	l.kept.Write(p)
	return n, nil
}
