// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// connect returns a client of a server whose commands are run.
func connect(t *testing.T, run func(ctx context.Context, arguments []string, stdout, stderr io.Writer) error) *sdk.ClientSession {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	here, there := sdk.NewInMemoryTransports()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, there, Options{Version: "1", Run: run}) }()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
	})
	return s
}

func leaks(t *testing.T, s *sdk.ClientSession) *sdk.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "leaks", Arguments: map[string]any{"file": "a.vram"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textOf(r *sdk.CallToolResult) string { return r.Content[0].(*sdk.TextContent).Text }

func TestAnAnswerIsBounded(t *testing.T) {
	s := connect(t, func(_ context.Context, _ []string, stdout, _ io.Writer) error {
		_, err := io.WriteString(stdout, `"`+strings.Repeat("x", maxAnswer)+`"`)
		return err
	})
	if r := leaks(t, s); !r.IsError || !strings.Contains(textOf(r), "longer than 4 MiB") || len(textOf(r)) > 100 {
		t.Errorf("a long answer is %.100q", textOf(r))
	}
}

// A result that came with an error is an answer: ps has one where no process uses CUDA.
func TestAResultBesideAnErrorIsAnAnswer(t *testing.T) {
	s := connect(t, func(_ context.Context, _ []string, stdout, stderr io.Writer) error {
		_, _ = io.WriteString(stdout, `{"processes": []}`)
		_, _ = io.WriteString(stderr, "vramprof: no process uses CUDA\n")
		return errors.New("exit status 5")
	})
	if r := leaks(t, s); r.IsError || textOf(r) != `{"processes": []}` {
		t.Errorf("%v %q", r.IsError, textOf(r))
	}
}

func TestErrorsAreStripped(t *testing.T) {
	s := connect(t, func(_ context.Context, _ []string, _, stderr io.Writer) error {
		_, _ = io.WriteString(stderr, "vramprof: open \x1b[31ma.vram: damaged\n")
		return errors.New("exit status 1")
	})
	if r := leaks(t, s); !r.IsError || strings.Contains(textOf(r), "\x1b") || !strings.HasPrefix(textOf(r), "open ") {
		t.Errorf("%q", textOf(r))
	}
}

// A client that goes away ends the command that it waited for.
func TestAWithdrawnQuestionEndsItsCommand(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s := connect(t, func(ctx context.Context, _ []string, _, _ io.Writer) error {
		close(begun)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "ps"}); err == nil {
		t.Error("a withdrawn question was answered")
	}
	<-ended // else the test hangs, and go test shows where
}

func TestFewQuestionsAreAnsweredAtOnce(t *testing.T) {
	var now, most atomic.Int32
	s := connect(t, func(_ context.Context, _ []string, stdout, _ io.Writer) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		_, err := io.WriteString(stdout, "{}")
		return err
	})
	done := make(chan error)
	for range 8 {
		go func() {
			_, err := s.CallTool(context.Background(), &sdk.CallToolParams{Name: "ps"})
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > maxAtOnce {
		t.Errorf("%d questions were answered at once", most.Load())
	}
}

func TestValuesNeverBecomeFlags(t *testing.T) {
	got, err := session{File: "a.vram", At: "--html=x", Process: "-a", Top: -3}.report()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(got, " "); text != "report --json --at=--html=x --process=-a --top=-3 a.vram" {
		t.Error(text)
	}
	if got, err := (replay{File: "a.vram", GPU: "24GiB", Checkpoint: "Block.forward", Offload: "-x"}).whatif(); err != nil ||
		strings.Join(got, " ") != "whatif --json --gpu=24GiB --checkpoint=Block.forward --offload=-x a.vram" {
		t.Errorf("%q, %v", got, err)
	}
	if got, _ := (leaksOf{}).leaks(); got[len(got)-1] != "--connect" {
		t.Errorf("without a file: %q", got)
	}
}
