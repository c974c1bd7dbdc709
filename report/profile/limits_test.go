// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// unpackedProfile returns the bytes of a profile, uncompressed.
func unpackedProfile(t testing.TB) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := Write(&file, reporttest.Snapshot(), reporttest.Stacks()); err != nil {
		t.Fatal(err)
	}
	text, _, err := unpack(&file, true)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// floods are parts of a message that take few bytes in a file and many in memory.
var floods = map[string][]byte{
	"samples":              {0x12, 0},
	"samples of one value": {0x12, 3, 0x12, 1, 0},
	"labels":               append([]byte{0x12, 200}, append([]byte{1}, bytes.Repeat([]byte{0x1a, 0}, 100)...)...),
	"labels with keys":     append([]byte{0x12, 208}, append([]byte{1}, bytes.Repeat([]byte{0x1a, 6, 8, 1, 16, 1, 24, 1}, 26)...)...),
	"numbers":              append([]byte{0x12, 103, 0x0a, 101}, make([]byte, 101)...),
	"values":               append([]byte{0x12, 103, 0x12, 101}, make([]byte, 101)...),
	"mappings":             {0x1a, 0},
	"locations":            {0x22, 0},
	"lines":                append([]byte{0x22, 100}, bytes.Repeat([]byte{0x22, 0}, 50)...),
	"functions":            {0x2a, 0},
	"strings":              {0x32, 0},
	"types":                {0x0a, 0},
	"comments":             {0x68, 1},
	"packed comments":      append([]byte{0x6a, 100}, make([]byte, 100)...),
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestASmallProfileTakesLittleMemory, also one that is forged to take a gigabyte, beside a real one
// of the same size.
func TestASmallProfileTakesLittleMemory(t *testing.T) {
	real := unpackedProfile(t)
	for name, part := range floods {
		file := packed(append(bytes.Clone(real), bytes.Repeat(part, (2<<20)/len(part))...))
		var err error
		took := allocated(func() { _, err = Read(bytes.NewReader(file)) })
		if took > 256<<20 {
			t.Errorf("%s in %d bytes: %v, %d MiB", name, len(file), err, took>>20)
		}
		var limit *LimitError
		if name == "samples" && !errors.As(err, &limit) {
			t.Errorf("a profile of %d samples in %d bytes: %v", 1<<20, len(file), err)
		}
	}
	if _, err := Read(bytes.NewReader(packed(real))); err != nil {
		t.Error(err)
	}
}

// TestTheEstimateIsNotTooLow compares it with what the parser takes.
func TestTheEstimateIsNotTooLow(t *testing.T) {
	for name, part := range floods {
		text := bytes.Repeat(part, (256<<10)/len(part))
		estimate, err := memoryFor(profileMessage, text, 1<<40)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// What is allocated is more than what is held at a time, as slices grow.
		if took := allocated(func() { _, _ = parseProfile(text) }); took > 4*estimate {
			t.Errorf("%s: %d bytes, the estimate is %d", name, took, estimate)
		}
	}
}

// TestAProfileThatCanBeTrustedHasNoLimitByItsSize.
func TestAProfileThatCanBeTrustedHasNoLimitByItsSize(t *testing.T) {
	file := packed(append(unpackedProfile(t), bytes.Repeat([]byte{0x32, 0}, 2200<<10)...)) // empty strings
	var limit *LimitError
	if _, err := Read(bytes.NewReader(file)); !errors.As(err, &limit) {
		t.Errorf("with limits: %v", err)
	}
	if _, err := ReadUnlimited(bytes.NewReader(file)); err != nil {
		t.Errorf("without: %v", err)
	}
}
