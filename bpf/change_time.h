/* SPDX-License-Identifier: GPL-2.0-only */
/* The time of a file's last change. Versions of the kernel have it in different fields. */
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

// Returns the time of the last change of content or owner, in ns.
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
		ns = part & 0x7fffffff; // the highest bit is a flag (Linux 6.13, 4e40eff0b573)
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
