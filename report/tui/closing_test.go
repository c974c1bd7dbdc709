// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"
	"testing"
)

func TestAnyKeyClosesTheHelp(t *testing.T) {
	for _, k := range []string{"q", "x", "?", "enter", "esc", "w", "/", "space"} {
		m := screenOf(80, 24, Options{}, moments()["torch"])
		press(m, "2", "?", "down", "pgdown")
		if m.pager.page == nil {
			t.Fatal("a key that scrolls closes the help")
		}
		if press(m, k); m.pager.page != nil || m.prompt.typing || m.frozen {
			t.Errorf("%s does not only close the help", k)
		}
	}
	m := screenOf(80, 24, Options{}, moments()["torch"])
	if press(m, "2", "?", "3"); m.pager.page != nil || m.view != viewLines {
		t.Error("the key of a view does not open it")
	}
}

func TestTheColumnBeforeIsThereIn80Columns(t *testing.T) {
	m := screenOf(80, 24, Options{}, moments()["torch"])
	if press(m, "2"); !strings.Contains(shownText(m), " before verdict") {
		t.Errorf("no column before:\n%s", shownText(m))
	}
}
