// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

const (
	maxName  = 60  // characters of one name
	maxDepth = 128 // named steps of a path
)

// inGraph follows a path, or the piece of one, that goes through an autograd graph.
const inGraph = " (autograd graph)"

// endedByError follows the place of a variable that the traceback of an error keeps.
const endedByError = ", which an error ended"

// RootKind is where a path begins.
type RootKind uint8

const (
	RootNone      RootKind = iota // nothing in Python holds it, or it was not found
	RootModule                    // a module's variables
	RootLocal                     // a local variable of a function that runs
	RootTemporary                 // a value that a function that runs is working with
	RootGlobals                   // the globals of a function whose module is not in sys.modules
	RootCycle                     // objects that only hold each other
	RootNative                    // C++ only
)

// Root is where a path begins.
type Root struct {
	Kind     RootKind
	Name     string // of the module or the variable
	Function string // of RootLocal, RootTemporary and RootGlobals
	File     string // without its folder
	Line     int    // where the function begins: the name of a path stays the same while it runs
	Now      int    // the line that the function executed when it was read; 0: unknown, as before Python 3.11
	Ended    bool   // an error has ended the function: the error's traceback keeps its variables until the next error
	Class    string // of the object in the variable, of RootLocal and RootTemporary; of RootNone and RootNative that of an object in Python that only C++ has
	Classes  string // of RootCycle: "Cyc, list"; of RootNative: what holds it

	own bool // of the program, not of a library
}

// StepKind is one way in which an object holds another.
type StepKind uint8

const (
	stepRoot    StepKind = iota
	StepKey              // a value in a dictionary: ['name'] or [*]
	StepEntry            // a key of a dictionary
	StepIndex            // an element of a list, a deque or a set: [*]
	StepElement          // an element of a queue, whose memory has free places: [*]
	StepItem             // an element of a tuple: [1]
	StepAttr             // an attribute, a slot or a variable of a module
	StepChild            // a parameter, buffer or submodule of a torch.nn.Module
	StepField            // a field of a C structure that has no name
	StepCell             // a variable of an enclosing function
	StepLocal            // a local variable of a generator, a coroutine or a kept frame
	StepGrad             // .grad
	StepGraph            // the autograd graph of a tensor
	StepContext          // the context of a custom autograd function
	StepHook             // what a hook of the graph keeps
	StepBase             // the tensor that a view looks at
	stepThrough          // nothing that people write: a cell's value, the Python object of a tensor
	stepDict             // the dictionary of an instance, a class or a module
	stepModules          // _parameters, _modules, _buffers
	stepNext             // within a graph
	stepMore             // what a path has beyond maxDepth: "…"
)

// Step is one link of a path.
type Step struct {
	Kind     StepKind
	Name     string // of an attribute, a key, a variable; "" if it has none or names are not wanted
	Function string // of StepLocal
	Index    int    // of StepItem
	Class    string // of the object that the step leads to
	Size     int    // its entries, if it is a container, or -1
	Ended    bool   // what it leads from is a task, or a frame of a function, that has ended
	OwnKey   bool   // of StepKey: its key is a weak reference to an object that only the value keeps
	InTable  bool   // of StepKey: its key is one of so many that they are data, no names
	ByTensor bool   // of StepKey: its key is a tensor
	InDict   bool   // of StepChild: a ModuleDict or ParameterDict has it
}

// Relation is how a storage belongs to what its path names.
type Relation uint8

const (
	Direct Relation = iota // a tensor or storage of the path itself
	Grad                   // .grad of it
	Graph                  // the autograd graph of it
	Base                   // what it is a view of
)

// Container is the innermost container on a path.
type Container struct {
	Address uint64 // in the process; it identifies the container between two walks
	Class   string // "list", "OrderedDict"
	Entries int
}

// Holder is a path from a root to storages. Storages that are held in the same way share one.
type Holder struct {
	root     *Root
	parent   *Holder
	step     Step
	depth    int
	relation Relation
	object   string // class of the object that holds an allocation: "numba DeviceNDArray"
	named    bool

	// Of the steps up to this one, which many storages share.
	owner *Step         // the last one that is not of the graph; of the root its class
	ways  retention.Set // how the path keeps what it leads to
	cache bool          // a name or a class is that of a cache of keys and values
}

// Root returns where the path begins.
func (h *Holder) Root() Root { return *h.root }

// Relation returns how storages belong to the path.
func (h *Holder) Relation() Relation { return h.relation }

// Steps returns the links of the path, from its root on.
func (h *Holder) Steps() []Step {
	steps := make([]Step, h.depth)
	for p := h; p.parent != nil; p = p.parent {
		steps[p.depth-1] = p.step
	}
	return steps
}

// String returns the path as people write it: "model.layers.3.fc1.weight",
// "optimizer.state[*]['exp_avg']", `local "outs"[*] of evaluate() (eval.py:41)`.
func (h *Holder) String() string { return h.text(false) }

// Pattern returns the path with a star for each number: "model.layers.*.fc1.weight". Holders with
// the same pattern are one line of a report.
func (h *Holder) Pattern() string { return h.text(true) }

// ByClass returns the end of the path from the innermost attribute on, with the class that has it:
// "Trainer.history[*]" of "local "t".trainer.history[*]". It is the same for all instances of a
// class. It is "" where no object on the path has an attribute.
func (h *Holder) ByClass() string {
	steps := h.Steps()
	for k := len(steps) - 1; k >= 0; k-- {
		class := h.root.Class
		if k > 0 {
			class = steps[k-1].Class
		}
		if steps[k].Kind != StepAttr || class == "" || class == "module" || class == "type" {
			continue
		}
		var b strings.Builder
		b.WriteString(class)
		for _, s := range steps[k:] {
			if s.Kind != StepGraph {
				s.write(&b, true, h.named)
			}
		}
		if h.relation == Graph {
			b.WriteString(inGraph)
		}
		return b.String()
	}
	return ""
}

