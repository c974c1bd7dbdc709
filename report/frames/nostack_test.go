// SPDX-License-Identifier: Apache-2.0

package frames

import "testing"

// TestTensorsWithoutAStackHaveAName that says so, in place of the ledger's "torch".
func TestTensorsWithoutAStackHaveAName(t *testing.T) {
	for api, want := range map[string]string{"torch": "tensors without a stack trace", "cudaMalloc": "cudaMalloc"} {
		if list := Visible(nil, 0, api); len(list) != 2 || list[0].Function != want || !list[1].Mark {
			t.Errorf("%s: %+v, want %q", api, list, want)
		}
	}
}
