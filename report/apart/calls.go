// SPDX-License-Identifier: Apache-2.0

package apart

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Calls collects what one line of code called, to tell its stacks apart. The zero value is empty.
type Calls struct{ list []called }

// called is a stack of the line.
type called struct {
	stack []callstack.Frame // with the line at an index; nil: below is known
	at    int
	below []string
	bytes uint64
}

// Call is a function by which some stacks of a line differ from others, with their bytes.
type Call struct {
	Name  string // "GELU.forward", clean of control characters
	Bytes uint64
}

// MostStacks is how many stacks of a line are told apart: a row has no room for more.
const MostStacks = 256

// Add adds a stack that frames.Visible returned, of which the line is the frame at an index.
func (c *Calls) Add(stack []callstack.Frame, at int, bytes uint64) {
	c.add(called{stack: stack, at: at, bytes: bytes})
}

// AddNames adds what frames.Below returned of a stack. Stacks beyond MostStacks are left out.
func (c *Calls) AddNames(below []string, bytes uint64) { c.add(called{below: below, bytes: bytes}) }

func (c *Calls) add(x called) {
	if len(c.list) < MostStacks {
		c.list = append(c.list, x)
	}
}

// Names returns by what the stacks differ, those with most bytes first; nil if by nothing.
func (c *Calls) Names() []Call {
	if len(c.list) < 2 {
		return nil
	}
	lists := make([][]string, len(c.list))
	for i := range c.list {
		x := &c.list[i]
		if lists[i] = x.below; x.stack != nil {
			lists[i] = frames.Below(x.stack, x.at)
		}
	}
	var list []Call
	for i, name := range Names(lists) {
		n := slices.IndexFunc(list, func(x Call) bool { return x.Name == name })
		if n < 0 {
			n = len(list)
			list = append(list, Call{Name: name})
		}
		list[n].Bytes += c.list[i].bytes
	}
	if len(list) < 2 {
		return nil
	}
	list = slices.DeleteFunc(list, func(x Call) bool { return x.Name == "" })
	slices.SortFunc(list, func(a, b Call) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name)) })
	return list
}

// mostNames is how many calls a row names.
const mostNames = 3

// CallsText returns "GELU.forward, Linear.forward, 2 more", "" of none.
func CallsText(list []Call) string {
	var parts []string
	for _, x := range list[:min(len(list), mostNames)] {
		parts = append(parts, x.Name)
	}
	if more := len(list) - mostNames; more > 0 {
		parts = append(parts, format.Count(uint64(more), "other"))
	}
	return strings.Join(parts, ", ")
}
