// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// Explained is the session of Held, whose walks found what the storages are of a model. Of a list's
// tensors, the autograd graph has saved half.
func Explained() *ledger.Snapshot {
	s := Held()
	for i := range s.Walks {
		held := s.Walks[i].Held
		for k := range held {
			h := &held[k]
			h.Parts = modelpart.Bytes{}
			h.Parts[partOf(h.Path)] = h.Bytes
			if strings.HasPrefix(h.Path, "local") {
				h.Parts = modelpart.Bytes{modelpart.None: h.Bytes - h.Bytes/2, modelpart.Saved: h.Bytes / 2}
			}
		}
	}
	return s
}

func partOf(path string) modelpart.Kind {
	switch {
	case strings.HasSuffix(path, ".grad"):
		return modelpart.Gradient
	case strings.HasPrefix(path, "optimizer.state"):
		return modelpart.State
	case strings.HasPrefix(path, "model."):
		return modelpart.Weight
	}
	return modelpart.None
}
