// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	smallBytes = 4 << 20
	hugeBytes  = 32 << 20 // a huge page of arm64 with pages of 16 KiB
)

// notes are words of this process's memory, one on each page.
type notes struct {
	parts [2][]byte // small pages, and huge ones if the kernel gives them
	words map[*byte]uint64
}

func takeNotes(t *testing.T) notes {
	all, err := unix.Mmap(-1, 0, 3*hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	begin := -uintptr(unsafe.Pointer(&all[0])) & (hugeBytes - 1)
	n := notes{[2][]byte{all[begin:][:smallBytes:smallBytes], all[begin+hugeBytes:][:hugeBytes:hugeBytes]}, map[*byte]uint64{}}
	for i, advice := range []int{unix.MADV_NOHUGEPAGE, unix.MADV_HUGEPAGE} {
		if err := unix.Madvise(n.parts[i], advice); err != nil {
			t.Fatal(err)
		}
		for page := 0; page < len(n.parts[i]); page += unix.Getpagesize() {
			at, word := page+8*rand.IntN(unix.Getpagesize()/8), rand.Uint64()
			binary.NativeEndian.PutUint64(n.parts[i][at:], word)
			n.words[&n.parts[i][at]] = word
		}
	}
	return n
}

// read compares each word with what the kernel half reads, and returns how many were on marked
// pages. Its reads do not bring the pages back.
func (n notes) read(t *testing.T, r reader) (marked [2]int) {
	for at, word := range n.words {
		result, err := r.compare(at, word)
		if err != nil {
			t.Fatal(err)
		}
		if result&^notMarked != equal {
			t.Fatalf("a word that is %#x: result %d", word, result)
		}
		if result&notMarked == 0 {
			part := 0
			if uintptr(unsafe.Pointer(at)) >= uintptr(unsafe.Pointer(&n.parts[1][0])) {
				part = 1
			}
			marked[part]++
		}
	}
	return marked
}

func readerOfThisKernel(t *testing.T) reader {
	if os.Getuid() != 0 {
		t.Skip("BPF programs need root")
	}
	m, err := Prepare(os.DirFS("/"), runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	r, err := newReader(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	t.Logf("%+v", m)
	return r
}

// Each word of small and huge pages without access rights is what the process wrote.
func TestWordsOfPagesWithoutRightsAreThoseOfTheProcess(t *testing.T) {
	r, n := readerOfThisKernel(t), takeNotes(t)
	if marked := n.read(t, r); marked != [2]int{} {
		t.Errorf("%d words are on marked pages before they are marked", marked)
	}
	for _, part := range n.parts {
		if err := unix.Mprotect(part, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	want := [2]int{smallBytes / unix.Getpagesize(), hugeBytes / unix.Getpagesize()}
	if marked := n.read(t, r); marked != want {
		t.Errorf("words on marked pages, small and huge: %d, want %d", marked, want)
	}
}

// Each word of pages that NUMA balancing has marked is what process_vm_readv reads afterwards.
func TestWordsOfPagesThatBalancingMarksAreThoseOfTheProcess(t *testing.T) {
	root := os.DirFS("/")
	if Nodes(root) == "" || !IsBalancing(root) {
		t.Skip("no NUMA balancing")
	}
	r, n := readerOfThisKernel(t), takeNotes(t)
	var sum [2]int
	for round := 0; round < 40 && (sum[0] == 0 || sum[1] == 0); round++ {
		for begin := time.Now(); time.Since(begin) < 500*time.Millisecond; { // the kernel marks pages of threads that run
		}
		marked := n.read(t, r)
		sum[0], sum[1] = sum[0]+marked[0], sum[1]+marked[1]
		for at, word := range n.words {
			var b [8]byte
			remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(at)), Len: len(b)}
			local := unix.Iovec{Base: &b[0]}
			local.SetLen(len(b))
			if _, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0); err != nil {
				t.Fatal(err)
			}
			if got := binary.NativeEndian.Uint64(b[:]); got != word {
				t.Fatalf("process_vm_readv reads %#x, not %#x", got, word)
			}
		}
	}
	t.Logf("of %d words, %d on small and %d on huge pages were read while marked; all are right", len(n.words), sum[0], sum[1])
	if sum[0] == 0 || sum[1] == 0 {
		t.Error("the kernel marked no pages of one kind")
	}
}
