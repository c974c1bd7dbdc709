// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
)

func TestAStepThatIsTooComplexWalksFewerFrames(t *testing.T) {
	denied := errors.New("denied")
	for _, c := range []struct {
		most uint32 // frames that the verifier can take
		err  error
		want []uint32
	}{
		{6, nil, []uint32{6}},
		{5, nil, []uint32{6, 3}},
		{2, nil, []uint32{6, 3, 2}},
		{0, unix.E2BIG, []uint32{6, 3, 2}},
		{6, denied, []uint32{6}},
	} {
		var tried []uint32
		err := withFewerFrames(func(frames uint32) error {
			tried = append(tried, frames)
			if frames > c.most {
				return fmt.Errorf("load: %w", unix.E2BIG)
			}
			return c.err
		})
		if !errors.Is(err, c.err) || !slices.Equal(tried, c.want) {
			t.Errorf("with room for %d frames: tried %v, %v; want %v, %v", c.most, tried, err, c.want, c.err)
		}
	}
}

// The kernel's answer to a program beyond its limit must reach withFewerFrames as E2BIG.
func TestTheVerifierGivesUpWithE2BIG(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadWalk(kernel)
	if err != nil {
		t.Fatal(err)
	}
	delete(spec.Programs, nativeProgram)
	interpreters := interpreterconfig.NoInterpreters()
	maps, err := loadMaps(kernel, &interpreters, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range maps.Maps { // instead of the stand-ins
		if spec.Maps[name] != nil {
			spec.Maps[name] = m
		}
	}
	for name := range spec.Programs {
		if name != pythonProgram {
			delete(spec.Programs, name)
		}
	}
	if err := spec.Variables["python_frames_per_program"].Set(uint32(64)); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogDisabled: true}})
	if err == nil {
		c.Close()
		t.Skip("this kernel takes 64 frames")
	}
	if !errors.Is(err, unix.E2BIG) {
		t.Errorf("a program of 64 frames: %v, want E2BIG", err)
	}
}
