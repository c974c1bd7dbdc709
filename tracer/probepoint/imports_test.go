// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

const callers = `
#include <pthread.h>
int elsewhere(void);
int both(pthread_t *t) { return pthread_create(t, 0, 0, 0) + elsewhere(); }
`

// The stub is where the library's code calls, whatever kind of table the linker wrote.
func TestImportsAreTheStubsThatTheLibraryCalls(t *testing.T) {
	for _, options := range [][]string{{}, {"-fcf-protection=full", "-Wl,-z,ibtplt"}, {"-Wl,-z,now"}} {
		dir := t.TempDir()
		source, library := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.so")
		if err := os.WriteFile(source, []byte(callers), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", append(options, "-O1", "-shared", "-fPIC", "-o", library, source)...).CombinedOutput(); err != nil {
			t.Skipf("gcc: %v\n%s", err, out)
		}
		f, err := os.Open(library)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if x, err := elf.NewFile(f); err != nil {
			t.Fatal(err)
		} else if x.Machine != map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH] {
			t.Skip("gcc builds for another machine than the one that is emulated")
		}
		l, err := Open(f)
		if err != nil {
			t.Fatal(err)
		}
		found := l.Imports([]string{"pthread_create", "absent"})
		if len(found) != 1 || found[0].Name != "pthread_create" || found[0].Probe != found[0].Offset {
			t.Fatalf("%v: found %+v", options, found)
		}
		if l.file.Header.Machine != uint16(elf.EM_X86_64) {
			continue
		}
		both := l.Functions([]string{"both"})[0]
		code, err := l.file.Read(both.Offset, both.Size)
		if err != nil {
			t.Fatal(err)
		}
		called := false
		for i := 0; i+5 <= len(code); i++ { // call rel32
			called = called || code[i] == 0xe8 && both.Symbol+uint64(i)+5+uint64(int64(int32(binary.LittleEndian.Uint32(code[i+1:])))) == found[0].Symbol
		}
		if !called {
			t.Errorf("%v: no call of %#x in %x", options, found[0].Symbol, code)
		}
	}
}

func TestStubsAreReadAsTheLinkerWritesThem(t *testing.T) {
	word := func(words ...uint32) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	// adrp x16, 0x11000; ldr x17, [x16, #4008]; add x16, x16, #0xfa8; br x17, at 0x650
	if slot, ok := stubARM64(0x650, word(0xb0000090, 0xf947d611, 0x913ea210, 0xd61f0220)); !ok || slot != 0x11fa8 {
		t.Errorf("arm64: %#x, %v", slot, ok)
	}
	if slot, ok := stubARM64(0x20000, word(0xf0ffffd0, 0xf947d611, 0x913ea210, 0xd61f0220)); !ok || slot != 0x1bfa8 {
		t.Errorf("arm64, a page before: %#x, %v", slot, ok)
	}
	if _, ok := stubARM64(0, word(0xb0000090, 0xf947d611, 0x913ea210, 0xd65f03c0)); ok {
		t.Error("arm64: a ret is no stub")
	}
	if slot, ok := stubX86(0x31cf0, []byte{0xff, 0x25, 0x52, 0x67, 0x59, 0x0e, 0x68}); !ok || slot != 0xe5c8448 {
		t.Errorf("x86: %#x, %v", slot, ok)
	}
}
