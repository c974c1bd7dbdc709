// SPDX-License-Identifier: Apache-2.0

package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	lastCall  = unix.SYS_LISTNS
)

// deniedHere lists calls that newer architectures do not have.
var deniedHere = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_CHMOD, unix.SYS_MKNOD, unix.SYS_IOPL, unix.SYS_IOPERM,
	unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS__SYSCTL,
}

// createHere limits calls that newer architectures do not have.
func (a *assembler) createHere() {
	a.withoutSetID(unix.SYS_OPEN, 1)
	a.call(unix.SYS_CREAT, func() {
		a.loadArg(1)
		a.add(anyBit, unix.S_ISUID|unix.S_ISGID, 0, 1)
		a.add(result, deny, 0, 0)
		a.add(result, allow, 0, 0)
	})
}
