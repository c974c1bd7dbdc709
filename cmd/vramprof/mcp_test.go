// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// ask starts "vramprof mcp" in another process, and returns what asks it over its stdin and stdout.
func ask(t *testing.T) *sdk.ClientSession {
	t.Helper()
	path, err := exec.LookPath("vramprof")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.CommandTransport{Command: exec.Command(path, "mcp")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("vramprof mcp did not end with its client: %v", err)
		}
	})
	return session
}

// call returns the JSON that a tool answers with, or the text of its error.
func call(t *testing.T, s *sdk.ClientSession, name string, arguments map[string]any) (answer map[string]any, failure string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := s.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text := result.Content[0].(*sdk.TextContent).Text
	if result.IsError {
		return nil, text
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s answers with %q: %v", name, text, err)
	}
	if _, ok := result.StructuredContent.(map[string]any); !ok {
		t.Errorf("%s has no structured answer", name)
	}
	return answer, ""
}

func TestAClientOfTheProtocolIsAnswered(t *testing.T) {
	s := ask(t)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Annotations == nil || !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is not marked as one that only reads", tool.Name)
		}
	}
	for _, want := range []string{"report", "leaks", "explain", "whatif", "fit", "holders", "compare", "ps"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no tool %s among %v", want, names)
		}
	}
	file, err := filepath.Abs("../../internal/torchfile/testdata/segments.pickle")
	if err != nil {
		t.Fatal(err)
	}
	report, failure := call(t, s, "report", map[string]any{"file": file, "top": 3})
	if report["version"] != 1.0 || report["summary"] == nil {
		t.Errorf("report answers %v %s", report, failure)
	}
	if leaks, failure := call(t, s, "leaks", map[string]any{"file": file}); leaks["version"] != 1.0 {
		t.Errorf("leaks answers %v %s", leaks, failure)
	}
	compared, failure := call(t, s, "compare", map[string]any{"files": []string{file, file}, "by": "file"})
	if columns, _ := compared["columns"].([]any); len(columns) != 2 {
		t.Errorf("compare answers %v %s", compared, failure)
	}
}

// A question that cannot be answered has the command's own error, with its remedy.
func TestErrorsAreToldToTheClient(t *testing.T) {
	s := ask(t)
	for _, q := range []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"report", map[string]any{"file": "none.vram"}, "no such file or directory"},
		{"report", map[string]any{"file": "go.mod", "view": "sideways"}, "unknown view"},
		{"leaks", map[string]any{"file": "--fail-on-leak"}, "is not the name of a file"},
		{"leaks", map[string]any{"file": "-"}, "is not the name of a file"},
		{"compare", map[string]any{"files": []string{}}, "files is empty"},
		{"compare", map[string]any{"files": []string{"--json"}}, "is not the name of a file"},
		{"explain", map[string]any{}, "either a process or a file"},
		{"explain", map[string]any{"pid": 4194304}, "process 4194304 does not exist"},
		{"whatif", map[string]any{"file": "none.vram"}, "no such file or directory"},
		{"fit", map[string]any{"file": "none.vram", "gpu": "24GiB"}, "no such file or directory"},
		{"holders", map[string]any{"pid": 4194304}, "process 4194304 does not exist"},
		{"holders", map[string]any{}, "pid"},
		{"report", map[string]any{"file": "a", "output": "b"}, "output"},
	} {
		_, failure := call(t, s, q.tool, q.arguments)
		if !strings.Contains(failure, q.want) || strings.Contains(failure, "\x1b") {
			t.Errorf("%s %v: %q, want %q", q.tool, q.arguments, failure, q.want)
		}
	}
}