func (h *Holder) text(stars bool) string {
	var b strings.Builder
	h.root.begin(&b, h.named)
	graph := false
	for _, s := range h.Steps() {
		if s.Kind == StepGraph {
			graph = true
			continue
		}
		s.write(&b, stars, h.named)
	}
	out := strings.TrimPrefix(b.String(), ".")
	if out == "" {
		out = "?"
	}
	if graph {
		out += inGraph
	}
	if h.object != "" {
		out += " (" + h.object + ")"
	}
	return out + h.root.end()
}

// begin writes what stands in front of the steps.
func (r *Root) begin(b *strings.Builder, named bool) {
	switch r.Kind {
	case RootModule:
		if r.Name != "__main__" {
			b.WriteString(r.Name)
		}
	case RootLocal:
		b.WriteString("local")
		if named {
			fmt.Fprintf(b, " %q", r.Name)
		}
	case RootTemporary:
		b.WriteString("temporary")
	case RootGlobals:
		b.WriteString("globals")
	case RootCycle:
		fmt.Fprintf(b, "cycle of %s", r.Classes)
	case RootNative:
		b.WriteString(r.Classes)
	case RootNone:
		b.WriteString("no holder found")
	}
	if (r.Kind == RootNone || r.Kind == RootNative) && r.Class != "" {
		b.WriteString(": " + r.Class)
	}
}

// end writes what stands behind the steps.
func (r *Root) end() string {
	if where := r.Where(); where != "" {
		return " of " + where
	}
	return ""
}

// Where returns where a function's variable is: "main() (train.py:7)"; "" for a module, a cycle and
// what Python does not hold.
func (r *Root) Where() string {
	switch r.Kind {
	case RootLocal, RootTemporary, RootGlobals:
		if r.Function == "" {
			return r.function()
		}
		place := fmt.Sprintf("%s (%s:%d)", r.function(), r.File, r.Line)
		if r.Ended {
			place += endedByError
		}
		return place
	}
	return ""
}

// function returns the root's function as paths name it: "main()", "<module>".
func (r *Root) function() string {
	switch name := r.Function; {
	case name == "":
		return "a function"
	case !strings.HasSuffix(name, ">") || strings.Contains(name, "<locals>"):
		return name + "()"
	default:
		return name
	}
}

// write appends a step.
func (s Step) write(b *strings.Builder, stars, named bool) {
	switch s.Kind {
	case StepAttr, StepChild, StepField:
		s.writeName(b, stars, named)
	case StepKey:
		if s.Name == "" || stars && s.InTable {
			b.WriteString("[*]")
		} else {
			fmt.Fprintf(b, "['%s']", s.key(stars))
		}
	case StepEntry:
		b.WriteString(".keys()")
	case StepIndex, StepElement:
		b.WriteString("[*]")
	case StepItem:
		if stars || s.Index >= 8 {
			b.WriteString("[*]")
		} else {
			fmt.Fprintf(b, "[%d]", s.Index)
		}
	case StepCell:
		fmt.Fprintf(b, ".<closure %s>", s.Name)
	case StepLocal:
		fmt.Fprintf(b, ".<local %s of %s()>", s.Name, s.Function)
	case StepGrad:
		b.WriteString(".grad")
	case StepContext:
		b.WriteString(".<ctx>")
	case StepHook:
		b.WriteString(".<hook>")
	case StepBase:
		b.WriteString("._base")
	case stepMore:
		b.WriteString("…")
	}
}

func (s Step) writeName(b *strings.Builder, stars, named bool) {
	switch {
	case s.Class == "" && (s.Name == "" || !named): // a C++ object
	case !named, s.Name == "":
		b.WriteString(".<" + s.Class + ">")
	case stars && s.Kind == StepChild && isNumber(s.Name):
		b.WriteString(".*")
	case s.InDict:
		b.WriteString("." + s.key(stars))
	default:
		b.WriteString("." + s.Name)
	}
}

var digits = lazyregexp.New(`[0-9]+`)

// manyOf reports whether the step leads to each element of a container, which has no name.
func (s *Step) manyOf() bool {
	switch s.Kind {
	case StepIndex, StepElement, StepEntry:
		return true
	case StepKey:
		return s.Name == "" || s.InTable || s.key(true) != s.Name
	case StepChild:
		return s.InDict && s.key(true) != s.Name
	}
	return false
}

// key returns a name that is a key, with a star for each number: "request-*", "layers.*.weight".
func (s *Step) key(stars bool) string {
	if !stars {
		return s.Name
	}
	return digits.ReplaceAllString(s.Name, "*")
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// cut60 cuts a name off at 60 characters.
func cut60(s string) string {
	if utf8.RuneCountInString(s) <= maxName {
		return s
	}
	return string([]rune(s)[:maxName-1]) + "…"
}

// cutFront60 leaves at most 60 characters of the end of a name: of a class, after its namespaces.
func cutFront60(s string) string {
	if utf8.RuneCountInString(s) <= maxName {
		return s
	}
	r := []rune(s)
	return "…" + string(r[len(r)-maxName+1:])
}

// privacy decides whether names of the process are shown.
type privacy struct{ hideNames bool }

// readable makes a name of the process fit to be read, or leaves it out.
func (p privacy) readable(name string) string {
	if p.hideNames {
		return ""
	}
	return cut60(untrusted.Clean(name))
}
