// SPDX-License-Identifier: Apache-2.0

package gpucheck

import (
	"os/exec"
	"strings"
	"testing"
)

const askFrames = `
import sys
sys.path.insert(0, "..")
from gpucheck.pytorch import python_frames
def stack(*frames): return [dict(function=f, language="python" if f.endswith(".py") else "native") for f in frames]
gradient = stack("at::empty", "torch::autograd::Engine::evaluate_function(torch::autograd::Node*)", "torch::autograd::Engine::thread_main(x)", "clone")
print(python_frames([]), python_frames([gradient]), python_frames([gradient, stack("[no stack trace: it could not be taken]")]), python_frames([gradient, stack("at::empty", "train.py")]), python_frames([gradient, stack("at::empty", "main")]))
`

// All live tensors with stacks may be gradients, which autograd's thread allocates.
func TestGradientsTellNothingAboutPythonFrames(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(python, "-B", "-c", askFrames).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "None None None True False" {
		t.Errorf("%v: %s, want None None None True False", err, got)
	}
}
