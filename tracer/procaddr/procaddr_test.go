// SPDX-License-Identifier: Apache-2.0

package procaddr

import (
	"slices"
	"testing"
)

func TestAnswersWithoutAProbeAreNamed(t *testing.T) {
	const text = `/usr/lib/libcuda.so.1
cuMemAlloc 1 0 3020 14090 4096 cuMemAlloc_v2
cuMemAlloc 1 2 3020 14090 4096 cuMemAlloc_v2
cuMemFree 0 1 3020 14090 8192 cuMemFree_v3
cuInit 1 0 2000 14090 4096 cuInit
cuCtxGetDevice 1 0 13000 14090 20480 cuCtxGetDevice_v2
`
	a, err := parse([]byte(text))
	if err != nil || a.Path != "/usr/lib/libcuda.so.1" || len(a.List) != 5 {
		t.Fatalf("got %+v, %v", a, err)
	}
	if want := (Answer{"cuMemFree", false, 1, 3020, 14090, "cuMemFree_v3", 8192}); a.List[2] != want {
		t.Errorf("got %+v, want %+v", a.List[2], want)
	}
	s := a.Summarize(map[uint64]string{4096: "cuMemAlloc_v2", 12288: "cuMemFree_v2"})
	if s.Names != 4 || !slices.Equal(s.Functions, []string{"cuMemAlloc_v2"}) || !slices.Equal(s.Never, []string{"cuMemFree_v2"}) ||
		!slices.Equal(s.Unprobed, []string{"cuInit (default stream): cuInit", "cuMemFree (legacy stream): cuMemFree_v3"}) {
		t.Errorf("got %+v", s)
	}
}

func TestNamesAreThoseOfTheLibraryAndOfItsHeader(t *testing.T) {
	got := Names([]string{"cuMemFreeAsync_ptsz", "cuMemAlloc_v2", "cuMemAlloc", "cuCtxCreate_v3"})
	if want := []string{"cuCtxCreate", "cuCtxCreate_v3", "cuMemAlloc", "cuMemAlloc_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	for _, text := range []string{"", "/lib\nx", "/lib\nname 0 9 1 2 3 f\n", "/lib\nname 0 -1 1 2 3 f\n"} {
		if a, err := parse([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, a)
		}
	}
}

func TestFailedCommandsAreErrors(t *testing.T) {
	for _, command := range [][]string{{"false"}, {"/does/not/exist"}, {"sh", "-c", "yes 0123456789"}, {"sh", "-c", "echo no driver >&2; exit 1"}} {
		if a, err := Ask(t.Context(), nil, command...); err == nil {
			t.Errorf("%q: got %+v", command, a)
		} else if command[0] == "sh" && len(command[2]) > 20 && err.Error() != "no driver" {
			t.Errorf("%q: %v", command, err)
		}
	}
}
