// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestRecordOfServeFitsItsSchema: a record in the archive names the GPU and the other processes on
// it.
func TestRecordOfServeFitsItsSchema(t *testing.T) {
	size := uint64(4 << 30)
	gpu := ledger.GPU{UUID: "GPU-a", Index: 1, Name: "H100", Total: 80 << 30, Used: 79 << 30}
	line := callstack.Frame{Function: "step", File: "/home/ada/train.py", Line: 42, Python: true}
	r := recordOf(report.OOM{PID: 42, Comm: "python3", API: "cudaMalloc", Kind: ledger.Device, Size: size, Time: clock.Now()}, report.OOMGPU{
		GPU: &gpu, Own: 60 << 30, Line: line, Workload: ledger.Workload{Pod: "bert-0", Namespace: "ml"},
		Users: []report.OOMUser{{PID: 7, Comm: "infer", Bytes: 19 << 30, Traced: true, Line: &line, LineBytes: 12 << 30}, {PID: 8, Comm: "x", Bytes: 1}},
	}, "gpu-box-1")
	dir := t.TempDir()
	records, err := archive.OpenRecords(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	path, err := records.Add(r, []byte("text"), []byte("profile"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(strings.TrimSuffix(path, ".txt") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile(filepath.Join("../../docs/schema", "oom.json"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Error(err)
	}
	list, err := archive.ReadRecords(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if x := list[0]; x.Line != "/home/ada/train.py:42 step" || x.Others[0].Line != x.Line || x.Others[0].Bytes != 19<<30 || *x.RequestedSize != size || x.GPU.Index != 1 ||
		x.Workload.Pod != "bert-0" || time.Since(x.Time) > time.Minute {
		t.Errorf("%+v", x)
	}
}
