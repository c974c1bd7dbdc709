// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestAwaitNamesWhatTakesLongAndClearsIt(t *testing.T) {
	var b bytes.Buffer
	end := await(&b, time.Millisecond, "reading process 42")
	time.Sleep(50 * time.Millisecond)
	end()
	end()
	if got := b.String(); !strings.HasPrefix(got, Wipe+"reading process 42, 0s") || !strings.HasSuffix(got, Wipe) {
		t.Errorf("wrote %q", got)
	}
	b.Reset()
	await(&b, time.Hour, "nothing")()
	Await(&b, "not on a terminal")()
	if b.Len() > 0 {
		t.Errorf("wrote %q", b.String())
	}
}
