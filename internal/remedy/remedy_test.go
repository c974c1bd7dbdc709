// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// script builds a program from lines "NAME BYTES = STACK" (an allocation) and "-NAME" (a free).
type script struct {
	trace  allocsim.Trace
	ids    map[string]uint32
	stacks [][]callstack.Frame
	sites  map[string]uint32
}

func (s *script) Stack(id uint64) []callstack.Frame { return s.stacks[id] }

func py(file, function string, line int) callstack.Frame {
	return callstack.Frame{Function: function, File: file, Line: line, Python: true}
}

// Stacks by name: what a person reads off a training loop.
var scripted = map[string][]callstack.Frame{
	"weight":  {{Function: "at::_ops::_to_copy::call(at::Tensor const&)"}, py("/t/torch/nn/modules/module.py", "Module._apply", 900), py("/app/train.py", "main", 3)},
	"batch":   {{Function: "at::_ops::empty_memory_format::call()"}, py("/app/train.py", "main", 10)},
	"kept":    {{Function: "at::_ops::mul_Tensor::call()"}, py("/app/train.py", "main", 20)},
	"fused":   {{Function: "at::_ops::softmax_int::call()"}, py("/app/train.py", "main", 21)},
	"scores":  {{Function: "at::_ops::mm::call()"}, py("/app/train.py", "main", 21)},
	"first":   forwardOf("Block.forward", 41),
	"second":  forwardOf("Block.forward", 42),
	"head":    forwardOf("Head.forward", 60),
	"one":     stageOf("at::_ops::linear::call", 11),
	"relu":    stageOf("at::_ops::leaky_relu::call", 11),
	"other":   stageOf("at::_ops::linear::call", 12), // from another line of main
	"relu2":   stageOf("at::_ops::leaky_relu::call", 12),
	"seq":     sequential("at::_ops::linear::call"),
	"seqrelu": sequential("at::_ops::leaky_relu::call"),
	"loader":  {{Function: "at::_ops::to_dtype::call"}, py("/app/train.py", "load", 70), py("/usr/lib/python3.11/threading.py", "Thread._bootstrap", 995)},
	"relued":  nodeOf("Relu", ""),
	"clamped": nodeOf("Clamp", "where"),
	"doubled": nodeOf("Exp2", "mul"),
	"addmm":   nodeOf("Addmm", "mm"),
	"muled":   nodeOf("Mul", "mul_Tensor"),
	"muled_2": nodeOf("Mul", "mul_Tensor_2"),
	"addmm_w": nodeOf("Addmm", "mm_w"),
	"summed":  append([]callstack.Frame{{Function: "at::_ops::sum::call"}, {Function: "torch::autograd::InputMetadata::reduce_grad(at::Tensor&) const"}}, engine...),
	"product": append([]callstack.Frame{{Function: "at::_ops::addmm::call(at::Tensor const&)"}}, forwardOf("Block.forward", 44)[1:]...),
	"stem":    forwardOf("Stem.forward", 70),
	"pool":    append([]callstack.Frame{{Function: "at::_ops::max_pool2d_with_indices::call(at::Tensor const&)"}}, forwardOf("Stem.forward", 71)[1:]...),
	"pooled":  nodeOf("MaxPool2DWithIndices", "max_pool2d_with_indices_backward"),
	"conv":    append([]callstack.Frame{{Function: "torch::autograd::generated::ConvolutionBackward0::apply"}}, engine...),
	"engine":  {{Function: "at::_ops::mm::call(at::Tensor const&)"}, {Function: "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"}},
	"again":   append(forwardOf("Block.forward", 41)[:4:4], callstack.Frame{Function: "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"}),
	"state":   stepOf("AdamW._init_group"),
	"list":    stepOf("_multi_tensor_adamw"),
	"cublas":  {{Function: "at::cuda::getCurrentCUDABlasHandle()"}, py("/app/train.py", "main", 20)},
	"dropout": append([]callstack.Frame{{Function: "at::_ops::native_dropout::call(at::Tensor const&)"}}, forwardOf("Block.forward", 43)[1:]...),
}

