// SPDX-License-Identifier: Apache-2.0

// What a thread does at the signal: system calls and nothing else, since it may have been anywhere.

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
	// Needs CAP_SETPCAP; ends beyond the last capability of this kernel.
	for (unsigned long c = 0; c < 64 && syscall(SYS_prctl, PR_CAPBSET_DROP, c, 0, 0, 0) == 0; c++)
		;
	if (syscall(SYS_capget, &header, sets) == 0) {
		for (int i = 0; i < 2; i++) {
			sets[i].permitted &= kept[i];
			sets[i].effective = sets[i].permitted;
			sets[i].inheritable = 0; // which empties the ambient set, too
		}
		syscall(SYS_capset, &header, sets);
	}
	errno = before;
}

// As the kernel has it: the C library keeps this signal for itself.
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
#define RESTORER 0UL // the kernel has one in its vDSO
#define confine_restorer 0
#endif

int confine_prepare(uint32_t low, uint32_t high)
{
	// On the alternate stack: those of goroutines are small.
	struct kernel_sigaction action = {give_up, SA_ONSTACK | SA_RESTART | RESTORER, confine_restorer, ~0ULL};

	kept[0] = low;
	kept[1] = high;
	return syscall(SYS_rt_sigaction, confine_signal, &action, 0, sizeof action.mask) == 0 ? 0 : -errno;
}
