// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func needTracing(t *testing.T) {
	t.Helper()
	if r, _ := checkCapabilities(Env{Root: os.DirFS("/")}); r.Status == Fail {
		t.Skip(r.Detail)
	}
	if len(selfTestProgram) == 0 {
		t.Skip("no self-test on this architecture")
	}
}

func TestReturnProbeSelfTestPasses(t *testing.T) {
	needTracing(t)
	begin := time.Now()
	if err := ReturnProbeSelfTest(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("took %v", time.Since(begin))
}

func TestSelfTestWorksWithBothKindsOfFiles(t *testing.T) {
	needTracing(t)
	symbol, err := probedOffset(selfTestProgram)
	if err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func([]byte) (*programFile, error){"memory": inMemory, "temp dir": inTempDir} {
		t.Run(name, func(t *testing.T) {
			c, err := newCounter()
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			if err := c.trial(t.Context(), create, selfTestProgram, symbol); err != nil {
				t.Error(err)
			}
		})
	}
}

// replace replaces machine code or filter instructions of the program wherever they match.
func replace(t *testing.T, from, to string) []byte {
	t.Helper()
	if len(from) != len(to) || !bytes.Contains(selfTestProgram, []byte(from)) {
		t.Fatalf("no % x in the program", from)
	}
	return bytes.ReplaceAll(selfTestProgram, []byte(from), []byte(to))
}

func TestSelfTestExplainsFailures(t *testing.T) {
	needTracing(t)
	// A filter instruction that allows exit_group.
	const allowExit = "\x15\x00\x01\x00\xe7\x00\x00\x00"
	for _, c := range []struct {
		name    string
		program []byte
		is      error
		text    string
	}{
		{"killed by the filter", replace(t, allowExit, "\x15\x00\x01\x00\xff\x00\x00\x00"), ErrReturnProbeKills, "bad system call"},
		{"filter refused", replace(t, allowExit, "\xff\xff\xff\xff\xe7\x00\x00\x00"), ErrNotApplicable, "seccomp"},
		{"other result", replace(t, "\x53\x89\xf8\x5b", "\x53\x90\x90\x5b"), nil, "what a function returns"},
		{"never called", replace(t, "\xbb\x08\x00\x00\x00", "\xbb\x01\x00\x00\x00"), nil, "1 entries and 1 returns of 8 calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := selfTest(t.Context(), c.program)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSelfTestEndsWithItsContext(t *testing.T) {
	needTracing(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ReturnProbeSelfTest(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSelfTestProgramIsCurrent(t *testing.T) {
	if len(selfTestProgram) == 0 {
		t.Skip("no self-test on this architecture")
	}
	for _, tool := range []string{"gcc", "strip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	out := filepath.Join(t.TempDir(), "selftest")
	if msg, err := exec.Command("selftest/build.sh", out).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, msg)
	}
	built, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(code(t, built), code(t, selfTestProgram)) {
		t.Error("selftest_amd64 is stale [go generate ./tracer/preflight]")
	}
}

// code returns the program without the parts that differ between linkers.
func code(t *testing.T, program []byte) []byte {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	text, err := file.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
