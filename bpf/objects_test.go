// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

const remedy = "run go generate ./bpf"

// TestObjectsFresh compares the sources with objects.sum, which gen.sh writes:
//
//	go.opentelemetry.io/ebpf-profiler v0.0.202633
//	clang 14.0.6
//	eb8a6de5b2cb…  probe.bpf.c
func TestObjectsFresh(t *testing.T) {
	noted := map[string]string{} // by file or module: hash or version
	for line := range strings.Lines(string(read(t, "objects.sum"))) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("objects.sum: line %q", line)
		}
		if len(fields[0]) == 2*sha256.Size {
			noted[fields[1]] = fields[0]
		} else {
			noted[fields[0]] = fields[1]
		}
	}
	now := map[string]string{"clang": noted["clang"]} // scripts/check-generated.sh asks the compiler
	for _, pattern := range []string{"*.c", "*.h", "gen.sh"} {
		for _, name := range glob(t, pattern) {
			now[name] = fmt.Sprintf("%x", sha256.Sum256(read(t, name)))
		}
	}
	for _, module := range []string{"go.opentelemetry.io/ebpf-profiler", "github.com/cilium/ebpf"} {
		required := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(read(t, "../go.mod"))
		if required == nil {
			t.Fatalf("go.mod does not require %s", module)
		}
		now[module] = string(required[1])
	}
	for name := range now {
		if now[name] != noted[name] {
			t.Errorf("the objects were not built from this %s: %s", name, remedy)
		}
	}
	for name := range noted {
		if now[name] == "" {
			t.Errorf("the objects were built from %s, which is gone: %s", name, remedy)
		}
	}
}

func TestEventsHaveTheLayoutThatTheKernelHalfWrites(t *testing.T) {
	compared := map[string]int{}
	for _, object := range glob(t, "*.o") {
		spec, err := ebpf.LoadCollectionSpec(object)
		if err != nil {
			t.Fatal(err)
		}
		for mapName, goType := range map[string]reflect.Type{
			"events": reflect.TypeFor[Event](), "processes": reflect.TypeFor[Process](),
		} {
			if spec.Maps[mapName] != nil {
				compareLayout(t, object, spec, mapName, goType)
				compared[mapName]++
			}
		}
	}
	if compared["events"] < 8 || compared["processes"] < 8 { // probe, guarded, older, process; two architectures
		t.Errorf("maps found in objects: %v", compared)
	}
	if size := unsafe.Sizeof(Event{}); size != 64 {
		t.Errorf("an event has %d bytes, want 64", size)
	}
}

// compareLayout compares a map's value with its Go copy, field by field.
func compareLayout(t *testing.T, object string, spec *ebpf.CollectionSpec, mapName string, goType reflect.Type) {
	t.Helper()
	c, ok := btf.As[*btf.Struct](spec.Maps[mapName].Value)
	if !ok {
		t.Errorf("%s: the value of %s is %v", object, mapName, spec.Maps[mapName].Value)
		return
	}
	if uintptr(c.Size) != goType.Size() {
		t.Errorf("%s: struct %s has %d bytes, in Go %d: %s", object, c.Name, c.Size, goType.Size(), remedy)
	}
	for _, member := range c.Members {
		if u, ok := member.Type.(*btf.Union); ok && member.Name == "" { // Go has the union's first member
			member.Name, member.Type = u.Members[0].Name, u.Members[0].Type
		}
		name := strings.ToUpper(member.Name[:1]) + member.Name[1:]
		field, ok := goType.FieldByName(name)
		if !ok {
			t.Errorf("%s: %s.%s is not in Go: %s", object, c.Name, member.Name, remedy)
			continue
		}
		size, err := btf.Sizeof(member.Type)
		if err != nil {
			t.Fatal(err)
		}
		if uintptr(member.Offset.Bytes()) != field.Offset || uintptr(size) != field.Type.Size() {
			t.Errorf("%s: %s.%s is %d bytes at %d, in Go %d at %d: %s", object, c.Name, member.Name,
				size, member.Offset.Bytes(), field.Type.Size(), field.Offset, remedy)
		}
	}
}

func TestObjectsNameNoPathOfTheMachineThatBuiltThem(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(glob(t, "*.o"), glob(t, "*_bpfel.go")...) {
		content := read(t, name)
		for _, path := range []string{filepath.Dir(here), "/pkg/mod/", "/root/", "/home/", "/tmp/"} {
			if bytes.Contains(content, []byte(path)) {
				t.Errorf("%s contains %q", name, path)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Add(make([]byte, 63))
	f.Add(bytes.Repeat([]byte{255}, 300))
	f.Fuzz(func(t *testing.T, raw []byte) {
		words := make([]uint64, len(raw)/8+1) // aligned, as the ring's records are
		aligned := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(raw))
		copy(aligned, raw)
		event, err := DecodeEvent(aligned)
		if (err == nil) != (len(raw) >= 64) || err == nil && event.Time != words[0] {
			t.Errorf("%d bytes: %v, %v", len(raw), event, err)
		}
		const size = int(unsafe.Sizeof(MappedFile{}))
		for rest := raw; len(rest) > 0; {
			_, next, err := DecodeMappedFile(rest)
			if (err == nil) != (len(rest) >= size) || err == nil && len(next) != len(rest)-size {
				t.Fatalf("%d bytes: %d are left, %v", len(rest), len(next), err)
			}
			rest = next
		}
	})
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s (%v)", pattern, err)
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
