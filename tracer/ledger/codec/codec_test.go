// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"reflect"
	"testing"
)

// fields has a field of each kind.
type fields struct {
	small  int32
	large  uint64
	flag   bool
	float  float64
	stack  uint64
	text   string
	list   []uint64
	byName map[string]int64
}

func (x *fields) carry(c *Codec) {
	Num(c, &x.small)
	Most(c, &x.large, 1<<62)
	c.Flags(&x.flag)
	c.Float(&x.float)
	c.Stack(&x.stack)
	c.Text(&x.text)
	List(c, &x.list, 3, func(n *uint64) { Num(c, n) })
	Map(c, &x.byName, 3, func(name *string, n *int64) {
		c.Text(name)
		Num(c, n)
	})
}

var example = fields{-5, 1 << 62, true, 2.5, 77, "a", []uint64{1, 2, 3}, map[string]int64{"a": -1, "b": 2}}

func TestAReaderGetsWhatAWriterWrote(t *testing.T) {
	was, w, steps := example, NewWriter(), 0
	was.carry(w)
	if len(w.Texts) != 2 {
		t.Errorf("texts %q, want each once", w.Texts)
	}
	var is fields
	r := NewReader(w.Data, w.Stacks, w.Texts, func(n int) { steps += n })
	if is.carry(r); r.Bad || len(r.Rest) != 0 || !reflect.DeepEqual(was, is) {
		t.Errorf("got %+v, bad %v, %d bytes are left", is, r.Bad, len(r.Rest))
	}
	if steps < stepsPerByte*3*8 {
		t.Errorf("%d steps for a list of three numbers", steps)
	}
}

func TestDataThatEndsTooEarlyIsBad(t *testing.T) {
	was, w := example, NewWriter()
	was.carry(w)
	for n := range w.Data {
		var is fields
		r := NewReader(w.Data[:n], w.Stacks, w.Texts, func(int) {})
		if is.carry(r); !r.Bad {
			t.Errorf("%d of %d bytes are taken for the whole", n, len(w.Data))
		}
	}
}

func TestWhatExceedsALimitIsBad(t *testing.T) {
	many, w := []uint64{1, 2, 3, 4}, NewWriter()
	List(w, &many, 4, func(n *uint64) { Num(w, n) })
	r := NewReader(w.Data, nil, nil, func(int) {})
	if List(r, &many, 3, func(n *uint64) { Num(r, n) }); !r.Bad {
		t.Error("a list of four is taken where three are allowed")
	}
	large, w := uint64(9), NewWriter()
	Num(w, &large)
	r = NewReader(w.Data, nil, nil, func(int) {})
	if Most(r, &large, 8); !r.Bad {
		t.Error("9 is taken where 8 is the most")
	}
	stack, w := uint64(7), NewWriter()
	w.Stack(&stack)
	r = NewReader(w.Data, nil, nil, func(int) {})
	if r.Stack(&stack); !r.Bad {
		t.Error("a stack that is not there is taken")
	}
}
