// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Kind is what memory is for. It is a code of JSON.
type Kind string

// The kinds, in the order of Balance.Rows.
const (
	Weights     Kind = "weights"
	Gradients   Kind = "gradients"
	State       Kind = "optimizer_state"
	Buffers     Kind = "buffers"
	Activations Kind = "activations" // saved by autograd, or allocated in a forward pass
	Backward    Kind = "backward"    // of the backward pass, where no holder is known: gradients of activations and of parameters
	Inputs      Kind = "inputs"
	KVCache     Kind = "kv_cache"
	Workspaces  Kind = "workspaces"  // of cuBLAS and the like, from PyTorch's allocator
	Tensors     Kind = "tensors"     // whose purpose is unknown
	Graphs      Kind = "cuda_graphs" // pools and allocations of CUDA graphs
	Cache       Kind = "cache"       // PyTorch's cache
	Library     Kind = "library"
	Torch       Kind = "pytorch" // PyTorch's memory, where its tensors are unknown
	CUDA        Kind = "cuda"    // other allocations from CUDA
	Context     Kind = "context" // what the driver took for itself, in no library: contexts, modules
	Rounding    Kind = "rounding"
	Before      Kind = "before"        // context, modules, libraries and all else that is older than the attach
	Rest        Kind = "context_other" // the same of a process that was only read
	Unknown     Kind = "gpu_unknown"
	Unexplained Kind = "unexplained"
)

// Kinds lists all kinds.
var Kinds = []Kind{
	Weights, Gradients, State, Buffers, Activations, Backward, Inputs, KVCache, Workspaces, Tensors, Graphs, Cache, Library, Torch, CUDA, Context, Rounding, Before, Rest, Unknown, Unexplained,
}

var kindNames = map[Kind]string{
	Weights: "weights", Gradients: "gradients", State: "optimizer state", Buffers: "buffers", Activations: "activations", Backward: "backward pass", Inputs: "inputs",
	KVCache: "KV cache", Workspaces: "workspaces", Tensors: "other tensors", Graphs: "CUDA graphs", Cache: "PyTorch cache", Torch: "PyTorch, tensors unknown",
	CUDA: "other CUDA", Context: "context and modules", Rounding: report.PlaneName(report.PlaneRounding), Before: report.MarkName(report.MarkForeign), Rest: report.UnattachedName,
	Unknown: "allocations, GPU unknown", Unexplained: "unexplained",
}

// Text returns how reports call a kind. Of Library it is "".
func (k Kind) Text() string { return kindNames[k] }

// Row is memory of one purpose.
type Row struct {
	Kind    Kind
	Library string // of Library: "NCCL"; of others what they are in: "llama.cpp"; else ""
	Bytes   int64
	// How the purpose of tensors is known; the rest was divided as the rest of its kind.
	ByHolders, ByStacks uint64
	Pieces              []Piece // largest first: they add up to Bytes; none where nothing more is known
	// Who keeps it, largest first, as of a walk: of tensors, and at most Bytes but for what
	// Balance.Smaller names.
	KeptBy []report.HeldShare
}

// Name returns the name of a row for people: "weights", "NCCL", "KV cache (llama.cpp)".
func (r *Row) Name() string {
	switch {
	case r.Kind == Library:
		return r.Library
	case r.Library != "":
		return r.Kind.Text() + " (" + r.Library + ")"
	}
	return r.Kind.Text()
}

// Piece is a part of a row. Its other fields name it; all strings but Part are untrusted.
type Piece struct {
	Cache  report.CacheKind // of Cache; "" where its parts are unknown
	Module string           // of Activations: "Block.forward (model.py:88)"; without stacks the instance: "model.blocks.3"; "" in none, or where none is known
	Holder string           // of KVCache: the path that keeps the tensors: "worker.kv_caches[*]"; "" where none is known
	Part   string           // of libraries: what it is there: "communicators"; of Graphs: "CUDA graph 1"; of Workspaces: "cuBLAS on stream 1"
	Line   string           // what allocated it, of what is not PyTorch's, and of Workspaces: "load (serve.py:12)"; "" where no code of the user did
	Count  uint64           // of a Line: live allocations
	Pool   uint64           // of a pool of Graphs: what it has from the driver; Bytes are what is free in it
	Bytes  uint64
	Idle   Idle // of a library's pool
}

// Idle is how much of a pool nothing uses, although its bytes are allocated. It is a code of JSON.
type Idle string

// What is known of pools. "" is of memory that is no pool.
const (
	IdleUnknown Idle = "unknown"
	IdleRunning Idle = "running_process"     // it can be read from the process while that runs: see Arena
	IdleBetween Idle = "between_evaluations" // all of it, while nothing is evaluated
)

