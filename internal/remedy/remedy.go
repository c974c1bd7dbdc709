// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// Kind is what a remedy changes.
type Kind uint8

const (
	NoLine     Kind = iota // Without
	Recompute              // Checkpoint
	NoGradient             // DropGradients
	EightBits              // EightBit
	Sharded                // Shard
	HalfFloat              // Half
	Batches                // Batch
	ToHost                 // Offload
)

// Remedy is one change of a program. Fields that its Kind does not need are zero.
type Remedy struct {
	Kind     Kind
	Line     Line
	Function Function
	Code     Code // of ToHost
	Ranks    int
	Factor   float64
}

// String returns the remedy as the options of vramprof whatif: "--without train.py:72".
func (r Remedy) String() string {
	switch r.Kind {
	case NoLine:
		return "--without " + r.Line.String()
	case Recompute:
		return "--checkpoint " + r.Function.String()
	case NoGradient:
		return "--set-to-none"
	case EightBits:
		return "--optimizer-8bit"
	case Sharded:
		return "--shard-optimizer " + strconv.Itoa(r.Ranks)
	case HalfFloat:
		return "--half"
	case ToHost:
		return "--offload " + r.Code.String()
	case Batches:
		return "--batch " + strconv.FormatFloat(r.Factor, 'g', -1, 64)
	}
	return ""
}

// Changed are a program after remedies. Where nothing proves how much a remedy changes, Low and
// High are the least and the most memory that it leaves; otherwise they are the same program.
type Changed struct{ Low, High *Program }

// As returns a program as it is.
func As(p *Program) Changed { return Changed{p, p} }

// Apply returns the program after one more remedy.
func (c Changed) Apply(r Remedy) (Changed, Evidence, error) {
	low, high, seen, err := r.apply(c.Low)
	if err == nil && c.High != c.Low {
		_, high, _, err = r.apply(c.High)
	}
	if err != nil {
		return Changed{}, seen, err
	}
	return Changed{low, high}, seen, nil
}

// apply returns the programs with the least and the most memory.
func (r Remedy) apply(p *Program) (low, high *Program, seen Evidence, err error) {
	if err := p.whole(); err != nil {
		return nil, nil, seen, err
	}
	if err := p.complete(); err != nil && r.Kind != NoLine {
		return nil, nil, seen, err
	}
	switch r.Kind {
	case NoLine:
		low, seen, err = p.Without(r.Line)
	case NoGradient:
		low, seen, err = p.DropGradients()
	case EightBits:
		low, seen, err = p.EightBit()
	case Sharded:
		low, seen, err = p.Shard(r.Ranks)
	case Recompute:
		low, high, seen, err = p.Checkpoint(r.Function)
	case HalfFloat:
		low, high, seen, err = p.Half()
	case Batches:
		low, high, seen, err = p.Batch(r.Factor)
	case ToHost:
		low, high, seen, err = p.Offload(r.Code)
	default:
		err = fmt.Errorf("remedy %d is unknown", r.Kind)
	}
	if high == nil {
		high = low
	}
	if err != nil || p.beside == nil || r.Kind == Batches {
		return low, high, seen, err
	}
	if least, most, _, err := r.apply(p.beside); err == nil { // so that the two can still be compared
		one := low == high && least == most
		if low, high = against(low, least), against(high, most); one {
			high = low
		}
	}
	return low, high, seen, nil
}

// whole fails where more than one in 100 allocations has no stack trace, or a truncated one.
// PyTorch's own Python stack traces, of which a backward pass has none, are for complete to judge.
func (p *Program) whole() error {
	all, broken, native := 0, 0, false
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		all++
		s := p.site(op.Block)
		native = native || s.native
		if s.broken {
			broken++
		}
	}
	if native && broken*100 > all {
		return fmt.Errorf("%d of %d allocations have no whole stack trace", broken, all)
	}
	return nil
}

// complete fails where stack traces cannot tell a backward pass from anything else.
func (p *Program) complete() error {
	none, python := 0, 0
	for _, s := range p.sites {
		if s.native {
			return nil
		}
		if len(s.stack) == 0 {
			none++
		} else {
			python++
		}
	}
	if python == 0 {
		return errors.New("the file has no stack traces")
	}
	return errors.New("the stack traces have no native frames, so nothing shows a backward pass: record with vramprof, or with stacks=\"all\"")
}
