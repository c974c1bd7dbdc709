// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Beside sets another capture of the program, with batches of another size. Batch compares the two.
func (p *Program) Beside(other *Program) { p.beside = other }

// against returns a program beside another one.
func against(p, other *Program) *Program {
	own := *p
	own.beside = other
	return &own
}

// numbered returns numbers of the sites of a program and of the one beside it: equal stack traces
// have one number.
func numbered(p *Program) func(of *Program, site uint32) uint32 {
	if p.beside == nil {
		return func(_ *Program, site uint32) uint32 { return site }
	}
	known := map[string]uint32{}
	numbers := map[*Program]map[uint32]uint32{p: {}, p.beside: {}}
	for of, sites := range numbers {
		for n, s := range of.sites {
			name := nameOf(s.stack, n&recomputed != 0)
			k, ok := known[name]
			if !ok {
				k = uint32(len(known))
				known[name] = k
			}
			sites[n] = k
		}
	}
	return func(of *Program, site uint32) uint32 { return numbers[of][site] }
}

// nameOf names a stack trace by what two runs have in common: functions, and the lines of Python.
// It leaves out functions without a symbol, which frames name by their addresses.
func nameOf(stack []callstack.Frame, again bool) string {
	var b strings.Builder
	b.WriteString(strconv.FormatBool(again))
	for i := range stack {
		switch f := &stack[i]; {
		case f.Python:
			b.WriteString("\n" + f.Function + "\t" + f.File + "\t" + strconv.Itoa(f.Line))
		case f.Function != "" && !strings.HasPrefix(f.Function, "0x"):
			b.WriteString("\n" + f.Function)
		}
	}
	return b.String()
}
