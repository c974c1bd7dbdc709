// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Object is a kind of object that a stack can prove.
type Object uint8

const (
	objectUnknown Object = iota
	objectNCCL
	objectCuBLAS
	objectWorkspace
	objectOptimizer
	objectGradient
	objectBackward
	objectPrefetched
	objectPinned
	objectParameter
	objectLoaded
	objectActivation
)

var objectNames = [...]string{
	objectNCCL:       "NCCL buffers",
	objectCuBLAS:     "cuBLAS workspace",
	objectWorkspace:  "workspace",
	objectOptimizer:  "optimizer state",
	objectGradient:   "gradient",
	objectBackward:   "backward pass",
	objectPrefetched: "data loader's pinned buffers",
	objectPinned:     "pinned buffers",
	objectParameter:  "parameters",
	objectLoaded:     "loaded checkpoint",
	objectActivation: "activation",
}

// String returns the name in reports: "optimizer state"; "" of an unknown object.
func (o Object) String() string { return objectNames[o] }

// OfLibrary reports whether the object is what a library of NVIDIA's took for itself.
func (o Object) OfLibrary() bool {
	return o == objectCuBLAS || o == objectNCCL || o == objectWorkspace
}

var (
	// cublasCreate_v2, and of PyTorch getNewWorkspace (a local symbol in wheels; its caller
	// getCurrentCUDABlasHandle is not), getCUDABlasLtWorkspace, parseChosenWorkspaceSize.
	cuBLAS        = lazyregexp.New(`(?i)^cublas\w*Create\w*$|^getNewWorkspace$|^getCurrentCUDABlasHandle$|cublas\w*workspace|CUDABlas\w*Workspace`)
	cuBLASLibrary = lazyregexp.New(`^libcublas(Lt)?\.so`)

	// cudnnCreate, cufftMakePlanMany.
	workspace = lazyregexp.New(`(?i)workspace|^(cudnn|cusolverDn|cusparse|cufft)\w*(Create|MakePlan|Plan)\w*(_v2)?$`)

	backward = lazyregexp.New(`(^|::)\w+Backward\d*::apply\(|^torch::autograd::Engine::|^torch::autograd::python::PythonEngine::`)

	inOptimizer  = lazyregexp.New(`(^|/)torch/optim/[^/]+\.py$`)
	inModules    = lazyregexp.New(`(^|/)torch/nn/(modules/[^/]+|functional|parallel/[^/]+)\.py$`)
	inModuleBase = lazyregexp.New(`(^|/)torch/nn/modules/module\.py$`)
	inParameter  = lazyregexp.New(`(^|/)torch/nn/parameter\.py$`)
	inLoader     = lazyregexp.New(`(^|/)torch/utils/data/`)
	inSaved      = lazyregexp.New(`(^|/)torch/serialization\.py$`)
)

// objects finds the kind of object that a stack allocates. It caches the proofs of single frames,
// which recur in many stacks.
type objects map[frameKey]proof

// frameKey is all of a frame that a proof depends on.
type frameKey struct {
	function, file string
	mapping        *callstack.Mapping
	python         bool
}

// proof is what one frame proves.
type proof struct {
	object  Object // objectUnknown if it proves none
	settles bool   // whatever the others prove
	call    bool   // of a module's forward pass
}

// find returns the kind of object that a stack allocates. The innermost proof wins, except
// for what a library allocates in the middle of it: NCCL and workspaces.
func (o objects) find(stack []callstack.Frame, kind ledger.Kind) Object {
	found, module := objectUnknown, false
	for i := range stack {
		p := o.proofOf(&stack[i])
		if p.settles {
			return p.object
		}
		found = cmp.Or(found, p.object)
		module = module || p.call
	}
	if found == objectUnknown && module {
		found = objectActivation
	}
	if kind.OnHost() {
		switch {
		case found == objectPrefetched:
		case kind == ledger.Pinned && allocatedByTorch(stack):
			found = objectPinned
		default:
			found = objectUnknown
		}
	}
	return found
}

// maxProofs is the most frames in the cache.
const maxProofs = 1 << 16

func (o objects) proofOf(f *callstack.Frame) proof {
	key := frameKey{f.Function, f.File, f.Mapping, f.Python}
	p, known := o[key]
	if !known {
		p = proofOf(f)
		if len(o) < maxProofs {
			o[key] = p
		}
	}
	return p
}

func proofOf(f *callstack.Frame) proof {
	switch {
	case f.Python:
		return proof{object: pythonObject(f), call: isCall(f)}
	case isNCCL(f):
		return proof{object: objectNCCL, settles: true}
	case cuBLAS.MatchString(base(f.Function)), f.Mapping != nil && cuBLASLibrary.MatchString(path.Base(f.Mapping.Path)):
		return proof{object: objectCuBLAS, settles: true}
	case workspace.MatchString(base(f.Function)):
		return proof{object: objectWorkspace, settles: true}
	case strings.HasPrefix(f.Function, "torch::autograd::AccumulateGrad::"):
		return proof{object: objectGradient}
	case backward.MatchString(f.Function):
		return proof{object: objectBackward}
	}
	return proof{}
}

// base returns a C++ function without its parameters and namespaces: "at::cuda::getNewWorkspace()"
// gives "getNewWorkspace".
func base(function string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(function, "(anonymous namespace)::", ""), "(")
	if i := strings.LastIndex(name, "::"); i >= 0 {
		name = name[i+2:]
	}
	return name
}

func isNCCL(f *callstack.Frame) bool {
	name := base(f.Function)
	return f.Mapping != nil && strings.HasPrefix(path.Base(f.Mapping.Path), "libnccl") ||
		strings.HasPrefix(name, "nccl") && len(name) > 4 && name[4] >= 'A' && name[4] <= 'Z'
}

// isCall reports whether a frame calls the forward pass of a module.
func isCall(f *callstack.Frame) bool {
	return inModuleBase.MatchString(f.File) && (method(f) == "_call_impl" || method(f) == "inner")
}

// method returns the function of a Python frame: "Adam._init_group", or without its class before
// Python 3.11.
func method(f *callstack.Frame) string { return f.Function[strings.LastIndexByte(f.Function, '.')+1:] }

// pythonObject returns what one Python frame proves.
func pythonObject(f *callstack.Frame) Object {
	name := method(f)
	switch file := f.File; {
	case inOptimizer.MatchString(file):
		if name == "_init_group" || name == "load_state_dict" {
			return objectOptimizer
		}
	case inModuleBase.MatchString(file) && (name == "convert" || name == "_apply"),
		inParameter.MatchString(file),
		inModules.MatchString(file) && (name == "__init__" || name == "reset_parameters"):
		return objectParameter
	case inModules.MatchString(file):
		if name == "forward" {
			return objectActivation
		}
	case inLoader.MatchString(file):
		if strings.Contains(file, "pin_memory") || name == "pin_memory" {
			return objectPrefetched
		}
	case inSaved.MatchString(file):
		return objectLoaded
	}
	return objectUnknown
}

// allocatedByTorch reports whether a library of PyTorch asked for the memory, as its cache of
// pinned buffers does.
func allocatedByTorch(stack []callstack.Frame) bool {
	for i := range stack[:min(len(stack), 4)] {
		if m := stack[i].Mapping; m != nil && callstack.IsTorch(m.Path) {
			return true
		}
	}
	return false
}

// isUser reports whether the headline of a stack is in the user's own code.
func isUser(stack []callstack.Frame, at int) bool {
	class := frames.ClassOf(&stack[at])
	return class == frames.UserPython || class == frames.UserNative && at > 0
}
