// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/tracer/capture"
)

// readCapture reads what a capture has of PyTorch's allocators.
func readCapture(*capture.Reader) ([]*Job, error) {
	return []*Job{{Trace: &allocsim.Trace{}, Refused: []Condition{{Code: NoSizes}}}}, nil
}
