// SPDX-License-Identifier: Apache-2.0

package session

import "testing"

func TestWalksAtTheEndSayHowToSkipThem(t *testing.T) {
	if got, want := walksText(400, 802), "reading who keeps the tensors: 400 of 802 processes (Ctrl-C skips)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
