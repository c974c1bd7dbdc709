// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// TestTensorsWithoutAStackHaveAName that says so, in place of the ledger's "torch".
func TestTensorsWithoutAStackHaveAName(t *testing.T) {
	for api, want := range map[string]string{"torch": "tensors without a stack trace", "cudaMalloc": "cudaMalloc"} {
		if list := Visible(nil, 0, api); len(list) != 2 || list[0].Function != want || !list[1].Mark || list[1].Function != "[no stack trace: it could not be taken]" {
			t.Errorf("%s: %+v, want %q", api, list, want)
		}
	}
}

// TestAStackThatWasLostSaysSo: it was taken, as its id shows.
func TestAStackThatWasLostSaysSo(t *testing.T) {
	if list := Visible(nothing{}, 7, "cudaMalloc"); len(list) != 2 || list[1].Function != "[no stack trace: it was lost, or not kept]" {
		t.Errorf("%+v", list)
	}
}

type nothing struct{}

func (nothing) Stack(uint64) []callstack.Frame { return nil }
