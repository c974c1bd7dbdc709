// SPDX-License-Identifier: Apache-2.0

package filekind

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAFileOfTheWrongKindIsNamedWithWhatReadsIt(t *testing.T) {
	var samples bytes.Buffer
	if err := profile.Write(&samples, &ledger.Snapshot{}, nil); err != nil {
		t.Fatal(err)
	}
	const capture = "\x89VRAM\r\n\x1a\x01\x00\x00\x00"
	core := "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x3e\x00"
	for name, x := range map[string]struct {
		content []byte
		want    string
	}{
		"x.pb.gz":      {samples.Bytes(), "it is a pprof profile, not a capture (go tool pprof x.pb.gz, or vramprof diff A B)"},
		"x.vram.gz":    {zipped(t, capture), "it is a capture that was compressed (unpack it first: gunzip x.vram.gz)"},
		"log.gz":       {zipped(t, "hello"), "it is a gzip file, not a capture (unpack it first: gunzip log.gz)"},
		"twice.gz":     {zipped(t, string(zipped(t, "hello"))), "it is a gzip file, not a capture (unpack it first: gunzip twice.gz)"},
		"cut.gz":       {[]byte("\x1f\x8b"), "it is a gzip file, not a capture (unpack it first: gunzip cut.gz)"},
		"converted":    {[]byte("\x89VRAM\n\x1a\x01"), "it is a capture whose line ends were converted: copy it again as a binary file"},
		"page.html":    {[]byte("<!DOCTYPE html>\n<html>"), "it is a page, not a capture (open it in a browser)"},
		"core.1":       {[]byte(core), "it is a core dump, which vramprof does not read, not a capture (trace the running process: vramprof record -p PID)"},
		"a.out":        {[]byte(strings.Replace(core, "\x04\x00\x3e", "\x03\x00\x3e", 1)), "it is a program or library, not a capture (trace the program: vramprof record -- a.out)"},
		"oom.txt":      {[]byte("python3 [42] ran out of memory on cuda:0 (wanted 2.00 GiB)\n"), "it is a record of an out-of-memory error, not a capture (it is text: less oom.txt; its profile ends in .pb.gz)"},
		"summary.txt":  {[]byte("1 process on vm, traced 8.0s until 2026\n"), "it is a report as text, not a capture (less summary.txt)"},
		"chrome.json":  {[]byte(`{"displayTimeUnit":"ms","traceEvents":[`), "it is a timeline, not a capture (open it in https://ui.perfetto.dev)"},
		"leaks.json":   {[]byte("{\n  \"version\": 1"), "it is JSON, which vramprof writes but does not read, not a capture (jq . leaks.json)"},
		"x.folded":     {[]byte("main;train.py:1 step;cudaMalloc 4096\n"), "it is folded stacks, not a capture (flamegraph.pl x.folded, or open it in https://www.speedscope.app)"},
		"x.pickle":     {[]byte("\x80\x04\x95\x00"), "it is a pickle of Python, such as a memory snapshot of PyTorch, not a capture (open it in https://pytorch.org/memory_viz)"},
		"x.pickle.gz":  {zipped(t, "\x80\x04\x95\x00"), "it is a pickle of Python, such as a memory snapshot of PyTorch that was compressed, not a capture (unpack it first: gunzip x.pickle.gz)"},
		"x.zst":        {[]byte("\x28\xb5\x2f\xfd1234"), "it is compressed, not a capture (unpack it first: zstd -d x.zst)"},
		"model.pt":     {[]byte("PK\x03\x04...."), "it is a zip file, such as a checkpoint of PyTorch, not a capture"},
		"empty":        {nil, "it is empty, not a capture"},
		"unknown.text": {[]byte("hello, world\n"), ""},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile(name, x.content, 0o600); err != nil {
			t.Fatal(err)
		}
		k := Of(name)
		if got := k.Text(name, "a capture"); k.Known() && got != x.want || k.Known() != (x.want != "") {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
	for _, content := range [][]byte{[]byte("\x80\x04\x95\x00"), zipped(t, "\x80\x04\x95\x00")} {
		if got, want := kindOf(content).Class == Pickle, content[0] == 0x80; got != want {
			t.Errorf("%q is read as a pickle: %v, want %v", content, got, want)
		}
	}
	if k := Of(filepath.Join(t.TempDir(), "missing")); k.Known() {
		t.Errorf("a missing file is %s", k.what)
	}
}