// Balance is what one process uses on one GPU.
type Balance struct {
	Process int    // index into Snapshot.Processes
	Device  int32  // CUDA's ordinal, or ledger.UnknownDevice
	UUID    string // "" where the GPU is unknown
	// The sum of Rows: what NVML reports for the process, if Read; else what the books have.
	Bytes int64
	Read  bool
	Rows  []Row // by Kinds
	Use   *Use  // of the process's KV cache; nil: nobody was asked
	// Of the process's libraries, on any of its GPUs. Only its first balance has them.
	Arenas []Arena
	Doubt
}

// More is what is known of a process besides the books.
type More struct {
	PID    uint32
	Use    *Use // nil: nobody was asked
	Arenas []Arena
}

// Arena is a pool of a library, as its own books in the process have it. Figures are bytes.
type Arena struct {
	Library string // "ONNX Runtime"
	Bytes   uint64 // that it took from the driver
	InUse   uint64 // the rest is idle
	Peak    uint64 // the highest InUse so far
}

// Use is how much of a KV cache is used, as the inference server reported it.
type Use struct {
	By     uint32  // the process that reported: this one or a parent
	Port   uint16  // of its HTTP server
	Engine string  // "vLLM"
	Metric string  // "vllm:kv_cache_usage_perc"
	Used   float64 // 0 to 1
	Series int     // engines of the server, whose mean Used is
}

// Doubt is what the division of a Balance leaves open.
type Doubt struct {
	// When the holders were found, ns of CLOCK_MONOTONIC, which may be later than the moment; 0:
	// they are unknown.
	Walked uint64
	// When the parts of the cache were read, as Walked; 0: they are unknown, or those of the
	// moment.
	CacheRead uint64
	// Tensors whose purpose both the holders and the stacks show, and those of them where both show
	// the same.
	Both, Same uint64
	// What the walk found in instances of modules of what the autograd graph has saved, and the
	// part of it that functions saved which took the module's own parameters.
	InModules, SureModules uint64
	// What was beyond NVML's figure: the rows are smaller for it.
	Beyond ledger.Taken
}

// rowKey identifies a row of a balance.
type rowKey struct {
	kind    Kind
	library string
}

// rowSet has the rows of one balance.
type rowSet map[rowKey]*Row

func (r rowSet) row(kind Kind, library string) *Row {
	key := rowKey{kind, library}
	if r[key] == nil {
		r[key] = &Row{Kind: kind, Library: library}
	}
	return r[key]
}

func (r rowSet) add(kind Kind, library string, bytes uint64) {
	if bytes > 0 {
		r.row(kind, library).Bytes += int64(bytes)
	}
}

// list returns the rows by Kinds, those of libraries by size, with their pieces by size.
func (r rowSet) list() (list []Row) {
	for _, row := range r {
		if row.Bytes == 0 {
			continue
		}
		slices.SortFunc(row.Pieces, func(a, b Piece) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Cache, b.Cache), cmp.Compare(a.Holder, b.Holder),
				cmp.Compare(a.Part, b.Part), cmp.Compare(a.Line, b.Line))
		})
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b Row) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Library, b.Library))
	})
	return list
}

// piece adds bytes to a piece of a row.
func (r *Row) piece(p Piece) {
	if p.Bytes == 0 {
		return
	}
	for i := range r.Pieces {
		if x := &r.Pieces[i]; x.isNamedAs(&p) {
			x.Bytes += p.Bytes
			x.Count += p.Count
			return
		}
	}
	r.Pieces = append(r.Pieces, p)
}

func (p *Piece) isNamedAs(q *Piece) bool {
	return p.Cache == q.Cache && p.Module == q.Module && p.Holder == q.Holder && p.Part == q.Part && p.Line == q.Line
}

// HasName reports whether anything is known of a piece.
func (p *Piece) HasName() bool { return !p.isNamedAs(&Piece{}) }

// apportion divides a total in proportion to weights, so that the shares add up to it; by largest
// remainder. Without weights it returns nil.
func apportion(total uint64, weights []uint64) []uint64 {
	var sum float64
	for _, w := range weights {
		sum += float64(w)
	}
	if sum == 0 {
		return nil
	}
	shares := make([]uint64, len(weights))
	rests := make([]float64, len(weights))
	left := total
	for i, w := range weights {
		exact := float64(total) * (float64(w) / sum)
		shares[i] = min(uint64(exact), left)
		rests[i] = exact - float64(shares[i])
		left -= shares[i]
	}
	order := make([]int, 0, len(weights))
	for i, w := range weights {
		if w > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rests[b], rests[a]) })
	each, more := left/uint64(len(order)), left%uint64(len(order))
	for k, i := range order {
		shares[i] += each
		if uint64(k) < more {
			shares[i]++
		}
	}
	return shares
}
