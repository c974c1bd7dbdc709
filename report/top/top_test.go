// SPDX-License-Identifier: Apache-2.0

package top

import (
	"testing"

	tea "charm.land/bubbletea/v2"
)

func TestQEndsTheScreen(t *testing.T) {
	_, cmd := New(Options{}).Update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	if cmd == nil {
		t.Fatal("q does nothing")
	}
	if _, quits := cmd().(tea.QuitMsg); !quits {
		t.Error("q does not end the program")
	}
}
