// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// Frames returns the path as the frames of a stack, the root first: "__main__", "model",
// "layers.*", "weight"; "main() (train.py:7)", "outs[*]". Numbers are stars and stand with the
// container that they are in; keys of dictionaries are frames.
func (h *Holder) Frames() []string {
	root, parts := h.Root(), h.Parts()
	var frames []string
	switch root.Kind {
	case RootModule:
		frames = append(frames, cmp.Or(root.Name, "a module"))
		if root.Name != "__main__" && len(parts) > 0 && parts[0] == root.Name {
			parts = parts[1:]
		}
	case RootLocal, RootTemporary, RootGlobals:
		frames = append(frames, root.Where())
		if root.Kind == RootLocal && root.Name != "" {
			parts[0] = root.Name
		}
	}
	for i, part := range parts {
		if last := len(frames) - 1; i > 0 && (part == "[*]" || part == ".*" || part == " (autograd graph)") {
			frames[last] += part
			continue
		}
		frames = append(frames, strings.TrimPrefix(part, "."))
	}
	for i := range frames {
		frames[i] = untrusted.Clean(frames[i])
	}
	return frames
}
