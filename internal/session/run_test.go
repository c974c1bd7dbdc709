// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestADetachThatTakesLongSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		end := sayLater(&said, "detaching")
		time.Sleep(detachQuiet - 1)
		end()
		time.Sleep(time.Minute)
		if said.Len() > 0 {
			t.Errorf("a short one says %q", said.String())
		}
		defer sayLater(&said, "detaching")()
		time.Sleep(time.Minute)
		if said.String() != "detaching\n" {
			t.Errorf("a long one says %q", said.String())
		}
	})
}
