// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/pickle"
)

// decoder reads what the viewer's own decoder reads, and no more: its opcodes, batches that fit one
// call of JavaScript, numbers that it has exactly. Lists are *[]any, so that the memo and the stack
// refer to the same one.
type decoder struct {
	text  []byte
	stack []any
	marks []int
	memo  []any
}

func unpickle(text []byte) (v any, err error) {
	d := &decoder{text: text}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("at %d of %d: %v", len(text)-len(d.text), len(text), r)
		}
	}()
	for {
		if op := d.take(1)[0]; op == '.' {
			break
		} else {
			d.step(op)
		}
	}
	if len(d.stack) != 1 || len(d.marks) != 0 || len(d.text) != 0 {
		return nil, fmt.Errorf("%d values, %d marks and %d bytes are left", len(d.stack), len(d.marks), len(d.text))
	}
	return d.stack[0], nil
}

func (d *decoder) take(n int) []byte {
	b := d.text[:n]
	d.text = d.text[n:]
	return b
}

func (d *decoder) push(v any) { d.stack = append(d.stack, v) }

func (d *decoder) pop(n int) []any {
	list := append([]any(nil), d.stack[len(d.stack)-n:]...)
	d.stack = d.stack[:len(d.stack)-n]
	return list
}

func (d *decoder) popMark() []any {
	mark := d.marks[len(d.marks)-1]
	d.marks = d.marks[:len(d.marks)-1]
	list := d.pop(len(d.stack) - mark)
	if len(list) == 0 || len(list) > 1000 {
		panic(fmt.Sprintf("a batch of %d", len(list)))
	}
	return list
}

func (d *decoder) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := d.take(1)[0]; v < 2 || v > 4 {
			panic(fmt.Sprintf("protocol %d", v))
		}
	case '}':
		d.push(map[string]any{})
	case ']':
		d.push(&[]any{})
	case '(':
		d.marks = append(d.marks, len(d.stack))
	case 'e':
		items := d.popMark()
		list := d.stack[len(d.stack)-1].(*[]any)
		*list = append(*list, items...)
	case 'u':
		items := d.popMark()
		dict := d.stack[len(d.stack)-1].(map[string]any)
		for i := 0; i < len(items); i += 2 {
			key := items[i].(string)
			if _, has := dict[key]; has {
				panic("two values of " + key)
			}
			dict[key] = items[i+1]
		}
	case 0x86:
		list := d.pop(2)
		d.push(&list)
	case 0x88, 0x89:
		d.push(op == 0x88)
	case 'K':
		d.push(int64(d.take(1)[0]))
	case 'M':
		d.push(int64(binary.LittleEndian.Uint16(d.take(2))))
	case 'J':
		d.push(int64(int32(binary.LittleEndian.Uint32(d.take(4)))))
	case 0x8a:
		d.push(long(d.take(int(d.take(1)[0]))))
	case 0x8c:
		d.text8(int(d.take(1)[0]))
	case 'X':
		d.text8(int(binary.LittleEndian.Uint32(d.take(4))))
	case 0x94:
		d.memo = append(d.memo, d.stack[len(d.stack)-1])
	case 'h':
		d.push(d.memo[d.take(1)[0]])
	case 'j':
		d.push(d.memo[binary.LittleEndian.Uint32(d.take(4))])
	default:
		panic(fmt.Sprintf("unknown opcode %#x", op))
	}
}

func (d *decoder) text8(n int) {
	s := string(d.take(n))
	if !utf8.ValidString(s) {
		panic(fmt.Sprintf("%q is not UTF-8", s))
	}
	d.push(s)
}

func long(b []byte) int64 {
	if len(b) == 0 || len(b) > 8 {
		panic(fmt.Sprintf("a number of %d bytes", len(b)))
	}
	var n int64
	for i, x := range b {
		n |= int64(x) << (8 * i)
	}
	shift := 64 - 8*len(b)
	return n << shift >> shift
}

func TestPicklesAreReadBack(t *testing.T) {
	numbers := []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<39 - 1, 1 << 39, 1 << 47, 1<<53 - 1, 1 << 62, math.MaxInt64}
	texts := []string{"", "a", strings.Repeat("x", 255), strings.Repeat("y", 256), "naïve 很", "bad\xff", "a"}
	for i := range 300 { // more than a number of one byte can refer to
		texts = append(texts, fmt.Sprint("t", i))
	}
	var b bytes.Buffer
	p := pickle.NewWriter(&b)
	l := p.List()
	for _, n := range numbers {
		l.Item()
		p.Uint(n)
	}
	for range 2 {
		for _, s := range texts {
			l.Item()
			p.String(s)
		}
	}
	for i := range 2500 {
		l.Item()
		p.Dict()
		p.UintItem("i", uint64(i))
		p.String("even")
		p.Bool(i%2 == 0)
		p.String("none")
		empty := p.List()
		empty.End()
		p.EndDict()
	}
	l.End()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	v, err := unpickle(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := *v.(*[]any)
	if len(got) != len(numbers)+2*len(texts)+2500 {
		t.Fatalf("%d items", len(got))
	}
	for i, n := range numbers {
		if got[i] != int64(n) {
			t.Errorf("%d became %v", n, got[i])
		}
	}
	for i := range 2 * len(texts) {
		want := strings.ToValidUTF8(texts[i%len(texts)], "")
		if got[len(numbers)+i] != want {
			t.Errorf("%q became %q", want, got[len(numbers)+i])
		}
	}
	for i, x := range got[len(numbers)+2*len(texts):] {
		dict := x.(map[string]any)
		if dict["i"] != int64(i) || dict["even"] != (i%2 == 0) || len(*dict["none"].(*[]any)) != 0 {
			t.Fatalf("%d: %v", i, dict)
		}
	}
}
