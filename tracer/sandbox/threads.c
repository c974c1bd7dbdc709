// SPDX-License-Identifier: Apache-2.0

// Runs in each thread as a signal handler. It only makes system calls, because the signal may
// interrupt any code.

#include "threads.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile uint32_t kept[2];

static void give_up(int signal)
{
	int before = errno;
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct sets[2];

	(void)signal;
	// Needs CAP_SETPCAP. Stops after the last capability that this kernel has.
	for (unsigned long c = 0; c < 64 && syscall(SYS_prctl, PR_CAPBSET_DROP, c, 0, 0, 0) == 0; c++)
		;
	if (syscall(SYS_capget, &header, sets) == 0) {
		for (int i = 0; i < 2; i++) {
			sets[i].permitted &= kept[i];
			sets[i].effective = sets[i].permitted;
			sets[i].inheritable = 0; // also empties the ambient set
		}
		syscall(SYS_capset, &header, sets);
	}
	errno = before;
}

// The kernel's layout: the C library's sigaction refuses this signal.
struct kernel_sigaction {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

#ifdef __x86_64__
#define RESTORER 0x04000000UL
void confine_restorer(void) __attribute__((visibility("hidden")));
__asm__(".text\n.type confine_restorer, @function\nconfine_restorer:\n\tmov $15, %eax\n\tsyscall\n");
#else
#define RESTORER 0UL // the kernel provides one in its vDSO
#define confine_restorer 0
#endif

int confine_prepare(uint32_t low, uint32_t high)
{
	// Use the alternate stack: the stacks of goroutines are small.
	struct kernel_sigaction action = {give_up, SA_ONSTACK | SA_RESTART | RESTORER, confine_restorer, ~0ULL};

	kept[0] = low;
	kept[1] = high;
	return syscall(SYS_rt_sigaction, confine_signal, &action, 0, sizeof action.mask) == 0 ? 0 : -errno;
}
