// SPDX-License-Identifier: Apache-2.0

package serve

import "golang.org/x/sys/unix"

// aboveDescriptor is the descriptor above which aboveProbes opens: one link of a probe takes one,
// and a runtime library has up to 130 links.
const aboveDescriptor = 1 << 13

// aboveProbes calls open while lower descriptors are in use, so that those of later probes are
// below those that open gets. The kernel releases the files of a killed process from the highest
// descriptor down (task_work_run, since Linux 4.3), and waits some 40 ms for each link of a probe.
// A port or a lock with a lower descriptor would stay in use for as long. Of a low limit of
// descriptors it leaves the upper half free.
func aboveProbes(open func() error) error {
	above := aboveDescriptor
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		above = int(min(uint64(above), limit.Cur/2))
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return open() // it works, and only a kill would take longer
	}
	taken := []int{null}
	defer func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
	}()
	from := above // first, so that the kernel's table grows once
	for {
		fd, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, from)
		if err == nil {
			taken = append(taken, fd)
		}
		if from == 0 && (err != nil || fd > above) {
			return open()
		}
		from = 0
	}
}