var engine = []callstack.Frame{{Function: "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"}}

// stageOf is Stage.forward, which is one statement.
func stageOf(operator string, line int) []callstack.Frame {
	f := forwardOf("Stage.forward", 51)
	f[0].Function, f[1].StartLine, f[4].Line = operator+"(at::Tensor const&)", 50, line
	return f
}

// sequential is Stage.forward where it calls modules in a loop of a Sequential.
func sequential(operator string) []callstack.Frame {
	s := stageOf(operator, 11)
	return append([]callstack.Frame{s[0], py("/t/torch/nn/modules/container.py", "Sequential.forward", 250)}, s[1:]...)
}

// nodeOf is an allocation of a node of the backward pass.
func nodeOf(name, operator string) []callstack.Frame {
	return append([]callstack.Frame{{Function: "at::_ops::" + operator + "::call"}, {Function: "torch::autograd::generated::" + name + "Backward0::apply(std::vector<at::Tensor>&&)"}}, engine...)
}

func forwardOf(function string, line int) []callstack.Frame {
	return []callstack.Frame{
		{Function: "at::_ops::linear::call(at::Tensor const&)"}, py("/app/model.py", function, line),
		py("/t/torch/nn/modules/module.py", "Module._call_impl", 1750), py("/t/torch/nn/modules/module.py", "Module._wrapped_call_impl", 1739), py("/app/train.py", "main", 11),
	}
}

