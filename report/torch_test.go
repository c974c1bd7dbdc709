// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func TestSitesThatAddUpLeaveNoRest(t *testing.T) {
	s := reporttest.TorchSnapshot()
	list := rests(s, nil)
	if len(list) != 5 { // all of it, with no sites
		t.Errorf("rests %+v, want tensors and cache of two GPUs and the tensors of the host", list)
	}
	s.Tensors[0].LiveBytes = (9300 + 2048 + 900) * reporttest.MiB
	for _, h := range Holdings(s) {
		if h.Mark == MarkNoSample {
			t.Errorf("a rest of %d bytes", h.Live)
		}
	}
}

func TestTorchSaysHowMuchRoomThereIs(t *testing.T) {
	got := strings.Join(TorchTexts(reporttest.TorchSnapshot()), "\n")
	for _, want := range []string{
		"python3 [4242] on cuda:0: peak 33.0 GiB of tensors at 1m10s; largest free run: 1.20 GiB; 3.27 GiB of the cache existed before the attach and may have a larger one",
		"python3 [4242] on cpu: peak 210 MiB of tensors at 1m20s\n",
	} {
		if !strings.Contains(got+"\n", want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestAnArenaIsNamed: PyTorch's allocator took pieces of a larger allocation, of which the rest is
// shown as its cache.
func TestAnArenaIsNamed(t *testing.T) {
	s := reporttest.TorchSnapshot()
	named := func() string { return strings.Join(arenaTexts(s), "\n") }
	if text := named(); text != "" {
		t.Errorf("without an arena: %s", text)
	}
	s.Tensors[0].Segments = s.Tensors[0].Reserved + 8192*reporttest.MiB
	text := named()
	if want := "python3 [4242] on cuda:0: the cache includes 8.00 GiB that PyTorch has not reserved"; !strings.HasPrefix(text, want) {
		t.Errorf("%q, want %q", text, want)
	}
	for _, d := range Doubts(s) {
		if d.Text == text {
			return
		}
	}
	t.Error("no doubt says so")
}
