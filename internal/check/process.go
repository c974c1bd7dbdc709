// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/preflight"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Process writes what tracing a process would meet. It attaches nothing.
func Process(w io.Writer, pid uint32, columns int) error {
	if !procfs.Exists(pid) {
		return fmt.Errorf("process %d does not exist (vramprof ps lists those that use CUDA)", pid)
	}
	list, err := probes.Inspect(pid)
	if errors.Is(err, fs.ErrPermission) {
		return fault.Denied(pid, err)
	}
	if err != nil {
		return fmt.Errorf("check process %d: %w", pid, err)
	}
	results := []preflight.Result{probeAreaResult(pid)}
	if len(list) == 0 {
		results = append(results, preflight.Result{Name: "libraries", Status: preflight.Warn, Detail: "it maps no library of CUDA or PyTorch now"})
	}
	for _, x := range list {
		results = append(results, codeResult(x))
	}
	return writeResults(w, results, columns)
}

func codeResult(x probes.InMemory) preflight.Result {
	name := untrusted.Clean(x.Name)
	r := preflight.Result{Name: "code in memory", Status: preflight.OK, Detail: fmt.Sprintf("%s: %d functions are those of the file", name, x.Functions)}
	switch {
	case x.Err != nil:
		r.Status, r.Detail = preflight.Warn, name+": "+x.Err.Error()
	case x.Patch != nil:
		r.Status, r.Remedy = preflight.Warn, probes.PatchRemedy
		r.Detail = fmt.Sprintf("%s: the process %v; while it runs, vramprof probes this file in no process", name, x.Patch)
	}
	return r
}

// probeAreaResult reports what a tracer has left in a process.
func probeAreaResult(pid uint32) preflight.Result {
	r := preflight.Result{Name: "[uprobes]", Status: preflight.OK, Detail: "none: the process has called no probed function"}
	if libraries.HasProbeArea(pid) {
		r.Status, r.Detail = preflight.Warn, "the kernel's page for probes is mapped, and stays until the process ends or executes another program: CRIU refuses to checkpoint it"
		r.Remedy = "checkpoint it with --allow-uprobes and while nothing traces it, or restart it"
	}
	return r
}
