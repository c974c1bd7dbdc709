// SPDX-License-Identifier: Apache-2.0

package untrusted

import "testing"

func TestABufferTakesNothingBeyondItsRoom(t *testing.T) {
	b := Buffer{Room: 4}
	if n, err := b.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("%d bytes, %v; want 3", n, err)
	}
	if n, err := b.Write([]byte("de")); n != 0 || err == nil || string(b.Text) != "abc" {
		t.Errorf("%d bytes, %v: %q; want an error", n, err, b.Text)
	}
}
