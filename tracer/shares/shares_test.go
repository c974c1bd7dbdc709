// SPDX-License-Identifier: Apache-2.0

package shares

import "testing"

func TestTextNamesTheProcessesThatLostMost(t *testing.T) {
	const what = "events that processes sent beyond their share of the kernel half's tables and rings, or without room: "
	for _, c := range []struct {
		events, stacks map[uint32]uint64
		want           string
		before         lossSum
	}{
		{},
		{map[uint32]uint64{7: 2}, map[uint32]uint64{7: 9, 8: 1}, what + "process 7 lost 2, process 8 lost 1 stacks", lossSum{}},
		{map[uint32]uint64{5: 1, 6: 9, 7: 2, 8: 2, 9: 2}, nil, what + "process 6 lost 9, process 7 lost 2, process 8 lost 2, 2 more processes lost fewer", lossSum{}},
		{nil, nil, what + "3 processes that ended long ago lost 7, and 2 stacks", lossSum{3, 7, 2}},
	} {
		if got := text(c.events, c.stacks, c.before); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
