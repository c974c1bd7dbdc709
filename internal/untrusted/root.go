// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"os"
	"strings"
)

// InRoot returns a path from /proc/PID/maps as the process itself sees it; root is its
// /proc/PID/root. The kernel writes these paths as the reader sees them: of a process in a chroot,
// with the folder of the chroot in front. It returns the path as it is if root cannot be read.
func InRoot(root, path string) string {
	folder, err := os.Readlink(root)
	if err != nil || folder == "/" {
		return path
	}
	if inside, is := strings.CutPrefix(path, folder); is && strings.HasPrefix(inside, "/") {
		return inside
	}
	return path
}
