/* SPDX-License-Identifier: GPL-2.0-only */
/* When a file changed last, by the fields of several versions of the kernel. */
#ifndef VRAMPROF_CHANGE_TIME_H
#define VRAMPROF_CHANGE_TIME_H

#include "kernel_fields.h"

struct timespec64___any {
	long long tv_sec;
	long tv_nsec;
} CORE;
struct inode___6_11 {
	long long i_ctime_sec;
	u32 i_ctime_nsec;
} CORE;
struct inode___6_6 {
	struct timespec64___any __i_ctime;
} CORE;
struct inode___5_10 {
	struct timespec64___any i_ctime;
} CORE;

// In ns, of the content or the owner.
static __attribute__((always_inline)) inline u64 changed_at(void *inode)
{
	struct inode___6_11 *newest = inode;
	struct inode___6_6 *newer = inode;
	struct inode___5_10 *older = inode;
	long long seconds = 0;
	long ns = 0;
	if (__builtin_preserve_field_info(newest->i_ctime_sec, 2 /* exists */)) {
		u32 part = 0;
		READ(seconds, newest, i_ctime_sec);
		READ(part, newest, i_ctime_nsec);
		ns = part & 0x7fffffff; // the highest bit says that somebody has asked for it (Linux 6.13, 4e40eff0b573)
	} else if (__builtin_preserve_field_info(newer->__i_ctime, 2)) {
		READ(seconds, newer, __i_ctime.tv_sec);
		READ(ns, newer, __i_ctime.tv_nsec);
	} else {
		READ(seconds, older, i_ctime.tv_sec);
		READ(ns, older, i_ctime.tv_nsec);
	}
	return seconds * 1000000000ull + ns;
}

#endif
