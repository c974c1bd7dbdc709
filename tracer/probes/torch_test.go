// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
)

func TestTheVersionOfPyTorchIsReadBesideItsLibraries(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mapped := filepath.Join(folder, "map")
	if err := os.MkdirAll(filepath.Join(folder, "torch", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(folder, "torch", "lib", "libc10.so"), mapped); err != nil {
		t.Fatal(err)
	}
	library := libraries.Mapped{PID: ownPID, Path: mapped, Layer: cudaapi.Torch}
	if got := torchVersion(library); got != "" {
		t.Errorf("without a file: %q", got)
	}
	for text, want := range map[string]string{
		"from typing import Optional\n__version__ = '2.99.1+cu130'\ndebug = False\n": "2.99.1+cu130",
		"__version__: str = \"1.9\"\n":          "1.9",
		"__version__ = '2.\x1b[31m'\n":          "",
		"version = '2.6'\n":                     "",
		"#" + string(make([]byte, 8192)) + "\n": "",
	} {
		if err := os.WriteFile(filepath.Join(folder, "torch", "version.py"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := torchVersion(library); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}
