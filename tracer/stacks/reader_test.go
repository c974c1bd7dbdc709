// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"errors"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/unwind"
)

func TestAStackIsKeptLostOrTriedAgain(t *testing.T) {
	busy := true
	r := Reader{
		Decode: func(raw []byte) (unwind.Stack, error) {
			switch {
			case raw[0] == 'b' && busy:
				return unwind.Stack{}, unwind.ErrBusy
			case raw[0] == 'x':
				return unwind.Stack{}, errors.New("damaged")
			case raw[0] == 'p':
				panic("a defect")
			}
			return unwind.Stack{ID: uint64(raw[0]), PID: 7, Frames: []unwind.Frame{{Function: "f"}}}, nil
		},
		UserOf: func(uint32) uint32 { return 1 }, Store: New(40, symbolize.Options{}), Defects: &panics.List{},
	}
	defer r.Store.Close()
	var parked parkedStacks
	for _, raw := range []string{"a", "b", "x", "p"} {
		if !r.Take([]byte(raw)) {
			parked.add([]byte(raw))
		}
	}
	if !parked.again(r.Take) || len(r.Store.Stack('b')) != 0 {
		t.Error("a stack that cannot be decoded yet waits no longer")
	}
	busy = false
	if n := parked.finish(r.Take); n != 0 || len(r.Store.Stack('a')) != 1 || len(r.Store.Stack('b')) != 1 {
		t.Errorf("%d parked stacks are lost, want all kept", n)
	}
	if got := strings.Join(r.Defects.Warnings(), "\n"); r.Lost() != 2 || !strings.Contains(got, "a stack 1 times") {
		t.Errorf("lost %d stacks, want 2; warnings %q", r.Lost(), got)
	}
	parked = parkedStacks{bytes: maxParked}
	if parked.add([]byte("a")); parked.finish(r.Take) != 1 {
		t.Error("a stack that found no room is not counted")
	}
}