func stepOf(function string) []callstack.Frame {
	return []callstack.Frame{
		{Function: "at::_ops::zeros_like::call(at::Tensor const&)"}, py("/t/torch/optim/adamw.py", function, 171), py("/t/torch/optim/adamw.py", "AdamW.step", 220),
		py("/t/torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 493), py("/app/train.py", "main", 13),
	}
}

const block = 1 << 20

// programOf reads a script: "w 4 weight", "-w". Sizes are in MiB.
func programOf(t *testing.T, text string) (*Program, *script) {
	t.Helper()
	s := &script{ids: map[string]uint32{}, sites: map[string]uint32{}, stacks: [][]callstack.Frame{nil}}
	s.trace.Version = "2.6.0"
	for line := range strings.Lines(text) {
		for _, word := range strings.Split(line, ";") {
			w := strings.Fields(word)
			switch {
			case len(w) == 0:
			case w[0][0] == '-':
				s.trace.Ops = append(s.trace.Ops, allocsim.Op{Kind: allocsim.Free, Block: s.ids[w[0][1:]]})
			default:
				if s.sites[w[2]] == 0 {
					if scripted[w[2]] == nil {
						t.Fatalf("no stack %q", w[2])
					}
					s.stacks = append(s.stacks, scripted[w[2]])
					s.sites[w[2]] = uint32(len(s.stacks) - 1)
				}
				var size uint64
				for _, c := range w[1] {
					size = size*10 + uint64(c-'0')
				}
				s.ids[w[0]] = uint32(len(s.trace.Blocks))
				s.trace.Ops = append(s.trace.Ops, allocsim.Op{Kind: allocsim.Malloc, Block: s.ids[w[0]]})
				s.trace.Blocks = append(s.trace.Blocks, allocsim.Block{Requested: size * block, Site: s.sites[w[2]]})
			}
		}
	}
	MarkSteps(&s.trace, s)
	return New(&s.trace, s), s
}

// peakOf returns the most bytes of a program, in MiB, and checks that it frees each block once,
// after it was allocated.
func peakOf(t *testing.T, p *Program) (peak uint64) {
	t.Helper()
	live, seen := map[uint32]bool{}, map[uint32]bool{}
	var sum uint64
	for i, op := range p.Trace.Ops {
		switch op.Kind {
		case allocsim.Malloc:
			if seen[op.Block] {
				t.Fatalf("operation %d allocates block %d again", i, op.Block)
			}
			live[op.Block], seen[op.Block] = true, true
			sum += p.size(op.Block)
			peak = max(peak, sum)
		case allocsim.Free:
			if !live[op.Block] {
				t.Fatalf("operation %d frees block %d, which is not live", i, op.Block)
			}
			delete(live, op.Block)
			sum -= p.size(op.Block)
		}
	}
	if _, err := allocsim.Run(p.Trace, allocsim.Settings{}, allocsim.Options{}); err != nil {
		t.Fatal(err)
	}
	return peak / block
}

// One step of two blocks: their activations a and b, the first of which a block saves, the second
// is its output.
const step = `
	x 1 batch; a1 8 first; b1 2 second; a2 8 first; b2 2 second; h 1 head
	g 1 engine; -h; -b2; ga 2 engine; -a2; -b1; -g; gb 2 engine; -a1; -ga; -gb; -x`

func TestCheckpointKeepsOutputsAndRecomputesOneCall(t *testing.T) {
	p, _ := programOf(t, step+step+"; e 1 batch")
	if got := peakOf(t, p); got != 23 {
		t.Fatalf("the peak of the script is %d", got)
	}
	q, _, seen, err := p.Checkpoint(ParseFunction("Block.forward"))
	if err != nil {
		t.Fatal(err)
	}
	// In the backward pass of the second call: the batch, the first one's output, an activation,
	// two gradients.
	if got := peakOf(t, q); seen.Count != 4 || seen.Bytes != 32*block || got != 1+2+8+1+2 {
		t.Errorf("peak %d after %+v", got, seen)
	}
	if _, _, _, err := q.Checkpoint(ParseFunction("Block.forward")); err == nil || !strings.Contains(err.Error(), "recomputed already") {
		t.Errorf("recomputed twice: %v", err)
	}
	if _, _, _, err := p.Checkpoint(ParseFunction("Block.forward")); err != nil {
		t.Errorf("a change of one program changes another: %v", err)
	}
}

// TestCallsOfAFunctionThatIsOneStatementAreTold apart where one follows the other.
func TestCallsOfAFunctionThatIsOneStatementAreTold(t *testing.T) {
	p, _ := programOf(t, `
	x 1 batch; a1 8 one; b1 2 relu; a2 8 one; b2 2 relu; h 1 head
	g 1 engine; -h; -b2; ga 2 engine; -a2; -b1; -g; gb 2 engine; -a1; -ga; -gb; -x; e 1 batch`)
	calls, looped, err := p.calls(ParseFunction("Stage.forward"), true)
	if err != nil || looped || len(calls) != 2 || len(calls[0].blocks) != 2 {
		t.Fatalf("%+v, %v", calls, err)
	}
}

// TestAThreadDoesNotEndACall: a loader of batches allocates while a function runs.
func TestAThreadDoesNotEndACall(t *testing.T) {
	p, _ := programOf(t, `
	x 1 batch; a1 8 one; l 1 loader; b1 2 relu; a2 8 one; b2 2 relu; h 1 head
	g 1 engine; -h; -b2; ga 2 engine; -a2; -b1; -g; gb 2 engine; -a1; -ga; -gb; -x; e 1 batch`)
	calls, _, err := p.calls(ParseFunction("Stage.forward"), true)
	if err != nil || len(calls) != 2 || len(calls[0].blocks) != 2 {
		t.Fatalf("%+v, %v", calls, err)
	}
}

// TestALoopBelowAStatementMayBeTwoCalls: a Sequential of two layers allocates as two calls of a
// Sequential of one.
func TestALoopBelowAStatementMayBeTwoCalls(t *testing.T) {
	p, _ := programOf(t, `
	x 1 batch; a1 8 seq; b1 2 seqrelu; a2 8 seq; b2 2 seqrelu; h 1 head
	g 1 engine; -h; -b2; ga 2 engine; -a2; -b1; -g; gb 2 engine; -a1; -ga; -gb; -x; e 1 batch`)
	low, high, _, err := p.Checkpoint(ParseFunction("Stage.forward"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := peakOf(t, low), peakOf(t, high); a >= b || a != peak(low)/block || b != peak(high)/block {
		t.Errorf("peaks of %d and %d MiB", a, b)
	}
	// Two layers at once are live again in one call, one in each of two.
	c, _, err := As(p).Apply(Remedy{Kind: Recompute, Function: ParseFunction("Stage.forward")})
	if err != nil || c.Low == c.High {
		t.Error(c, err)
	}
	one, _ := programOf(t, "x 1 batch; a 8 one; b 2 relu; h 1 head; g 1 engine; -h; -b; ga 2 engine; -a; -g; -ga; -x; e 1 batch")
	if c, _, err = As(one).Apply(Remedy{Kind: Recompute, Function: ParseFunction("Stage.forward")}); err != nil || c.Low != c.High {
		t.Error("a statement without a loop leaves two programs", err)
	}
}

// TestAGraphThatIsDroppedIsNotSavedEither: a generator's call whose result is detached has a graph
// as the one that is trained, until its result is gone.
func TestAGraphThatIsDroppedIsNotSavedEither(t *testing.T) {
	dropped := "x 1 batch; c1 8 other; d1 2 relu2; c2 8 other; d2 2 relu2; y 1 head; -c1; -d1; -c2; -d2; -y; -x;"
	trained := `
	x 1 batch; a1 8 one; b1 2 relu; a2 8 one; b2 2 relu; h 1 head
	g 1 engine; -h; -b2; ga 2 engine; -a2; -b1; -g; gb 2 engine; -a1; -ga; -gb; -x;`
	p, _ := programOf(t, dropped+trained+"e 1 batch")
	if got := peakOf(t, p); got != 23 {
		t.Fatalf("the peak of the script is %d", got)
	}
	f := ParseFunction("Stage.forward")
	q, _, _, err := p.Checkpoint(f)
	if err != nil {
		t.Fatal(err)
	}
	low, high, _, err := p.Offload(Code{Function: f})
	if err != nil {
		t.Fatal(err)
	}
	for what, q := range map[string]*Program{"checkpoint": q, "offload": low, "offload, with variables": high} {
		most, sum := uint64(0), uint64(0)
		for _, op := range q.Trace.Ops[:26] { // up to the trained forward pass
			if op.Kind == allocsim.Malloc {
				sum += q.size(op.Block)
			} else {
				sum -= q.size(op.Block)
			}
			most = max(most, sum)
		}
		if peakOf(t, q); most > 14*block {
			t.Errorf("%s: %d MiB in the call whose result is detached", what, most/block)
		}
	}
}

// TestTheNodeThatFreesABlockTellsWhoSavesIt: a convolution that frees the output of a leaky_relu
// has it as its input, so that the call did not save it.
func TestTheNodeThatFreesABlockTellsWhoSavesIt(t *testing.T) {
	// A relu in place saves what another operator has made; a clamp saves its input, or a copy.
	// What a node makes is summed before it frees what it saved.
	for node, want := range map[string]bool{"conv": true, "engine": false, "relued": false, "conv; s 1 summed; -s": true, "relued; s 1 summed; -s": false, "clamped": true, "doubled": false} {
		p, s := programOf(t, "x 1 batch; a 8 one; b 2 relu; h 1 head; g 1 "+node+"; -b; -h; ga 2 engine; -a; -g; -ga; -x; e 1 batch")
		if got := freedByOther(p, s.ids["b"]); got != want {
			t.Errorf("%s: %v", node, got)
		}
	}
}

func TestCheckpointRefuses(t *testing.T) {
	p, _ := programOf(t, step)
	for name, want := range map[string]string{"Other.forward": "allocates nothing", "other.py:Block.forward": "allocates nothing", "Head.forward": "saves nothing"} {
		if _, _, _, err := p.Checkpoint(ParseFunction(name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestWithoutFreesWhatALineKeepsWhenItsStatementEnds(t *testing.T) {
	p, _ := programOf(t, "w 4 weight; k1 8 kept; b1 1 batch; -b1; k2 8 kept; b2 1 batch; -b2; k3 8 kept; b3 1 batch; -b3; k4 8 kept; b4 1 batch; -b4; -k1; -k2; -k3; -k4; e 1 batch")
	if got := peakOf(t, p); got != 37 {
		t.Fatalf("the peak of the script is %d", got)
	}
	q, seen, err := p.Without(Line{"train.py", 20})
	if err != nil || seen.Count != 4 || seen.Bytes != 32*block {
		t.Fatal(seen, err)
	}
	if got := peakOf(t, q); got != 12 {
		t.Errorf("peak %d, want the weight and one result", got)
	}
	if _, _, err := p.Without(Line{"train.py", 10}); err == nil || !strings.Contains(err.Error(), "keeps nothing") {
		t.Errorf("a line whose results are freed: %v", err)
	}
	if _, _, err := p.Without(Line{"train.py", 99}); err == nil || !strings.Contains(err.Error(), "allocates nothing") {
		t.Errorf("a line that is not there: %v", err)
	}
}

// A loop that has only this line does not interrupt it.
func TestWithoutTellsExecutionsApartThatFollowEachOther(t *testing.T) {
	p, _ := programOf(t, "w 4 weight; f1 2 scores; k1 8 fused; -f1; f2 2 scores; k2 8 fused; -f2; f3 2 scores; k3 8 fused; -f3; f4 2 scores; k4 8 fused; -f4; e 1 batch; -k1; -k2; -k3; -k4")
	q, seen, err := p.Without(Line{"train.py", 21})
	if err != nil || seen.Count != 4 {
		t.Fatal(seen, err)
	}
	if got, before := peakOf(t, q), peakOf(t, p); before != 38 || got != 14 {
		t.Errorf("peak %d before, %d after", before, got)
	}
}

// A workspace that cuBLAS takes below a line is not what the line keeps.
func TestWithoutKeepsWorkspaces(t *testing.T) {
	p, _ := programOf(t, "c 8 cublas; k1 8 kept; b1 1 batch; -b1; k2 8 kept; b2 1 batch; -b2; k3 8 kept; b3 1 batch; -b3; k4 8 kept; e 1 batch")
	q, seen, err := p.Without(Line{"train.py", 20})
	if err != nil || seen.Bytes != 32*block {
		t.Fatal(seen, err)
	}
	if got := peakOf(t, q); got != 16 {
		t.Errorf("peak %d, want the workspace and one result", got)
	}
}

func TestDropGradientsOfALateZeroGrad(t *testing.T) {
	pass := "x 1 batch; a 8 first; ZERO g 4 engine; -a; l 1 list; -l; -x\n"
	text := strings.Replace(pass, "ZERO", "", 1) + strings.Replace(strings.ReplaceAll(pass, " g ", " h "), "ZERO", "-g;", 1) + strings.Replace(pass, "ZERO", "-h;", 1)
	p, _ := programOf(t, text)
	if got := peakOf(t, p); got != 13 {
		t.Fatalf("the peak of the script is %d", got)
	}
	q, seen, err := p.DropGradients()
	if err != nil || seen.Bytes != 4*block {
		t.Fatal(seen, err)
	}
	if got := peakOf(t, q); got != 13 { // the second gradient beside its activation, as in the first step
		t.Errorf("peak %d", got)
	}
	early, _ := programOf(t, "x 1 batch; a 8 first; g 4 engine; -a; l 1 list; -l; -x; -g\n y 1 batch; b 8 first; h 4 engine; -b; m 1 list; -m; -y; -h\n")
	if _, _, err := early.DropGradients(); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("gradients that are dropped in time: %v", err)
	}
}

// Gradients that are set to zero are made anew in each step, from what was added to them before.
func TestDropGradientsThatAreSetToZero(t *testing.T) {
	p, _ := programOf(t, `w 4 weight
		x1 1 batch; a1 8 first; g 4 engine; -a1; l1 1 list; -l1; -x1
		x2 1 batch; a2 8 first; t2 4 engine; -a2; -t2; l2 1 list; -l2; -x2
		x3 1 batch; a3 8 first; t3 4 engine; -a3; -t3; l3 1 list; -l3; -x3; e 1 batch; -g`)
	if got := peakOf(t, p); got != 21 {
		t.Fatalf("the peak of the script is %d", got)
	}
	q, _, err := p.DropGradients()
	if err != nil {
		t.Fatal(err)
	}
	if got := peakOf(t, q); got != 17 {
		t.Errorf("peak %d, want weight, batch, activation and one gradient", got)
	}
	silent, _ := programOf(t, "x1 1 batch; a1 8 first; g 4 engine; -a1; -x1\n x2 1 batch; a2 8 first; t2 4 engine; -a2; -t2; -x2; e 1 first")
	if _, _, err := silent.DropGradients(); err == nil || !strings.Contains(err.Error(), "nothing shows where they end") {
		t.Errorf("an optimizer without allocations: %v", err)
	}
}

func TestOptimizerStateInEightBitsAndShared(t *testing.T) {
	p, _ := programOf(t, `
		x1 1 batch; a1 2 first; g1 16 engine; -a1; s1 16 state; s2 16 state; s3 8 state; s4 8 state; l1 16 list; l2 8 list; -l1; -l2; -g1; -x1
		x2 1 batch; a2 2 first; g2 16 engine; -a2; l3 16 list; l4 8 list; -l3; -l4; -g2; -x2
		x3 1 batch; a3 2 first; g3 16 engine; -a3; l5 16 list; l6 8 list; -l5; -l6; -g3; -x3; e 1 batch`)
	q, seen, err := p.EightBit()
	if err != nil || seen.Bytes != 48*block || seen.Count != 4 {
		t.Fatal(seen, err)
	}
	// A quarter, and 4 bytes for each 256 elements.
	if want := uint64(12*block + 12*block/256*4); seen.After != want {
		t.Errorf("%d bytes in 8 bits, want %d", seen.After, want)
	}
	if got, before := peakOf(t, q), peakOf(t, p); before != 1+16+48+24 || got != 1+2+16+12 {
		t.Errorf("peak %d before, %d after", before, got)
	}
	q, seen, err = p.Shard(2)
	if err != nil || seen.After != 32*block {
		t.Fatal(seen, err)
	}
	if got := peakOf(t, q); got != 1+16+32+16 {
		t.Errorf("peak %d, want the batch, the gradient, the large weight's state and its list", got)
	}
	none, _ := programOf(t, step+step)
	if _, _, err := none.EightBit(); err == nil || !strings.Contains(err.Error(), "no optimizer") {
		t.Errorf("without an optimizer: %v", err)
	}
}

func TestHalfLeavesMasksAndUnknownNumbers(t *testing.T) {
	p, _ := programOf(t, "w 8 weight; c 8 cublas; x 4 batch; d 8 dropout; m 2 dropout; e 1 engine")
	low, high, seen, err := p.Half()
	if err != nil || seen.Unknown != 4*block {
		t.Fatal(seen, err)
	}
	if a, b := peakOf(t, low), peakOf(t, high); a != 4+8+2+4+2 || b != a+2 {
		t.Errorf("peaks %d and %d", a, b)
	}
	if _, _, _, err := low.Half(); err == nil {
		t.Error("halved twice")
	}
}

func TestBatchNeedsTwoSizesOfOneKind(t *testing.T) {
	pass := func(a, b string) string {
		return "x 1 batch; a " + a + " first; b " + b + " second; g 2 engine; -b; -a; -g; -x\n"
	}
	p, _ := programOf(t, pass("4", "6")+pass("8", "12")+pass("4", "6"))
	low, high, seen, err := p.Batch(2)
	if err != nil || seen.Ratio < 1.99 || seen.Ratio > 2.01 {
		t.Fatal(seen, err)
	}
	// Activations scale; the gradient and the batch's own tensor had one size.
	if a, b := peakOf(t, low), peakOf(t, high); a != 1+16+24+2 || b != a {
		t.Errorf("peaks %d and %d", a, b)
	}
	one, _ := programOf(t, pass("4", "6")+pass("4", "6"))
	if _, _, _, err := one.Batch(2); err == nil || !strings.Contains(err.Error(), "one size") {
		t.Errorf("one size: %v", err)
	}
	// Attention grows with the square of the length: that is no batch.
	square, _ := programOf(t, pass("8", "2")+pass("16", "8"))
	if _, _, _, err := square.Batch(2); err == nil || !strings.Contains(err.Error(), "more than the batch") {
		t.Errorf("another length: %v", err)
	}
}

func TestRemediesNeedNativeFrames(t *testing.T) {
	s := &script{stacks: [][]callstack.Frame{{py("/app/train.py", "main", 1)}}}
	s.trace.Blocks = []allocsim.Block{{Requested: block}}
	s.trace.Ops = []allocsim.Op{{Kind: allocsim.Malloc}}
	if _, _, err := As(New(&s.trace, s)).Apply(Remedy{Kind: EightBits}); err == nil || !strings.Contains(err.Error(), "no native frames") {
		t.Error(err)
	}
}

func TestRemediesNeedWholeStacks(t *testing.T) {
	p, s := programOf(t, "w 4 weight; k1 8 kept; b1 1 batch; -b1; k2 8 kept; b2 1 batch; -b2; k3 8 kept; b3 1 batch; -b3; k4 8 kept; e 1 batch")
	r := Remedy{Kind: NoLine, Line: Line{"train.py", 20}}
	if _, _, err := As(p).Apply(r); err != nil {
		t.Fatal(err)
	}
	s.trace.Blocks[0].Site = 0 // without a stack trace
	if _, _, err := As(New(&s.trace, s)).Apply(r); err == nil || !strings.Contains(err.Error(), "1 of 9 allocations") {
		t.Error(err)
	}
}

// Stack traces and lives are the process's: nothing of them may panic or take without end.
func FuzzRemedies(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 128, 129, 130})
	names := []string{"weight", "batch", "kept", "fused", "first", "second", "head", "engine", "again", "state", "list", "cublas", "dropout"}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &script{stacks: [][]callstack.Frame{nil}}
		for _, name := range names {
			s.stacks = append(s.stacks, scripted[name])
		}
		var live []uint32
		for _, c := range in[:min(len(in), 400)] {
			if c >= 128 && len(live) > 0 {
				n := int(c) % len(live)
				s.trace.Ops = append(s.trace.Ops, allocsim.Op{Kind: allocsim.Free, Block: live[n]})
				live = append(live[:n], live[n+1:]...)
				continue
			}
			b := uint32(len(s.trace.Blocks))
			s.trace.Blocks = append(s.trace.Blocks, allocsim.Block{Requested: uint64(c%7) << 18, Site: uint32(c) % uint32(len(names)+1)})
			s.trace.Ops = append(s.trace.Ops, allocsim.Op{Kind: allocsim.Malloc, Block: b})
			live = append(live, b)
		}
		s.trace.Version = "2.6.0"
		p := New(&s.trace, s)
		p.Candidates(len(s.trace.Ops)/2, func(*callstack.Frame) bool { return true })
		if len(in) > 1 {
			other := *p
			p.Beside(&other)
		}
		done := As(p)
		for _, r := range []Remedy{
			{Kind: NoLine, Line: Line{"train.py", 20}}, {Kind: NoLine, Line: Line{"train.py", 11}}, {Kind: Recompute, Function: ParseFunction("Block.forward")}, {Kind: NoGradient},
			{Kind: Sharded, Ranks: 3}, {Kind: EightBits}, {Kind: HalfFloat}, {Kind: Batches, Factor: 1.5},
			{Kind: ToHost, Code: ParseCode("Block.forward")}, {Kind: ToHost, Code: ParseCode("train.py:11")},
		} {
			one, _, err := As(p).Apply(r)
			if err == nil {
				peakOf(t, one.Low)
				peakOf(t, one.High)
			}
			if next, _, err := done.Apply(r); err == nil {
				done = next
				peakOf(t, done.High)
			}
		}
	})
}
