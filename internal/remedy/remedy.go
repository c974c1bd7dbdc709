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
	low, seen, err := r.apply(c.Low, false)
	if err != nil {
		return Changed{}, seen, err
	}
	high := low
	if c.High != c.Low || r.Kind == HalfFloat || r.Kind == Batches || r.Kind == ToHost {
		if high, _, err = r.apply(c.High, true); err != nil {
			return Changed{}, seen, err
		}
	}
	return Changed{low, high}, seen, nil
}

// apply returns the program with the least or the most memory.
func (r Remedy) apply(p *Program, most bool) (*Program, Evidence, error) {
	if err := p.whole(); err != nil {
		return nil, Evidence{}, err
	}
	if p.beside != nil && r.Kind != Batches { // so that the two can still be compared
		own := *p
		if own.beside, _, _ = r.apply(p.beside, most); own.beside == nil {
			own.beside = p.beside
		}
		p = &own
	}
	if err := p.complete(); err != nil && r.Kind != NoLine {
		return nil, Evidence{}, err
	}
	switch r.Kind {
	case NoLine:
		return p.Without(r.Line)
	case Recompute:
		return p.Checkpoint(r.Function)
	case NoGradient:
		return p.DropGradients()
	case EightBits:
		return p.EightBit()
	case Sharded:
		return p.Shard(r.Ranks)
	}
	low, high, seen, err := (*Program)(nil), (*Program)(nil), Evidence{}, fmt.Errorf("remedy %d is unknown", r.Kind)
	switch r.Kind {
	case HalfFloat:
		low, high, seen, err = p.Half()
	case Batches:
		low, high, seen, err = p.Batch(r.Factor)
	case ToHost:
		low, high, seen, err = p.Offload(r.Code)
	}
	if most {
		low = high
	}
	return low, seen, err
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
