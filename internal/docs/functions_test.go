// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const functionsHead = `# Functions

Generated from the probe table, ` + "`tracer/cudaapi/table.go`" + `. A probe on a function of the runtime gives the stack trace
and the name of the call; one on a function of the driver gives the memory ([How it works](how-it-works.md)). vramprof probes functions with an
asterisk only for a second at a time. Other probes:

- the functions of ` + "`libc10`" + ` to which PyTorch's allocator reports blocks and out-of-memory errors ([Planes](planes.md#planes));
- with ` + "`--driver-objects`" + `, ` + "`ioctl`" + ` and ` + "`cuGraphLaunch`" + ` ([Who makes the driver take it](planes.md#who-makes-the-driver-take-it));
- in ` + "`libnccl`" + `, the stub through which it calls ` + "`pthread_create`" + ` ([Names](names.md#nccl-by-communicator));
- with ` + "`record -- COMMAND`" + `, ` + "`_dl_debug_state`" + ` of the dynamic loaders ([Probes](probes.md#what-a-probe-leaves-in-a-process)).

| a call | driver | runtime |
|---|---|---|
`

// TestFunctions compares docs/functions.md with the probe table.
func TestFunctions(t *testing.T) {
	type key struct {
		does  string
		layer cudaapi.Layer
	}
	var order []string
	names := map[key][]string{}
	for i := range cudaapi.Table {
		f := &cudaapi.Table[i]
		if f.Layer == cudaapi.System || f.Layer == cudaapi.NCCL {
			continue
		}
		k := key{does(t, f), f.Layer}
		if !slices.Contains(order, k.does) {
			order = append(order, k.does)
		}
		name := "`" + f.Name + "`"
		if f.Brief {
			name += "\\*"
		}
		names[k] = append(names[k], name)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	var b strings.Builder
	b.WriteString(functionsHead)
	for _, does := range order {
		fmt.Fprintf(&b, "| %s", does)
		for _, layer := range []cudaapi.Layer{cudaapi.Driver, cudaapi.Runtime} {
			fmt.Fprintf(&b, " | %s", strings.Join(names[key{does, layer}], ", "))
		}
		b.WriteString(" |\n")
	}
	checkGenerated(t, "docs/functions.md", b.String())
}

// rank sorts allocations before frees before everything else.
func rank(does string) int {
	switch {
	case strings.HasPrefix(does, "allocates"):
		return 0
	case strings.HasPrefix(does, "frees memory"):
		return 1
	}
	return 2
}

// effects describes what a call does to the current context and device, or to its stream.
var effects = map[uint8]string{
	bpf.EffectSetContext: "sets the current context", bpf.EffectPushContext: "pushes a context", bpf.EffectPopContext: "pops a context",
	bpf.EffectCreateContext: "creates a context", bpf.EffectRetainContext: "retains a primary context", bpf.EffectDestroyContext: "destroys a context",
	bpf.EffectSetDevice: "sets the current device", bpf.EffectLearnContext: "reveals the current context", bpf.EffectLearnDevice: "reveals the current device",
	bpf.EffectDeriveContext: "makes a context from a green context", bpf.EffectBeginCapture: "begins to capture a stream", bpf.EffectEndCapture: "ends the capture of a stream",
}

// ops describes events that are neither an allocation nor a free.
var ops = map[ledger.Op]string{
	ledger.Alias: "gives an address of memory that is already counted", ledger.Map: "maps physical memory", ledger.Unmap: "unmaps physical memory",
	ledger.Retain: "retains physical memory", ledger.Export: "exports memory to other processes", ledger.AddressFree: "frees addresses",
	ledger.ContextRetain: "retains a primary context", ledger.ContextRelease: "releases a primary context", ledger.ContextReset: "resets a device", ledger.ContextDestroy: "destroys a context",
	ledger.PoolCreate: "creates a pool", ledger.PoolDestroy: "destroys a pool", ledger.PoolTrim: "trims a pool", ledger.PoolThreshold: "sets what a pool keeps",
	ledger.PoolOwn: "names the default pool", ledger.PoolSelect: "selects the current pool", ledger.PoolCurrent: "names the current pool",
	ledger.GreenCreate: "creates a green context", ledger.GreenDestroy: "destroys a green context", ledger.ContextDerive: "makes a context from a green context",
}

func does(t *testing.T, f *cudaapi.Function) string {
	text, known := ops[f.Op], true
	switch {
	case f.Op == ledger.ObjectCreate:
		text = "creates: " + format.Kind(f.Kind)
	case f.Op == ledger.ObjectEnd:
		text = "destroys: " + format.Kind(f.Kind)
	case text != "":
	case f.Role == cudaapi.Allocates, f.Op == ledger.Alloc:
		text = "allocates memory: " + format.Kind(f.Kind)
	case f.Role == cudaapi.Frees:
		text = "frees memory"
	case f.Role == cudaapi.Initializes:
		text = "starts CUDA"
	default:
		text, known = effects[uint8(f.Effect)]
	}
	if !known {
		t.Errorf("docs/functions.md has no words for %s: add its op or effect to this test", f.Name)
	}
	return text
}
