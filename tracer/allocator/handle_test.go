// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/clock"
)

// readOnce walks once, and returns the layout too.
func readOnce(m Memory, known *Layout) (*Snapshot, *Layout, error) {
	a := New(m, known)
	s, err := a.Walk(1)
	return s, a.Layout(), err
}

func TestCountersAreThoseOfAWalk(t *testing.T) {
	p, _ := startShape(t, 260, 50)
	a := New(p, nil)
	s, err := a.Walk(1)
	if err != nil {
		t.Fatal(err)
	}
	begin := clock.Now()
	devices, err := a.Counters()
	if err != nil || len(devices) != len(s.Devices) {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	for i, d := range devices {
		if !d.Exact || !d.LockFree || d.Counters != s.Devices[i].Counters || d.Index != i {
			t.Errorf("device %d: %+v, want the counters %+v", i, d, s.Devices[i].Counters)
		}
		if d.From < begin || d.To < d.From || d.To > clock.Now() {
			t.Errorf("device %d: read from %d to %d, now it is %d", i, d.From, d.To, clock.Now())
		}
	}
	if again, err := New(p, a.Layout()).Counters(); err != nil || again[0].Counters != devices[0].Counters {
		t.Errorf("without a walk: %v", err)
	}
}

func TestAWalkKnowsItsWindow(t *testing.T) {
	p, _ := startShape(t, 260, 50)
	begin := clock.Now()
	s, _, err := readOnce(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := begin
	for i, d := range s.Devices {
		if !d.LockFree || d.From < last || d.To <= d.From || d.To > clock.Now() {
			t.Errorf("device %d: %+v after %d", i, d, last)
		}
		last = d.To
	}
}

func TestALockThatIsHeldIsNotFree(t *testing.T) {
	m := minimal()
	a := New(m, nil)
	if _, err := a.Walk(1); err != nil {
		t.Fatal(err)
	}
	const device = 4096
	m[device] = 1
	s, err := a.Walk(3)
	if err != nil || s.Devices[0].LockFree || s.Devices[0].Exact || len(s.Blocks) != 2 {
		t.Errorf("a walk while the lock is held: %+v, %v", s, err)
	}
	d, err := a.Counters()
	if err != nil || d[0].LockFree || d[0].Exact {
		t.Errorf("counters while the lock is held: %+v, %v", d, err)
	}
}

func TestAddressesThatNoLongerProveThemselvesAreLookedForAgain(t *testing.T) {
	m := minimal()
	a := New(m, nil)
	if _, err := a.Walk(1); err != nil {
		t.Fatal(err)
	}
	const device = 4096
	for name, damage := range map[string]func(){
		"a sum that does not divide": func() { m[device+40+32]++ },
		"no sets":                    func() { clear(m[device+1024 : device+1300]) },
		"no object":                  func() { clear(m[device : device+2048]) },
	} {
		saved := slices.Clone(m)
		damage()
		var e *Error
		if d, err := a.Counters(); !errors.As(err, &e) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		copy(m, saved)
		if _, err := a.Counters(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

func TestAProcessThatEndedIsAnError(t *testing.T) {
	for name, use := range map[string]func(a *Allocator) error{
		"walk":     func(a *Allocator) error { _, err := a.Walk(2); return err },
		"counters": func(a *Allocator) error { _, err := a.Counters(); return err },
	} {
		p, end := startEnding(t)
		a := New(p, nil)
		if _, err := a.Walk(1); err != nil {
			t.Fatal(err)
		}
		end()
		var e *Error
		if err := use(a); !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALayoutOfAnotherProcessOfTheBuildIsUsed(t *testing.T) {
	whole, told := startDivided(t, 260, 40, 1)
	var e *Error
	if _, _, err := readOnce(whole, nil); !errors.As(err, &e) || e.Code != NoChain {
		t.Fatalf("segments that are not divided prove a layout: %v", err)
	}
	var layouts Layouts
	a := layouts.New(whole)
	if _, err := a.Walk(1); !errors.As(err, &e) || e.Code != NoChain {
		t.Fatalf("without another process: %v", err)
	}
	divided, _ := startShape(t, 260, 40)
	if _, err := layouts.New(divided).Walk(1); err != nil {
		t.Fatal(err)
	}
	s, err := a.Walk(1)
	if err != nil || !s.Exact() || !slices.Equal(lines(s), told) {
		t.Errorf("with the layout of another: %v", err)
	}
	other, _ := startDivided(t, 210, 40, 1)
	if _, err := layouts.New(other).Walk(1); !errors.As(err, &e) || e.Code != NoChain {
		t.Errorf("of another build: %v", err)
	}
}

func TestALayoutThatDoesNotProveItselfIsReplaced(t *testing.T) {
	p, told := startShape(t, 260, 40)
	_, right, err := readOnce(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong := *right
	wrong.prev, wrong.next = wrong.next, wrong.prev
	s, found, err := readOnce(p, &wrong)
	if err != nil || !slices.Equal(lines(s), told) || !reflect.DeepEqual(found, right) {
		t.Errorf("a wrong layout: %v, found %+v", err, found)
	}
	whole, _ := startDivided(t, 260, 40, 1)
	wrong = *right
	wrong.ptr, wrong.size = wrong.size, wrong.ptr
	wrong.requested = wrong.size + 8
	var e *Error
	if _, _, err := readOnce(whole, &wrong); !errors.As(err, &e) || e.Code != Contradicted {
		t.Errorf("a wrong layout where none can be found: %v", err)
	}
}

func TestLayoutsSurviveJSON(t *testing.T) {
	for _, version := range []int{113, 260} {
		p, told := startShape(t, version, 30)
		_, l, err := readOnce(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		form, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back Layout
		if err := json.Unmarshal(form, &back); err != nil || !reflect.DeepEqual(&back, l) {
			t.Fatalf("%s: %v, read %+v, want %+v", form, err, back, l)
		}
		if s, _, err := readOnce(p, &back); err != nil || !slices.Equal(lines(s), told) {
			t.Errorf("a walk with it: %v", err)
		}
	}
}

const form260 = `{"format":1,"sets":[1024,1072,1144,1192],"active":1256,"graphs":1520,"stats":40,"ptr":72,"size":48,"requested":true,"prev":88,"next":96,"pool":64}`

func TestLayoutsThatCannotBeAreRefused(t *testing.T) {
	var l Layout
	if err := json.Unmarshal([]byte(form260), &l); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"format":1`, `"format":2`}, {`"format":1`, `"form":1`}, {"[1024,", "[1028,"}, {"[1024,", "[-8,"}, {"[1024,1072,", "[" + "1072,1024,"}, {",1192]", "]"},
		{"1192]", "4080]"}, {`"active":1256`, `"active":1400`}, {`"active":1256`, `"active":1192`}, {`"graphs":1520`, `"graphs":1256`}, {`"graphs":1520`, `"graphs":4096`},
		{`"stats":40`, `"stats":400`}, {`"stats":40`, `"stats":41`}, {`"ptr":72`, `"ptr":192`}, {`"ptr":72`, `"ptr":56`}, {`"next":96`, `"next":88`}, {`"pool":64`, `"pool":-8`}, {"{", "{" + strings.Repeat(" ", maxForm)},
	} {
		if err := json.Unmarshal([]byte(strings.Replace(form260, change[0], change[1], 1)), &l); err == nil {
			t.Errorf("with %.30s in place of %s: %+v", change[1], change[0], l)
		}
	}
}

func TestLayoutsAreBounded(t *testing.T) {
	var c Layouts
	for i := range 2 * maxLayouts {
		c.Put(fmt.Sprint(i), &Layout{})
	}
	c.Put("", &Layout{})
	if len(c.of) != maxLayouts || c.Get("") != nil || c.Get("0") == nil {
		t.Errorf("%d layouts", len(c.of))
	}
}

func FuzzLayout(f *testing.F) {
	f.Add([]byte(form260), []byte{0, 16, 1})
	f.Fuzz(func(t *testing.T, form, changes []byte) {
		var l Layout
		if json.Unmarshal(form, &l) != nil {
			return
		}
		again, err := json.Marshal(&l)
		if err != nil {
			t.Fatal(err)
		}
		var back Layout
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, l) {
			t.Errorf("%s: %v", again, err)
		}
		m := minimal()
		for ; len(changes) >= 3; changes = changes[3:] {
			m[int(binary.LittleEndian.Uint16(changes))%len(m)] = changes[2]
		}
		a := newAllocator(m, &l, 1<<20)
		a.Walk(1)
		a.Counters()
	})
}
