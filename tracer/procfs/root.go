// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"fmt"
	"os"
)

// OwnRoot reports whether the paths of a process are not those of vramprof: it runs in a container,
// in another mount namespace or below another root folder. Others find its files below
// /proc/PID/root. It returns false for a process that has ended.
func OwnRoot(pid uint32) bool {
	for _, link := range []string{"ns/mnt", "root"} {
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		own, ownErr := os.Readlink("/proc/self/" + link)
		if err == nil && ownErr == nil && its != own {
			return true
		}
	}
	return false
}
