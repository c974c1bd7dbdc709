// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pprof runs "go tool pprof" where it finds no binaries.
func pprof(t *testing.T, args ...string) string {
	t.Helper()
	empty := t.TempDir()
	cmd := exec.Command("go", append([]string{"tool", "pprof"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+empty, "PPROF_TMPDIR="+empty, "DEBUGINFOD_URLS=")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pprof %q: %v", args, err)
	}
	return string(out)
}

// top reads the table of pprof -top: flat and cumulative value of each function.
func top(t *testing.T, text string) map[string]string {
	t.Helper()
	table := map[string]string{}
	row := regexp.MustCompile(`^\s*(\S+)\s+\S+%\s+\S+%\s+(\S+)\s+\S+%\s+(.*?)(?: \(inline\))?$`)
	for line := range strings.Lines(text) {
		if m := row.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			table[m[3]] = m[1] + " " + m[2]
		}
	}
	if !strings.Contains(text, "flat%") {
		t.Fatalf("pprof printed %q", text)
	}
	return table
}

func checkTop(t *testing.T, text string, want map[string]string) {
	t.Helper()
	got := top(t, text)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %q, want %q (flat and cumulative)", name, got[name], value)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestPprofReadsProfilesWithoutBinaries(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	dir := setup(t)
	run := func(script string) string {
		folder := t.TempDir()
		program := copyFile(t, dir.Program("alloc_c"), filepath.Join(folder, "alloc_c"))
		s := startRecord(t, dir.Env(t, 1, 8<<30), "--", program, writeFile(t, "script", script)).wait()
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		return s.path
	}
	const page = "malloc a 4096\nmanaged m 8192\npinned p 16384\nmalloc b 1024\nfree b\n"
	before := run(page)
	after := run(page + "malloc c 4096\nmallochost h 2048\n")

	const all, inUse = "-nodefraction=0", "-sample_index=inuse_space"                                                         // small compared with a context
	checkTop(t, pprof(t, "-top", all, before), map[string]string{"level1": "5kB 5kB", "op_malloc": "0 5kB", "op_pinned": ""}) // the peak
	checkTop(t, pprof(t, "-top", all, inUse, before), map[string]string{
		"cudaMalloc": "", "cudaMallocManaged": "", "cudaHostAlloc": "", "op_pinned": "",
		"level1": "4kB 4kB", "level2": "0 4kB", "op_malloc": "0 4kB", "main": "0 4kB", "run_script": "0 4kB",
	})
	checkTop(t, pprof(t, "-top", all, inUse, "-tagleaf=callee", before), map[string]string{
		"cudaMalloc": "4kB 4kB", "cudaMallocManaged": "", "cudaHostAlloc": "", "level1": "0 4kB",
	})
	checkTop(t, pprof(t, "-top", "-sample_index=host_space", before), map[string]string{
		"level1": "24kB 24kB", "op_pinned": "0 16kB", "op_managed": "0 8kB", "main": "0 24kB",
	})
	checkTop(t, pprof(t, "-top", "-sample_index=alloc_objects", before), map[string]string{
		"level1": "4 4", "op_malloc": "0 2", "main": "0 4",
	})
	checkTop(t, pprof(t, "-top", all, inUse, "-tagfocus=device=cuda:0", before), map[string]string{
		"level1": "4kB 4kB", "op_managed": "", "op_pinned": "", "main": "0 4kB",
	})
	checkTop(t, pprof(t, "-top", all, inUse, "-diff_base", before, after), map[string]string{
		"level1": "4kB 4kB", "op_managed": "", "main": "0 4kB",
	})
	checkTop(t, pprof(t, "-top", "-sample_index=host_space", "-diff_base", before, after), map[string]string{
		"level1": "2kB 2kB", "op_mallochost": "0 2kB", "op_pinned": "", "main": "0 2kB",
	})
	checkTop(t, pprof(t, "-top", "-diff_base", after, after), map[string]string{"level1": "", "main": ""})
}

// TestPprofListsTheSourceOfAContainer: the script is in a mount namespace, at a path that does not
// exist here, and a comment of the profile has the flags to find it.
func TestPprofListsTheSourceOfAContainer(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	dir := setup(t)
	env, workspace := dir.Env(t, 1, 8<<30), t.TempDir()
	script := copyFile(t, dir.Program("leak.py"), filepath.Join(t.TempDir(), "leak.py"))
	const inContainer = `mount --make-rprivate / && mount --bind "$1" "$2" || exit 77; exec /usr/bin/python3 "$2/leak.py" --stdin --threads 1`
	program := startTarget(t, env, "unshare", "-m", "sh", "-c", inContainer, "sh", filepath.Dir(script), workspace)
	program.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.until("done")
	s.stop()
	flags := regexp.MustCompile(`source of python3 \[\d+\], with its own file system: (-source_path=\S+) (-trim_path=/)\n`).FindStringSubmatch(pprof(t, "-comments", s.path))
	if len(flags) != 3 || flags[1] != fmt.Sprintf("-source_path=/proc/%d/root", program.pid()) {
		t.Fatalf("comments name no flags:\n%s", pprof(t, "-comments", s.path))
	}
	if text := pprof(t, "-list=^device_malloc$", flags[1], flags[2], s.path); !strings.Contains(text, "def device_malloc(") {
		t.Errorf("no source of device_malloc in\n%s", text)
	}
	if text := pprof(t, "-list=^device_malloc$", s.path); strings.Contains(text, "def device_malloc(") {
		t.Errorf("the source is here:\n%s", text)
	}
	program.end()
}
