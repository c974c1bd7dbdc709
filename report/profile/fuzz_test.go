// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
)

func packed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

// FuzzReadProfile compares a profile that a user gives with itself and with ours.
func FuzzReadProfile(f *testing.F) {
	var ours bytes.Buffer
	if err := Write(&ours, reporttest.Snapshot(), reporttest.Stacks()); err != nil {
		f.Fatal(err)
	}
	good, err := Read(bytes.NewReader(ours.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	r, err := gzip.NewReader(&ours)
	if err != nil {
		f.Fatal(err)
	}
	unpacked, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unpacked)
	f.Add(packed(unpacked)) // twice compressed
	f.Add([]byte("heap profile: 1: 2 [3: 4] @ heapprofile\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bytes.NewReader(packed(data)))
		if err != nil {
			return
		}
		for _, pair := range [][2]Profile{{p, good}, {good, p}, {p, p}} {
			var out bytes.Buffer
			if err := text.WriteDiff(&out, Diff(pair[0], pair[1]), [2]string{}, report.Options{}, text.Screen{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if !reporttest.Printable(out.String()) {
				t.Errorf("%q", out.String())
			}
			if n := out.Len(); n > 16<<10 {
				t.Errorf("a difference of %d bytes", n)
			}
			_ = WriteDifference(io.Discard, pair[0], pair[1])
			out.Reset()
			c := compare.New([]compare.Column{pair[0].Column(), pair[1].Column(), good.Column()})
			if err := text.WriteComparison(&out, c, report.Options{}, text.Screen{Width: 100}); err != nil {
				t.Fatal(err)
			}
			if !reporttest.Printable(out.String()) || out.Len() > 16<<10 {
				t.Errorf("a comparison of %d bytes: %q", out.Len(), out.String())
			}
		}
	})
}

func TestAProfileThatUnpacksWithoutEndIsNotRead(t *testing.T) {
	pipe, to := io.Pipe()
	go func() {
		w := gzip.NewWriter(to)
		zeros := make([]byte, 1<<20)
		for range maxProfile>>20 + 1 {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
		_ = w.Close()
		_ = to.Close()
	}()
	defer pipe.Close()
	var limit *LimitError
	if _, err := Read(pipe); !errors.As(err, &limit) || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("got %v", err)
	}
}
