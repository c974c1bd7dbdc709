// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// The functions of libc10 that PyTorch's caching allocator calls to report to a profiler, even if
// none is active; mangled C++ names of PyTorch 1.6 to 2.14. They have entry probes only: a return
// probe on a function that throws would kill the program.
var (
	reportFunctions = map[string]uint64{ // attach cookie
		"_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE":   bpf.BlockWithoutTotals, // 1.6 to 1.9
		"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE": bpf.BlockWithTotals,    // 1.10 to 2.1
		"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE": bpf.BlockWithTotals,    // 2.2 on
	}
	failureFunctions = []string{
		"_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
		"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
		"_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE",
	}
)

// torchVersion returns the version of the PyTorch with this libc10 from the file ../version.py
// beside it, or "" if there is none.
func torchVersion(library libraries.Mapped) string {
	file, err := os.Readlink(library.Path)
	if err != nil {
		return ""
	}
	if m := versionedName.FindStringSubmatch(file); m != nil { // as Debian names it
		return m[1]
	}
	root := fmt.Sprintf("/proc/%d/root", procfs.Thread(library.PID))
	f, err := untrusted.OpenIn(root, path.Join(path.Dir(untrusted.InRoot(root, file)), "../version.py"))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4096))
	if m := versionLine.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// TorchVersion returns the version of a process's PyTorch, such as "2.6.0", or "" if it has none or
// its file is gone.
func TorchVersion(pid uint32) string {
	code, err := libraries.Code(pid)
	if err != nil {
		return ""
	}
	for _, l := range code {
		if layer, ok := libraries.LayerOf(l.Name); ok && layer == cudaapi.Torch {
			return torchVersion(l)
		}
	}
	return ""
}

var versionedName = lazyregexp.New(`/libc10\.so\.([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})$`)

var versionLine = lazyregexp.New(`(?m)^__version__\b[^'"\n]*['"]([0-9A-Za-z.+-]{1,40})['"]`)

var errNoReports = errors.New("it has no function that reports tensors as PyTorch 1.6 to 2.14 do: its tensors are not traced")

// attachTorch probes libc10, in processes as Attach does. It returns errNoReports if the file has
// none of reportFunctions.
func (p *Prober) attachTorch(f *os.File, pid uint32) (*Set, error) {
	library, err := probepoint.Open(f)
	if err != nil {
		return nil, err
	}
	executable, err := executableOf(f)
	if err != nil {
		return nil, err
	}
	set := &Set{prober: p, pid: pid}
	locate := func(names []string) (all targets) {
		for _, at := range library.Functions(names) {
			all.add(at.Probe, reportFunctions[at.Name])
			set.functions = append(set.functions, at)
		}
		return all
	}
	reports := locate(slices.Collect(maps.Keys(reportFunctions)))
	if len(reports.addresses) == 0 {
		return nil, errNoReports
	}
	if set.reports, err = p.reports.add(f, reports, pid); err != nil {
		return nil, err
	}
	if err := p.attachAll(set, executable, p.blockFailed, locate(failureFunctions), false); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}
