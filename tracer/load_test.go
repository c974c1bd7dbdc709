// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"testing"
)

func TestKernelTakesAllPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	tr, err := New(Config{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer tr.Close()
	for name, p := range tr.coll.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		// The verifier's limit is a million; that of another kernel may need twice as many.
		if n, ok := info.VerifiedInstructions(); ok && n > 400_000 {
			t.Errorf("%s: the verifier looked at %d instructions", name, n)
		}
	}
	if _, err := tr.scanner.scan(); err != nil {
		t.Error(err)
	}
	if s := tr.Snapshot(); s.Stats.Lost != 0 {
		t.Errorf("lost %d events before there were any", s.Stats.Lost)
	}
}
